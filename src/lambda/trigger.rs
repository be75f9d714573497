//! The triggers of functions that clients do not call: a stream, a queue, a schedule.

use std::{collections::BTreeSet, fmt, time::Duration};

use futures_util::{StreamExt, stream};
use lambda_runtime::{Context, Error};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    error_chain::error_chain,
    queue::WorkError,
    store::stream::text_member,
    time::Timestamp,
    time_budget::{DEFAULT_WORKING_TIME, NO_NEW_WORK, plausible_deadline},
    world::World,
};

/// Lambda's names for the sources of events.
const QUEUE: &str = "aws:sqs";
const TABLE: &str = "aws:dynamodb";

/// How many messages are processed at once.
const AT_ONCE: usize = 10;

/// An event as Lambda sends it. It is not parsed yet, because the runtime would log nothing about an invalid one.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Event(Box<RawValue>);

/// What triggered the function. Records are not parsed yet: each is read separately, so that one that cannot be read blocks
/// no other.
#[derive(Debug)]
pub(crate) enum Trigger {
    /// A schedule, for the function's job.
    Job,
    /// A batch of messages of a queue.
    Messages(Vec<Box<RawValue>>),
    /// A batch of records of a table's stream.
    Stream(Vec<Box<RawValue>>),
}

impl Event {
    /// The event as it was sent.
    pub(crate) fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The same, as one record.
    pub(crate) fn whole(&self) -> Box<RawValue> {
        self.0.clone()
    }

    /// What triggered the function, whose schedule asks for this `job`.
    ///
    /// # Errors
    /// If it is neither that job nor a batch of a queue or a stream. The error is logged. Lambda retries the event, and finally
    /// sends it to the failure destination.
    pub(crate) fn trigger(&self, job: &str) -> Result<Trigger, Error> {
        #[derive(Deserialize)]
        struct Parts<'a> {
            #[serde(rename = "Records", borrow)]
            records: Option<&'a RawValue>,
            #[serde(borrow)]
            job: Option<&'a RawValue>,
        }
        let parts = match self.is_list() {
            true => Parts { records: Some(&self.0), job: None },
            false => serde_json::from_str(self.0.get())
                .map_err(|_| refuse("it is not an object with Records or a job"))?,
        };
        match (parts.records, parts.job) {
            (None, None) => Err(refuse("it has neither Records nor a job")),
            (Some(_), Some(_)) => Err(refuse("it has both Records and a job")),
            (None, Some(wanted)) => match serde_json::from_str::<String>(wanted.get()) {
                Ok(wanted) if wanted == job => Ok(Trigger::Job),
                _ => Err(refuse("there is no such job")),
            },
            (Some(records), None) => {
                let records = list(records)?;
                // The first record that names a source decides: one before it may be damaged.
                match records.iter().find_map(|record| text_member(record.get(), "eventSource")).as_deref() {
                    Some(QUEUE) => Ok(Trigger::Messages(records)),
                    Some(TABLE) => Ok(Trigger::Stream(records)),
                    _ => Err(refuse("its Records are neither messages nor changes of a table")),
                }
            }
        }
    }

    /// The records of a batch, whatever its source. They are not parsed yet.
    ///
    /// # Errors
    /// If it is not a batch. The error is logged.
    pub(crate) fn records(&self) -> Result<Vec<Box<RawValue>>, Error> {
        #[derive(Deserialize)]
        struct Batch<'a> {
            #[serde(rename = "Records", borrow)]
            records: &'a RawValue,
        }
        if self.is_list() {
            return list(&self.0);
        }
        let batch: Batch<'_> =
            serde_json::from_str(self.0.get()).map_err(|_| refuse("it is not an object with Records"))?;
        list(batch.records)
    }

    /// Whether it is a bare list of records, as EventBridge Pipes hands over a batch.
    fn is_list(&self) -> bool {
        self.0.get().starts_with('[')
    }
}

fn list(records: &RawValue) -> Result<Vec<Box<RawValue>>, Error> {
    serde_json::from_str(records.get()).map_err(|_| refuse("its Records are not a list"))
}

/// Logs that the function cannot handle an event, and returns the error.
pub(crate) fn refuse(reason: &str) -> Error {
    tracing::error!(reason, "an event is refused");
    format!("the event is refused: {reason}").into()
}

/// The records of a batch that must be delivered again
/// ([streams](https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html),
/// [queues](https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html),
/// [Kafka](https://docs.aws.amazon.com/lambda/latest/dg/kafka-retry-configurations.html)).
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchFailures {
    batch_item_failures: Vec<Failure>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    item_identifier: ItemId,
}

/// What names a record to its mapping.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub(crate) enum ItemId {
    /// A sequence number, or a message id.
    Id(String),
    /// A place in a partition of Kafka, which is `topic-number`.
    Offset { partition: String, offset: i64 },
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => f.write_str(id),
            Self::Offset { partition, offset } => write!(f, "{partition}@{offset}"),
        }
    }
}

impl BatchFailures {
    /// The failures of the records with these sequence numbers or message ids.
    ///
    /// # Errors
    /// As [`Self::of_items`].
    pub(crate) fn of(identifiers: impl IntoIterator<Item = Option<String>>) -> Result<Self, Error> {
        Self::of_items(identifiers.into_iter().map(|id| id.map(ItemId::Id)))
    }

    /// The failures of these records.
    ///
    /// # Errors
    /// If one has no id, or an empty one: to Lambda, that means the whole batch, so the invocation fails, and says why (T65).
    pub(crate) fn of_items(items: impl IntoIterator<Item = Option<ItemId>>) -> Result<Self, Error> {
        let items: Option<BTreeSet<_>> = items.into_iter().collect();
        let items = items.filter(|items| !items.contains(&ItemId::Id(String::new())));
        let items = items.ok_or_else(|| refuse("a record that must come again has no id"))?;
        let failure = |item_identifier| Failure { item_identifier };
        Ok(Self { batch_item_failures: items.into_iter().map(failure).collect() })
    }

    /// The identifiers of the records that failed: sequence numbers, message ids, or `topic-partition@offset` of Kafka.
    pub fn identifiers(&self) -> Vec<String> {
        self.batch_item_failures.iter().map(|failure| failure.item_identifier.to_string()).collect()
    }
}

/// Runs `work` on the body of each message, with the time that is left. A message that fails is delivered again, and after
/// some deliveries goes to the dead-letter queue.
///
/// `time` is what the function has, and `max` what one message may take. No message is begun with less than `max` left, or
/// half of `time` if that is less; it is delivered again instead.
pub(super) async fn each_message(
    world: &dyn World,
    messages: &[Box<RawValue>],
    time: Duration,
    max: Duration,
    work: impl AsyncFn(&str, Duration) -> Result<(), WorkError>,
) -> Result<BatchFailures, Error> {
    let (until, min) = (world.instant().plus(time), max.min(time / 2));
    let worked = stream::iter(messages.iter().enumerate()).map(async |(place, raw)| {
        let left = until.since(world.instant());
        let done = async {
            if left < min {
                return Err(WorkError::NoTime);
            }
            work(&body(raw)?, left).await
        };
        let error = done.await.err()?;
        let [id, queue] = ["messageId", "eventSourceARN"].map(|name| text_member(raw.get(), name));
        if matches!(error, WorkError::NoTime) {
            tracing::warn!(
                message_id = id,
                place,
                queue,
                "too little time is left for a message: it is delivered again"
            );
        } else {
            let error = error_chain(&error);
            tracing::error!(message_id = id, place, queue, error, "a message failed: it is delivered again");
        }
        Some(id)
    });
    let failed: Vec<_> = worked.buffer_unordered(AT_ONCE).filter_map(async |failed| failed).collect().await;
    BatchFailures::of(failed)
}

fn body(message: &RawValue) -> Result<String, WorkError> {
    match text_member(message.get(), "eventSource").as_deref() {
        Some(QUEUE) => text_member(message.get(), "body").ok_or(WorkError::Malformed("it has no body")),
        _ => Err(WorkError::Malformed("it is not a queue message")),
    }
}

/// For how long the function begins work: until shortly before its deadline.
pub(crate) fn time(world: &dyn World, context: &Context) -> Duration {
    let now = world.now();
    let deadline = plausible_deadline(Timestamp::from_millis(context.deadline), now);
    let Some(left) = deadline.map(|deadline| deadline.since(now)) else { return DEFAULT_WORKING_TIME };
    left - NO_NEW_WORK.min(left / 2)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::world::ManualWorld;

    const SECOND: Duration = Duration::from_secs(1);

    /// How many messages of a batch are delivered again, and how many were begun, if each takes a second, ten at once.
    fn batch(number: usize, time: Duration, max: Duration) -> (usize, usize) {
        let world = ManualWorld::at(Timestamp::from_secs(1_800_000_000));
        let record =
            |id: usize| json!({ "eventSource": "aws:sqs", "messageId": id.to_string(), "body": "{}" });
        let messages: Vec<_> =
            (0..number).map(|id| serde_json::value::to_raw_value(&record(id)).unwrap()).collect();
        let begun = Mutex::new(0);
        let work = async |_: &str, left: Duration| {
            assert!(left <= time);
            let place = {
                let mut begun = begun.lock().unwrap();
                *begun += 1;
                *begun
            };
            if place % AT_ONCE == 0 {
                world.advance(SECOND);
            }
            Ok(())
        };
        let failures = each_message(&world, &messages, time, max, work).now_or_never();
        let begun = *begun.lock().unwrap();
        (failures.expect("nothing to wait for").expect("each has an id").identifiers().len(), begun)
    }

    // T65
    #[test]
    fn a_batch_answer_names_each_record() {
        let of = |ids: &[Option<&str>]| BatchFailures::of(ids.iter().map(|id| id.map(str::to_owned)));
        assert_eq!(of(&[Some("b"), Some("a"), Some("b")]).expect("each has an id").identifiers(), ["a", "b"]);
        assert!(of(&[]).expect("nothing failed").identifiers().is_empty());
        for ids in [[Some("a"), None], [Some("a"), Some("")]] {
            assert!(of(&ids).is_err(), "{ids:?}");
        }
    }

    #[test]
    fn a_bare_list_of_records_is_a_batch_of_its_source() {
        let trigger = |records: serde_json::Value| {
            let event: Event = serde_json::from_value(records).unwrap();
            event.trigger("poll")
        };
        let of = |source: &str| json!([{ "new": 1 }, { "eventSource": source }]);
        assert!(matches!(trigger(of(QUEUE)), Ok(Trigger::Messages(records)) if records.len() == 2));
        assert!(matches!(trigger(of(TABLE)), Ok(Trigger::Stream(records)) if records.len() == 2));
        for other in [of("aws:kinesis"), json!([]), json!(["poll"]), json!([{ "job": "poll" }])] {
            assert!(trigger(other.clone()).is_err(), "{other}");
        }
    }

    // T8, T50
    #[test]
    fn a_function_begins_no_work_shortly_before_its_deadline() {
        let now = Timestamp::from_secs(1_800_000_000);
        let world = ManualWorld::at(now);
        let time = |deadline: Timestamp| {
            let mut context = Context::default();
            context.deadline = deadline.as_millis();
            super::time(&world, &context)
        };
        for (left, expected) in
            [(100, 50), (1_000, 500), (6_000, 3_000), (60_000, 57_000), (900_000, 897_000)]
        {
            let deadline = now.plus(Duration::from_millis(left));
            assert_eq!(time(deadline), Duration::from_millis(expected), "{left} ms");
        }
        let in_1972 = Timestamp::from_secs(63_072_000);
        for none in [Timestamp::from_millis(0), in_1972, now.minus(SECOND), now, now.plus(3_600 * SECOND)] {
            assert_eq!(time(none), 10 * SECOND, "{none:?}");
        }
    }

    // T50
    #[test]
    fn no_message_is_begun_that_may_outlast_the_function() {
        assert_eq!(batch(100, 60 * SECOND, 12 * SECOND), (0, 100));
        // After nine seconds too little is left of twenty; nine tens were begun by then.
        assert_eq!(batch(200, 20 * SECOND, 12 * SECOND), (90, 110));
        assert_eq!(batch(200, 20 * SECOND, 8 * SECOND), (70, 130));
        // A function that has less time than one message may take still does some of its work.
        assert_eq!(batch(100, 7 * SECOND, 24 * SECOND), (60, 40));
        assert_eq!(batch(20, SECOND, 24 * SECOND), (10, 10));
    }
}
