//! A batch of messages: which run at once, and what is handed back.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, stream};
use lambda_runtime::{Context, Error};
use tokio::sync::Semaphore;

use super::{
    Consumer,
    consumer::Work,
    feed::{Answers, Room},
    lanes::{Back, Shared},
    plan::{Plan, Planned},
};
use crate::{
    error_chain::error_chain,
    lambda::trigger::{BatchFailures, Event, refuse, time},
    telemetry::{MESSAGE_NOT_HIDDEN, count_message},
    time::Instant,
    time_budget::NO_NEW_WORK,
};

impl Consumer {
    /// Runs a batch.
    pub(super) async fn batch(
        &self,
        event: &Event,
        context: Context,
        work: &Work,
    ) -> Result<BatchFailures, Error> {
        let records = self.feed.records(event)?;
        let mut room = Room::of_batch();
        let (now, time) = (self.world.instant(), time(&*self.world, &context));
        let begin = now.plus(time);
        // However long payloads take to load, the messages without one run.
        let planned_by = now.plus(time / 2);
        // The rest is for the answer: without it, all messages come again.
        let call = begin.plus((NO_NEW_WORK / 2).min(time / 2));
        // Boxed, because the compiler does not see that they may be sent.
        let plan = |raw| self.plan(self.feed.read(raw, &self.name, &mut room), planned_by).boxed();
        let plans: Vec<_> = records.into_iter().map(plan).collect();
        let planned: Vec<_> = stream::iter(plans).buffered(self.at_once).collect().await;
        if let Some(first) = planned.first()
            && planned.iter().all(|planned| matches!(planned.plan, Plan::Foreign))
        {
            let found = first.received.foreign.as_deref().unwrap_or_default();
            let (noun, expected) = (self.feed.noun(), &*self.name);
            return Err(refuse(&format!(
                "it is from {found}, and this function takes messages of the {noun} {expected}"
            )));
        }
        let permits = Semaphore::new(self.at_once);
        let brings_parked = self.feed.brings_parked(event);
        let shared = Shared { begin, call, permits, context: Arc::new(context), work, brings_parked };
        // Boxed, because each would be as large as the largest function.
        let lanes: Vec<_> = lanes(planned).into_iter().map(|lane| self.lane(lane, &shared).boxed()).collect();
        // All at once, because one that waits keeps no other from running.
        let all = lanes.len().max(1);
        let back: Vec<Vec<Back>> = stream::iter(lanes).buffer_unordered(all).collect().await;
        self.hand_back(back.into_iter().flatten().collect(), call).await
    }

    /// Hands messages back.
    ///
    /// # Errors
    /// If one of them has no id, or its source takes no partial answer: then all messages come again. What is done is found done.
    async fn hand_back(&self, back: Vec<Back>, calls_end: Instant) -> Result<BatchFailures, Error> {
        let hidden = back.iter().filter_map(|back| Some((back.receipt.clone()?, back.after?)));
        let hidden: Vec<(String, Duration)> = hidden.collect();
        if !hidden.is_empty() {
            let left = calls_end.since(self.world.instant());
            let failed = match self.world.within(left, self.source.hide(&hidden)).await {
                Some(hidden) => hidden.err().map(|error| error_chain(&error)),
                None => Some("too little time is left".to_owned()),
            };
            if let Some(error) = failed {
                tracing::error!(
                    error,
                    "messages could not be hidden: they come again when the queue's own time-out is over"
                );
                count_message(MESSAGE_NOT_HIDDEN, &self.name);
            }
        }
        match (self.feed.answers(), back.len()) {
            (Answers::Partial, _) => BatchFailures::of_items(back.into_iter().map(|back| back.item)),
            (Answers::Whole, 0) => Ok(BatchFailures::default()),
            (Answers::Whole, again) => {
                let reason = format!("{again} of its messages must come again, so all of them do");
                Err(reason.into())
            }
        }
    }
}

/// The messages by their lanes, in the order in which they came.
fn lanes(planned: Vec<Planned>) -> Vec<Vec<Planned>> {
    let (mut lanes, mut known) = (Vec::<Vec<Planned>>::new(), HashMap::new());
    for planned in planned {
        match planned.lane() {
            None => lanes.push(vec![planned]),
            Some(lane) => {
                let place = *known.entry(lane).or_insert(lanes.len());
                if place == lanes.len() {
                    lanes.push(Vec::new());
                }
                lanes[place].push(planned);
            }
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use async_trait::async_trait;
    use serde_json::json;

    use super::*;
    use crate::{
        event::{DeadMessage, KeyFrom, Source, SourceKind, consumer::Done},
        function::RunError,
        queue::QueueError,
        time::Timestamp,
        world::{ManualWorld, World},
    };

    /// A queue that never answers.
    struct Silent;

    #[async_trait]
    impl Source for Silent {
        fn name(&self) -> &str {
            "parcels"
        }

        fn kind(&self) -> SourceKind {
            SourceKind::Sqs
        }

        async fn hide(&self, _: &[(String, Duration)]) -> Result<(), QueueError> {
            pending().await
        }

        async fn bury(&self, _: DeadMessage) -> Result<(), QueueError> {
            pending().await
        }
    }

    // Without an answer all messages come again, those that are done too.
    #[tokio::test]
    async fn a_batch_is_answered_though_its_queue_never_answers() {
        const TIME: Duration = Duration::from_secs(30);
        let world = ManualWorld::at(Timestamp::from_secs(1_000));
        let consumer = Consumer::new(Silent, KeyFrom::body("/does")).world(world.clone());
        let work: Work = Arc::new(|job| {
            let done = match job.key.key.as_str().contains("dead") {
                true => Done::refused("no such address"),
                false if job.key.key.as_str().contains("nothing") => {
                    Done { ended: Err(RunError::NotExecuted(None)), attempts: Some(1) }
                }
                false => Done { ended: Ok(()), attempts: Some(1) },
            };
            Box::pin(async { done })
        });
        let message = |does: &str| {
            json!({
                "messageId": does,
                "receiptHandle": does,
                "body": json!({ "does": does }).to_string(),
                "attributes": { "ApproximateReceiveCount": "1" },
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:us-east-2:123456789012:parcels",
            })
        };
        let messages = ["is dead", "ships", "does nothing"].map(message);
        let event = serde_json::from_value(json!({ "Records": messages })).expect("an event");
        let deadline = world.now().plus(TIME).as_millis();
        let mut context = Context::default();
        context.deadline = deadline;
        let answer = world.passing(consumer.batch(&event, context, &work)).await.expect("an answer");
        assert_eq!(answer.identifiers(), ["does nothing", "is dead"]);
        assert!(world.running() < TIME, "{:?}", world.running());
    }
}
