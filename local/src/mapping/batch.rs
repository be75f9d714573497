//! Delivers one batch of a stream, until each of its records is done or in the dead-letter queue.
//!
//! 1. A batch that fails is retried, from the first failed record if the function names it.
//! 2. A batch that fails twice is halved. That isolates a bad record, so that it does not delay the others for long.
//! 3. A single record is retried until it is too old, however often it fails. Then it goes to the dead-letter queue as in Lambda: by its
//!    place in the stream, without its content.

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
    /// A record that fails when it is older goes to the dead-letter queue.
    pub max_age: Duration,
    pub function: Arc<Function>,
    /// The URL of the queue that gets the records which keep failing, and a client. Without it, they are dropped.
    pub dead_letters: Option<String>,
    pub sqs: aws_sdk_sqs::Client,
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
        if records.len() == 1 && records[0].age() > stream.max_age {
            let dead_letter = dead_letter(stream, shard, request_id, (failures, error), &records[0]);
            bury(stream, &dead_letter.to_string()).await;
            continue;
        }
        time::sleep(backoff(failures)).await;
        if records.len() > 1 && failures >= HALVED_AFTER {
            let rest = records.split_off(records.len() / 2);
            parts.push((rest, 0));
            failures = 0;
        }
        parts.push((records, failures));
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
        return warn(&stream.function, "a stream record is dropped: its mapping has no destination");
    };
    loop {
        let send = stream.sqs.send_message().queue_url(url);
        match send.message_body(dead_letter).send().await {
            Ok(_) => return warn(&stream.function, "a stream record went to the dead-letter queue"),
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
    request_id: Uuid,
    (failures, error): (u32, Option<&str>),
    record: &Record,
) -> Value {
    let time = |time: aws_smithy_types::DateTime| time.fmt(Format::DateTime).unwrap_or_default();
    let arrived = record.created.map(time);
    let name = stream.function.definition.name;
    json!({
        "requestContext": {
            "requestId": request_id.to_string(),
            "functionArn": format!("arn:aws:lambda:{}:123456789012:function:{name}", stream.region),
            "condition": "RecordAgeExceeded",
            "approximateInvokeCount": failures,
        },
        "responseContext": { "statusCode": 200, "executedVersion": "$LATEST", "functionError": error },
        "version": "1.0",
        "timestamp": time(SystemTime::now().into()),
        "DDBStreamBatchInfo": {
            "shardId": shard,
            "startSequenceNumber": record.sequence_number,
            "endSequenceNumber": record.sequence_number,
            "approximateArrivalOfFirstRecord": arrived,
            "approximateArrivalOfLastRecord": arrived,
            "batchSize": 1,
            "streamArn": stream.arn,
        },
    })
}
