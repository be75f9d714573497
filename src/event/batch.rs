//! A batch of messages: which run at once, and what is handed back.

use std::{
    collections::HashMap,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, stream};
use lambda_runtime::{Context, Error};
use tracing::Instrument;

use super::{
    Consumer, DeadMessage,
    consumer::{Done, Job, Work},
    disposition::{Disposition, Tries},
    message::{Message, Received, SQS},
};
use crate::{
    error_chain::error_chain,
    function::RunError,
    key::{FoundKey, Tenant},
    lambda::trigger::{BatchFailures, Event, refuse, time},
    queue::QueueError,
    telemetry::{
        MESSAGE_DEAD, MESSAGE_HANDED_BACK, MESSAGE_HELD, MESSAGE_NOT_BURIED, MESSAGE_NOT_HIDDEN,
        count_message,
    },
    time::Instant,
    time_budget::{HANDED_BACK, NO_NEW_WORK, SEND_TIMEOUT},
};

/// A message of the batch, and what is to be done about it.
struct Planned {
    received: Received,
    plan: Plan,
}

enum Plan {
    /// Run it.
    Run { key: FoundKey, lane: String, message: Box<Message> },
    /// There is nothing to run: this is what the queue sees.
    See(Disposition),
    /// It is from another source: it is handed back as it is.
    Foreign,
}

/// The bounds of an invocation.
#[derive(Clone, Copy)]
struct Ends {
    /// No message begins after this.
    begin: Instant,
    /// No call of the queue takes longer than until this.
    call: Instant,
}

/// What becomes of a message that is handed back.
struct Back {
    id: Option<String>,
    receipt: Option<String>,
    /// When it is visible again; `None`: when the queue's own time-out is over.
    after: Option<Duration>,
}

impl Consumer {
    /// Runs a batch.
    pub(super) async fn batch(
        &self,
        event: &Event,
        context: Context,
        work: &Work,
    ) -> Result<BatchFailures, Error> {
        let records = event.records()?;
        let (now, time) = (self.world.instant(), time(&*self.world, &context));
        let begin = now.plus(time);
        // However long payloads take to load, the messages without one run.
        let planned_by = now.plus(time / 2);
        // The rest is for the answer: without it, all messages come again.
        let ends = Ends { begin, call: begin.plus((NO_NEW_WORK / 2).min(time / 2)) };
        let context = Arc::new(context);
        let mut lanes: Vec<Vec<Planned>> = Vec::new();
        let mut known = HashMap::new();
        // Boxed, because the compiler does not see that they may be sent.
        let plans: Vec<_> =
            records.iter().map(|raw| self.plan(Received::read(raw), planned_by).boxed()).collect();
        let planned: Vec<_> = stream::iter(plans).buffered(self.at_once).collect().await;
        if let Some(first) = planned.first()
            && planned.iter().all(|planned| matches!(planned.plan, Plan::Foreign))
        {
            let (found, expected) = (first.received.source(), &*self.queue);
            return Err(refuse(&format!(
                "it is from {found}, and this function takes messages of the queue {expected}"
            )));
        }
        for planned in planned {
            match lane_of(&planned) {
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
        // Boxed, because each would be as large as the largest function.
        let run = |lane| self.lane(lane, ends, &context, work).boxed();
        let lanes = lanes.into_iter().map(run);
        let back: Vec<Vec<Back>> = stream::iter(lanes).buffer_unordered(self.at_once).collect().await;
        self.hand_back(back.into_iter().flatten().collect(), ends.call).await
    }

    /// What is to be done about a message, before anything is done.
    async fn plan(&self, received: Received, until: Instant) -> Planned {
        // What a sender wrote must not end the batch.
        let plan = AssertUnwindSafe(self.planned(&received, until)).catch_unwind();
        let plan = plan.instrument(self.span(&received.message)).await.unwrap_or_else(|_| {
            tracing::error!(message_id = received.message.id, "a message panics before it is run");
            let ended = Err(RunError::NotExecuted(None));
            let tries = self.tries(&received.message, None);
            Plan::See(Disposition::of(&ended, tries, self.world.nonce()))
        });
        Planned { received, plan }
    }

    /// So that lines about a message, such as the guard's, which have the key's hash, can be found by it. Its fields have the
    /// [names of OpenTelemetry].
    ///
    /// [names of OpenTelemetry]: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
    fn span(&self, message: &Message) -> tracing::Span {
        tracing::info_span!(
            "message",
            "otel.kind" = "consumer",
            "messaging.system" = "aws_sqs",
            "messaging.operation.name" = "process",
            "messaging.destination.name" = &*self.queue,
            "messaging.message.id" = message.id.as_deref()
        )
    }

    async fn planned(&self, received: &Received, until: Instant) -> Plan {
        let Received { message, queue, kind, unusable, .. } = received;
        let named = queue.as_deref().and_then(|arn| arn.rsplit(':').next());
        if kind.as_deref() != Some(SQS) || named != Some(&*self.queue) {
            let (id, found, expected) = (message.id.as_deref(), received.source(), &*self.queue);
            tracing::error!(
                message_id = id,
                found,
                expected,
                "a message is from another queue: it is handed back"
            );
            return Plan::Foreign;
        }
        let dead = |reason: String| Plan::See(Disposition::Dead(reason));
        if let Some(reason) = unusable {
            return dead(reason.clone());
        }
        let message = match self.open(message.clone(), until).await {
            Ok(Some(message)) => message,
            Ok(None) => return Plan::See(Disposition::Acknowledged),
            Err(error) => {
                return Plan::See(Disposition::of(
                    &Err(error),
                    self.tries(message, None),
                    self.world.nonce(),
                ));
            }
        };
        match self.key.of_message(&message) {
            Ok(key) => {
                // A tenant's message does not wait for another tenant's of the same key. A panic is that of its function, which asks again.
                let tenant = self.tenant.as_ref();
                let tenant = tenant.map(|of| panic::catch_unwind(AssertUnwindSafe(|| of(&message))));
                let tenant = tenant.and_then(Result::ok).flatten();
                let lane = format!("key {}#{}", tenant.as_ref().map_or("", Tenant::as_str), key.key.as_str());
                Plan::Run { key, lane, message: Box::new(message) }
            }
            Err(reason) => dead(reason),
        }
    }

    /// Runs messages one after another. Returns those that are handed back.
    async fn lane(&self, lane: Vec<Planned>, ends: Ends, context: &Arc<Context>, work: &Work) -> Vec<Back> {
        let mut back: Vec<Back> = Vec::new();
        for Planned { received, plan } in lane {
            let Received { message, receipt, .. } = received;
            // The rest of a group waits behind the one that was handed back, which blocks it as long as it is hidden (T66).
            let behind = message.group.is_some() && !back.is_empty();
            let late = matches!(plan, Plan::Run { .. }) && ends.begin.since(self.world.instant()).is_zero();
            let after = match plan {
                Plan::Foreign => None,
                _ if behind => {
                    tracing::warn!(
                        message_id = message.id,
                        "a message is handed back: it waits behind another one of its group"
                    );
                    count_message(MESSAGE_HANDED_BACK, &self.queue);
                    Some(Duration::ZERO)
                }
                _ if late => {
                    tracing::warn!(
                        message_id = message.id,
                        "a message is handed back: too little time is left for it"
                    );
                    count_message(MESSAGE_HANDED_BACK, &self.queue);
                    Some(HANDED_BACK.after(message.receives, self.world.nonce()))
                }
                plan => match self.end(plan, &message, ends.call, context, work).await {
                    None => continue,
                    Some(after) => Some(after),
                },
            };
            back.push(Back { id: message.id, receipt, after });
        }
        back
    }

    /// Runs a message, and buries it if need be. Returns after which time it comes again, if it does.
    async fn end(
        &self,
        plan: Plan,
        received: &Message,
        calls_end: Instant,
        context: &Arc<Context>,
        work: &Work,
    ) -> Option<Duration> {
        let nonce = self.world.nonce();
        let disposition = match plan {
            Plan::See(disposition) => disposition,
            Plan::Run { key, message, .. } => {
                let (context, origin) = (context.clone(), key.origin(&format!("queue {}", self.queue)));
                let job = Job { key, message: *message, context, origin };
                // One that panics outside of its function must not end the batch, which would freeze the others midway.
                let done = AssertUnwindSafe(async { work(job).await }).catch_unwind();
                let done = done.instrument(self.span(received)).await;
                let Done { ended, attempts } = done.unwrap_or_else(|_| Done::panicked());
                Disposition::of(&ended, self.tries(received, attempts), nonce)
            }
            Plan::Foreign => return None,
        };
        let id = received.id.as_deref();
        match disposition {
            Disposition::Acknowledged => None,
            Disposition::HandedBack(after) => {
                tracing::warn!(message_id = id, after_s = after.as_secs(), "a message is handed back");
                count_message(MESSAGE_HANDED_BACK, &self.queue);
                Some(after)
            }
            Disposition::Held(after) => {
                tracing::warn!(
                    message_id = id,
                    after_s = after.as_secs(),
                    "a message is held: its outcome is unknown"
                );
                count_message(MESSAGE_HELD, &self.queue);
                Some(after)
            }
            Disposition::Dead(reason) => {
                let dead = DeadMessage {
                    id: received.id.clone(),
                    body: received.body.clone(),
                    attributes: received.attributes.clone(),
                    binary_attributes: received.binary_attributes.clone(),
                    group: received.group.clone(),
                    deduplication_id: received
                        .deduplication_id
                        .clone()
                        .filter(|_| self.key.has_deduplication_id()),
                    reason,
                };
                let left = calls_end.since(self.world.instant()).min(SEND_TIMEOUT);
                let buried = self.world.within(left, self.source.bury(dead)).await;
                match buried.unwrap_or_else(|| Err(QueueError::new("no answer in time"))) {
                    Ok(()) => {
                        tracing::error!(message_id = id, "a message is dead: it went to the dead letters");
                        count_message(MESSAGE_DEAD, &self.queue);
                        None
                    }
                    Err(error) => {
                        let error = error_chain(&error);
                        tracing::error!(
                            message_id = id,
                            error,
                            "a dead message could not be sent to the dead letters: it is handed back"
                        );
                        count_message(MESSAGE_NOT_BURIED, &self.queue);
                        Some(HANDED_BACK.after(received.receives, nonce))
                    }
                }
            }
        }
    }

    fn tries(&self, received: &Message, attempts: Option<u32>) -> Tries {
        let age = received.sent_at.map_or(Duration::ZERO, |at| self.world.now().since(at));
        Tries { receives: received.receives, age, attempts, max_attempts: self.max_attempts }
    }

    /// Hands messages back.
    ///
    /// # Errors
    /// If one of them has no id: then all messages come again. What is done is found done.
    async fn hand_back(&self, back: Vec<Back>, calls_end: Instant) -> Result<BatchFailures, Error> {
        let hidden = back.iter().filter_map(|back| Some((back.receipt.clone()?, back.after?)));
        let hidden: Vec<_> = hidden.collect();
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
                count_message(MESSAGE_NOT_HIDDEN, &self.queue);
            }
        }
        BatchFailures::of(back.into_iter().map(|back| back.id))
    }
}

/// Messages of one lane run one after another: those of a FIFO group, or of one tenant and key. Others have a lane of their own.
fn lane_of(planned: &Planned) -> Option<String> {
    match (&planned.received.message.group, &planned.plan) {
        (Some(group), _) => Some(format!("group {group}")),
        (None, Plan::Run { lane, .. }) => Some(lane.clone()),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use async_trait::async_trait;
    use serde_json::json;

    use super::*;
    use crate::{
        event::{DeadMessage, KeyFrom, Source},
        function::RunError,
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
