//! Delivers one batch of a stream, until each of its records is done or in the dead-letter queue.
//!
//! 1. A batch that fails is retried, from the first failed record if the function names it.
//! 2. A batch that fails twice is halved, if its mapping says so. That isolates a bad record, so that it does not delay the others for long.
//! 3. What has no retry left, or is too old when it fails, goes to the dead-letter queue as in Lambda: by its place in the stream, without
//!    its content.

use super::{Failure, Reports, invoke, record::Record, warn};
use crate::{changes::Changes, functions::Function};
use aws_sdk_dynamodbstreams::Client;
use aws_smithy_types::date_time::Format;
use lambda_idempotency::telemetry::error_chain;
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::time;
use uuid::Uuid;

/// Failures after which a batch is halved.
const HALVED_AFTER: u32 = 2;
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// A stream, and the destinations of its records.
pub struct Stream {
    pub client: Client,
    /// Changes of the tables; `None` if they are changed elsewhere too.
    pub changes: Option<Changes>,
    pub arn: String,
    pub region: String,
    /// Records that match none of them are not delivered. None: all are.
    pub filters: Vec<Value>,
    pub reports: Reports,
    /// How long records are gathered before they make a batch.
    pub window: Duration,
    pub policy: RetryPolicy,
    pub function: Arc<Function>,
    /// The URL of the queue that gets the records which keep failing, and a client. Without it, they are dropped.
    pub dead_letters: Option<String>,
    pub sqs: aws_sdk_sqs::Client,
}

/// When a batch that fails is halved, and when it goes to the dead-letter queue.
pub struct RetryPolicy {
    /// Whether it is halved.
    pub bisects: bool,
    /// `None`: there is no limit.
    pub max_retries: Option<u32>,
    pub max_age: Duration,
}

/// What becomes of a batch that failed.
#[derive(Debug, PartialEq)]
enum AfterFailure {
    Again,
    Halved,
    /// So many of its records are dropped, for this reason.
    Dropped(usize, &'static str),
}

impl RetryPolicy {
    /// What becomes of records of these ages after so many failures.
    fn after(&self, failures: u32, ages: &[Duration]) -> AfterFailure {
        let is_over = self.max_retries.is_some_and(|most| failures > most);
        if self.bisects && ages.len() > 1 {
            return if failures >= HALVED_AFTER || is_over {
                AfterFailure::Halved
            } else {
                AfterFailure::Again
            };
        }
        // Only what is in front: the checkpoint passes all before it.
        let old = ages.iter().take_while(|age| **age > self.max_age).count();
        match (is_over, old) {
            (true, _) => AfterFailure::Dropped(ages.len(), "RetryAttemptsExhausted"),
            (false, 0) => AfterFailure::Again,
            (false, old) => AfterFailure::Dropped(old, "RecordAgeExceeded"),
        }
    }
}

/// Delivers the batch to the function, in order.
pub async fn deliver(stream: &Stream, shard: &str, batch: Vec<Record>) {
    // A stack: the last part is delivered next.
    let mut parts = vec![(batch, 0)];
    while let Some((mut records, mut failures)) = parts.pop() {
        let request_id = Uuid::new_v4();
        let mut error = None;
        let reason = match run(stream, request_id, &records).await {
            Ok(None) => continue,
            Ok(Some(0)) => "the function reports its first record as failed".to_owned(),
            Ok(Some(lowest)) => {
                records.drain(..lowest);
                failures = 0;
                "the function reports a record as failed".to_owned()
            }
            Err(Failure::Throttled) => {
                time::sleep(FIRST_BACKOFF).await;
                parts.push((records, failures));
                continue;
            }
            Err(Failure::Failed(reason)) => {
                error = Some("Unhandled");
                reason
            }
        };
        failures += 1;
        warn(&stream.function, &format!("a batch of {} stream records failed: {reason}", records.len()));
        let ages: Vec<_> = records.iter().map(Record::age).collect();
        match stream.policy.after(failures, &ages) {
            AfterFailure::Dropped(count, condition) => {
                let dropped: Vec<_> = records.drain(..count).collect();
                let invoked = (request_id, condition, failures, error);
                bury(stream, &dead_letter(stream, shard, invoked, &dropped).to_string()).await;
            }
            AfterFailure::Again => time::sleep(backoff(failures)).await,
            AfterFailure::Halved => {
                time::sleep(backoff(failures)).await;
                parts.push((records.split_off(records.len() / 2), 0));
                failures = 0;
            }
        }
        if !records.is_empty() {
            parts.push((records, failures));
        }
    }
}

/// How long a batch waits after this many failures.
fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(failures - 1)).min(MAX_BACKOFF)
}

/// Invokes the function, and returns the place of the first record that failed, if one did.
async fn run(stream: &Stream, request_id: Uuid, records: &[Record]) -> Result<Option<usize>, Failure> {
    let events: Vec<_> = records.iter().map(|record| &*record.event).collect();
    let ids: Vec<_> = records.iter().map(|record| &*record.sequence_number).collect();
    let event = format!("{{\"Records\":[{}]}}", events.join(","));
    Ok(invoke(&stream.function, request_id, event, &ids, &stream.reports).await?.first().copied())
}

async fn bury(stream: &Stream, dead_letter: &str) {
    let Some(url) = &stream.dead_letters else {
        return warn(&stream.function, "stream records are dropped: their mapping has no destination");
    };
    loop {
        let send = stream.sqs.send_message().queue_url(url);
        match send.message_body(dead_letter).send().await {
            Ok(_) => return warn(&stream.function, "stream records went to the dead-letter queue"),
            Err(error) => {
                warn(&stream.function, &format!("dead-letter queue: {}", error_chain(&error)));
            }
        }
        time::sleep(FIRST_BACKOFF).await;
    }
}

fn dead_letter(
    stream: &Stream,
    shard: &str,
    (request_id, condition, failures, error): (Uuid, &str, u32, Option<&str>),
    records: &[Record],
) -> Value {
    let time = |time: aws_smithy_types::DateTime| time.fmt(Format::DateTime).unwrap_or_default();
    let (first, last) = (records.first(), records.last());
    let number = |record: Option<&Record>| record.map(|record| record.sequence_number.clone());
    let arrived = |record: Option<&Record>| record.and_then(|record| record.created).map(time);
    let name = stream.function.definition.name;
    json!({
        "requestContext": {
            "requestId": request_id.to_string(),
            "functionArn": format!("arn:aws:lambda:{}:123456789012:function:{name}", stream.region),
            "condition": condition,
            "approximateInvokeCount": failures,
        },
        "responseContext": { "statusCode": 200, "executedVersion": "$LATEST", "functionError": error },
        "version": "1.0",
        "timestamp": time(SystemTime::now().into()),
        "DDBStreamBatchInfo": {
            "shardId": shard,
            "startSequenceNumber": number(first),
            "endSequenceNumber": number(last),
            "approximateArrivalOfFirstRecord": arrived(first),
            "approximateArrivalOfLastRecord": arrived(last),
            "batchSize": records.len(),
            "streamArn": stream.arn,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const OLD: Duration = Duration::from_secs(7_200);
    const YOUNG: Duration = Duration::from_secs(1);

    #[test]
    fn a_mapping_that_bisects_drops_only_records_that_are_alone() {
        let policy = RetryPolicy { bisects: true, max_retries: Some(5), max_age: HOUR };
        let after = [1, 2, 6].map(|failures| policy.after(failures, &[OLD, YOUNG]));
        assert_eq!(after, [AfterFailure::Again, AfterFailure::Halved, AfterFailure::Halved]);
        assert_eq!(policy.after(1, &[OLD]), AfterFailure::Dropped(1, "RecordAgeExceeded"));
        assert_eq!(policy.after(6, &[YOUNG]), AfterFailure::Dropped(1, "RetryAttemptsExhausted"));
        // It has no retry: it is halved before the first record would be dropped.
        assert_eq!(
            RetryPolicy { max_retries: Some(0), ..policy }.after(1, &[YOUNG, YOUNG]),
            AfterFailure::Halved
        );
    }

    #[test]
    fn a_mapping_that_does_not_bisect_drops_a_batch_whole() {
        let policy = RetryPolicy { bisects: false, max_retries: Some(1), max_age: HOUR };
        assert_eq!(policy.after(1, &[YOUNG, OLD]), AfterFailure::Again);
        assert_eq!(policy.after(1, &[OLD, YOUNG, OLD]), AfterFailure::Dropped(1, "RecordAgeExceeded"));
        assert_eq!(policy.after(2, &[YOUNG, YOUNG]), AfterFailure::Dropped(2, "RetryAttemptsExhausted"));
        let endless = RetryPolicy { max_retries: None, ..policy };
        assert_eq!(endless.after(1_000, &[YOUNG, YOUNG]), AfterFailure::Again);
    }
}
