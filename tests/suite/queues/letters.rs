//! Parked records in a queue of somebody else's SQS.

use std::time::{Duration, SystemTime};

use lambda_idempotency::{
    Execution, Failure, Operation,
    event::{Consumer, InvocationSource, KeyFrom, SourceKind, StreamSource},
    telemetry::MESSAGE_CUT,
    time::Timestamp,
    world::{SystemWorld, World},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::sqs::{bodies, guard};
use crate::{
    support::{
        messages::{deliver_within, hand_over},
        sqs::{Sqs, attribute},
        streams::{record, sequence},
    },
    telemetry::metrics::counts,
};

/// A record of this stream, with this much in it.
fn parcel_of(stream: &str, number: u32, says: usize) -> Value {
    let body = json!({ "id": number.to_string(), "says": "x".repeat(says) });
    let mut record = record(number, &number.to_string(), body, now());
    record["eventSourceARN"] = json!(format!("arn:aws:kinesis:us-east-2:123456789012:stream/{stream}"));
    record
}

async fn refuses(_: Execution, _: Value) -> Result<(), Failure> {
    Err(Failure::permanent("no such address"))
}

fn now() -> Timestamp {
    SystemWorld.now()
}

// T84: what the queue does not take is cut, which is counted, and never lost without a word.
#[tokio::test]
async fn a_letter_that_is_too_long_is_cut_and_counted() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parked", 60).await;
    let stream = format!("parcels-{}", Uuid::new_v4());
    assert!(counts(&stream).is_empty());
    let source = StreamSource::new(&sqs.config(), SourceKind::Kinesis, &*stream, &*queue.dead_letters);
    let consumer = Consumer::new(source, KeyFrom::body("/id"));
    let consumer = consumer.each(guard(Operation::new("ship")), refuses);
    // The second is longer than the emulator takes, the third than any queue of SQS.
    let batch = [10, 300_000, 900_000].map(|says| parcel_of(&stream, u32::try_from(says).unwrap(), says));
    let time = Duration::from_secs(30);
    assert!(deliver_within(&consumer, &batch, SystemTime::now(), time).await.expect("an answer").is_empty());
    let mut letters = queue.take_dead_letters().await;
    letters.sort_by_key(|letter| attribute(letter, "idempotency-message-id").map(str::to_owned));
    let long = &bodies(&letters)[1..];
    assert_eq!(
        serde_json::from_str::<Value>(&bodies(&letters)[0]).unwrap(),
        json!({ "parked": true, "Records": [batch[0]] })
    );
    assert!(long.iter().all(|body| body.len() == 10_000) && long.len() == 2);
    for letter in &letters {
        assert_eq!(attribute(letter, "idempotency-reason"), Some("no such address"));
    }
    let of_last = attribute(&letters[2], "idempotency-message-id").unwrap_or_default();
    assert!(of_last.ends_with(&sequence(900_000)), "{of_last}: where it is");
    assert_eq!(counts(&stream).remove(MESSAGE_CUT), Some(2));
}

// What Lambda invokes directly is kept nowhere: it goes to the on-failure destination, whole.
#[tokio::test]
async fn a_direct_event_too_long_for_a_letter_is_an_error() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parked", 60).await;
    let source = InvocationSource::new(&sqs.config(), "ship", &*queue.dead_letters);
    let consumer = Consumer::new(source, KeyFrom::body("/id")).each(guard(Operation::new("ship")), refuses);
    let time = Duration::from_secs(3);
    for (says, is_parked) in [(10, true), (300_000, false)] {
        let event = json!({ "id": says.to_string(), "says": "x".repeat(says) });
        let ended = hand_over(&consumer, event.clone(), SystemTime::now(), time).await;
        assert_eq!(
            (ended.is_ok(), bodies(&queue.take_dead_letters().await).len()),
            (is_parked, usize::from(is_parked))
        );
    }
}
