//! What triggers functions that no client calls: a stream, a queue, a schedule.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use lambda_runtime::{Context, Error};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    time::Timestamp,
    time_budget::plausible_deadline,
    world::{SystemWorld, World},
};

/// How long before its deadline a function stops to take up work: half of its time, where that is less.
const LAST_ORDERS: Duration = Duration::from_secs(3);

/// How long a function works whose deadline is not known.
const WITHOUT_DEADLINE: Duration = Duration::from_secs(10);

/// How many messages are worked on at once.
const AT_ONCE: usize = 10;

/// An event as Lambda hands it over. Records stay as they are: each is read by itself, so that one which cannot be read
/// holds no other up.
#[derive(Debug, Deserialize)]
pub struct Event {
    #[serde(rename = "Records", default)]
    records: Vec<Box<RawValue>>,
    #[serde(default)]
    job: Option<String>,
}

/// What triggered the function.
#[derive(Debug)]
pub enum Trigger {
    /// A schedule, with the name of its job.
    Job(String),
    /// A batch of messages of a queue.
    Messages(Vec<Box<RawValue>>),
    /// A batch of records of a table's stream.
    Stream(Vec<Box<RawValue>>),
}

impl From<Event> for Trigger {
    fn from(event: Event) -> Self {
        match (event.job, event.records.first()) {
            (Some(job), _) => Self::Job(job),
            (None, Some(first)) if is_message(first) => Self::Messages(event.records),
            (None, _) => Self::Stream(event.records),
        }
    }
}

fn is_message(record: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Source {
        #[serde(rename = "eventSource")]
        event_source: String,
    }
    serde_json::from_str(record.get()).is_ok_and(|source: Source| source.event_source == "aws:sqs")
}

/// Which records of a batch are to be delivered again
/// ([streams](https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html),
/// [queues](https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html)).
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchFailures {
    batch_item_failures: Vec<Failure>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    item_identifier: String,
}

impl FromIterator<String> for BatchFailures {
    /// Each record by its sequence number or message id; an empty one stands for the whole batch.
    fn from_iter<I: IntoIterator<Item = String>>(identifiers: I) -> Self {
        let failure = |item_identifier| Failure { item_identifier };
        Self { batch_item_failures: identifiers.into_iter().map(failure).collect() }
    }
}

impl BatchFailures {
    /// The identifiers of the records that failed.
    pub fn identifiers(&self) -> Vec<&str> {
        self.batch_item_failures.iter().map(|failure| &*failure.item_identifier).collect()
    }
}

/// Has `work` done for the body of each message. What fails is delivered again, and after some deliveries goes to the dead
/// letters.
pub async fn each_message(
    messages: &[Box<RawValue>],
    work: impl AsyncFn(&str) -> Result<(), Error>,
) -> BatchFailures {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Message {
        message_id: String,
        body: String,
    }
    let worked = stream::iter(messages).map(async |raw| {
        let Ok(message) = serde_json::from_str::<Message>(raw.get()) else {
            tracing::error!("a message has no id or no body");
            return Some(String::new());
        };
        let error = work(&message.body).await.err()?;
        let cause = error.source().map(ToString::to_string);
        tracing::error!(message = message.message_id, %error, cause, "a message failed: it is delivered again");
        Some(message.message_id)
    });
    let failed: Vec<_> = worked.buffer_unordered(AT_ONCE).filter_map(async |failed| failed).collect().await;
    failed.into_iter().collect()
}

/// For how long a function takes up work: until shortly before its deadline.
pub fn time(context: &Context) -> Duration {
    let now = SystemWorld.now();
    let deadline = plausible_deadline(Timestamp::from_millis(context.deadline), now);
    let Some(left) = deadline.map(|deadline| deadline.since(now)) else { return WITHOUT_DEADLINE };
    left - LAST_ORDERS.min(left / 2)
}
