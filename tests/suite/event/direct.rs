//! What Lambda invokes a function with directly, as a consumer takes it.

use std::sync::{Arc, Mutex};

use base64::{Engine, prelude::BASE64_STANDARD};
use lambda_idempotency::{
    Execution, Failure,
    event::{Consumer, Envelope, KeyFrom, Shards, SourceKind},
};
use serde_json::{Value, json};

use super::{
    parcel, parcel_that,
    streams::{START, Stream},
};
use crate::support::{
    envelopes::{bus, s3, s3_record},
    streams::{bytes, gzip},
};

fn direct() -> Stream {
    Stream::of(SourceKind::Invocation)
}

/// What SNS invokes a function with, with the members that AWS documents (<https://docs.aws.amazon.com/lambda/latest/dg/with-sns.html>).
fn notified(id: &str, message: impl ToString) -> Value {
    json!({ "Records": [{
        "EventVersion": "1.0",
        "EventSubscriptionArn": "arn:aws:sns:us-east-1:123456789012:parcels:21be56ed-a058-49f5-8c98-aedd2564c486",
        "EventSource": "aws:sns",
        "Sns": {
            "SignatureVersion": "1",
            "Timestamp": "2019-01-02T12:45:07.000Z",
            "Signature": "tcc6faL2yUC6dgZdmrwh1Y4cGa/ebXEkAi6RibDsvpi+tE/1+82j",
            "SigningCertUrl": "https://sns.us-east-1.amazonaws.com/SimpleNotificationService.pem",
            "MessageId": id,
            "Message": message.to_string(),
            "MessageAttributes": { "shop": { "Type": "String", "Value": "tea" } },
            "Type": "Notification",
            "UnsubscribeUrl": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
            "TopicArn": "arn:aws:sns:us-east-1:123456789012:parcels",
            "Subject": "TestInvoke"
        }
    }] })
}

/// As the function itself gets a batch of log events.
fn packed(batch: &Value) -> Value {
    json!({ "awslogs": { "data": BASE64_STANDARD.encode(gzip(batch.to_string().as_bytes())) } })
}

fn log_events(ids: &[&str]) -> Value {
    json!({
        "messageType": "DATA_MESSAGE",
        "owner": "123456789012",
        "logGroup": "testLogGroup",
        "logStream": "testLogStream",
        "subscriptionFilters": ["testFilter"],
        "logEvents": ids.iter().map(|id| json!({ "id": id, "timestamp": 1_440_442_987_000_u64, "message": "m" })).collect::<Vec<_>>()
    })
}

// T3: an asynchronous event comes again though it succeeded.
#[tokio::test(start_paused = true)]
async fn an_event_that_comes_three_times_has_one_effect() {
    let stream = direct();
    let consumer = stream.each();
    for _ in 0..3 {
        assert_eq!(stream.hand_over(&consumer, parcel("1")).await.expect("success"), [""; 0]);
    }
    assert_eq!(stream.take_runs(), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_retry_may_mend_is_an_error_to_lambda() {
    let stream = direct();
    let consumer = stream.each();
    let failed = stream.hand_over(&consumer, parcel_that("1", "fails")).await.unwrap_err().to_string();
    assert!(failed.contains("must come again"), "{failed}");
    assert!(stream.source.take_dead().is_empty());
    assert_eq!(stream.take_runs(), ["1"]);
}

// T84
#[tokio::test(start_paused = true)]
async fn everything_else_is_settled_or_parked() {
    let stream = direct();
    let consumer = stream.each();
    for (event, why) in [
        (parcel_that("1", "refuses"), "no such address"),
        (parcel_that("2", "nothing"), "it was tried 5 times: no connection"),
        (json!({ "does": "ships" }), "the message's body has no key at /id"),
        (json!("tea"), "the message's body has no key at /id"),
        (Value::Null, "the message's body has no key at /id"),
    ] {
        assert_eq!(stream.hand_over(&consumer, event.clone()).await.expect("it is parked"), [""; 0]);
        let parked = stream.parked();
        assert_eq!(parked.reason, why);
        // As it came: invoked with it, the function runs it once more.
        assert_eq!(serde_json::from_str::<Value>(&parked.body).expect("JSON"), event);
    }
}

#[tokio::test(start_paused = true)]
async fn a_notification_of_sns_runs_without_a_queue() {
    let stream = direct();
    let consumer = stream.consumer().envelopes([Envelope::Sns]).each(stream.guard(), stream.ships());
    assert_eq!(stream.hand_over(&consumer, notified("m-1", parcel("1"))).await.expect("success"), [""; 0]);
    let mut two = notified("m-2", parcel("2"));
    two["Records"].as_array_mut().expect("a list").push(notified("m-3", parcel("3"))["Records"][0].clone());
    for (event, why) in [
        (two, "the event of SNS has several records"),
        (json!({ "Records": [] }), "the body is not a notification of SNS"),
        (json!({ "Records": [{ "Sns": {} }] }), "the body is not a notification of SNS"),
        (parcel("4"), "the body is not a notification of SNS"),
    ] {
        assert_eq!(stream.hand_over(&consumer, event).await.expect("it is parked"), [""; 0]);
        assert_eq!(stream.parked().reason, why);
    }
    assert_eq!(stream.take_runs(), ["1"]);
    let keyed = Consumer::new(stream.source.clone(), KeyFrom::attribute("shop")).envelopes([Envelope::Sns]);
    let keyed = keyed.world(stream.world()).each(stream.guard(), stream.ships());
    for id in ["m-5", "m-6"] {
        assert_eq!(stream.hand_over(&keyed, notified(id, parcel("5"))).await.expect("success"), [""; 0]);
    }
    assert_eq!(stream.take_runs(), ["5"]);
}

#[tokio::test(start_paused = true)]
async fn events_of_a_bus_and_of_buckets_run_without_a_queue() {
    let stream = direct();
    let of_bus = stream.consumer().envelopes([Envelope::EventBridge]).each(stream.guard(), stream.ships());
    let event = bus("e-1", "shop.parcels", &parcel("1"));
    assert_eq!(stream.hand_over(&of_bus, event).await.expect("success"), [""; 0]);
    let runs = stream.runs();
    for envelopes in [vec![Envelope::S3], vec![Envelope::Sns, Envelope::S3]] {
        let key = Consumer::new(stream.source.clone(), KeyFrom::envelope()).envelopes(envelopes.clone());
        let runs = runs.clone();
        let consumer = key.each(stream.guard(), move |_: Execution, record: Value| {
            runs.lock().unwrap().push(record["s3"]["object"]["key"].as_str().unwrap_or("?").to_owned());
            async { Ok::<_, Failure>(()) }
        });
        let body = s3(&[s3_record("a", "1")]);
        let event = if envelopes.len() == 1 { body } else { notified("m-1", body) };
        assert_eq!(stream.hand_over(&consumer, event).await.expect("success"), [""; 0]);
    }
    // By whichever way, it is one fact.
    assert_eq!(stream.take_runs(), ["1", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_logs_is_opened_in_a_stream_and_without() {
    let runs = Arc::new(Mutex::new(Vec::new()));
    for stream in [direct(), Stream::of(SourceKind::Kinesis(Shards::default()))] {
        let consumer = Consumer::new(stream.source.clone(), KeyFrom::envelope());
        let seen = runs.clone();
        let consumer = consumer.envelopes([Envelope::CloudWatchLogs]);
        let consumer = consumer.each(stream.guard(), move |_: Execution, batch: Value| {
            seen.lock().unwrap().push(batch["logEvents"].as_array().map_or(0, Vec::len));
            async { Ok::<_, Failure>(()) }
        });
        let control = json!({ "messageType": "CONTROL_MESSAGE", "owner": "CloudwatchLogs", "logGroup": "", "logStream": "",
            "subscriptionFilters": [], "logEvents": [{ "id": "", "timestamp": 1, "message": "CWL CONTROL MESSAGE" }] });
        let events = [
            &log_events(&["1", "2"]),
            &log_events(&["1", "2"]),
            &log_events(&["1"]),
            &control,
            &log_events(&[]),
            &json!({}),
        ];
        for (number, batch) in (1..).zip(events) {
            let event = match stream.is_direct() {
                true => packed(batch),
                false => {
                    json!({ "Records": [bytes(number, "k", &gzip(batch.to_string().as_bytes()), START)] })
                }
            };
            assert_eq!(stream.hand_over(&consumer, event).await.expect("success"), [""; 0]);
        }
        assert_eq!(std::mem::take(&mut *runs.lock().unwrap()), [2, 1]);
        let reasons: Vec<_> = stream.source.take_dead().into_iter().map(|dead| dead.reason).collect();
        assert_eq!(reasons, ["the body is no batch of CloudWatch Logs"; 2]);
    }
    let direct = direct();
    let consumer =
        Consumer::new(direct.source.clone(), KeyFrom::envelope()).envelopes([Envelope::CloudWatchLogs]);
    let consumer = consumer.each(direct.guard(), async |_: Execution, _: Value| Ok::<_, Failure>(()));
    let bomb = BASE64_STANDARD.encode(gzip(&vec![b' '; 8 * 1024 * 1024 + 1]));
    for (data, why) in [("?", "not base64"), ("eyJ9", "no valid gzip"), (&*bomb, "longer than 8 MiB")] {
        let event = json!({ "awslogs": { "data": data } });
        assert_eq!(direct.hand_over(&consumer, event).await.expect("it is parked"), [""; 0]);
        let reason = direct.parked().reason;
        assert!(reason.contains(why), "{reason}");
    }
}

#[test]
fn an_invocation_has_a_body_alone() {
    let starts = |key: KeyFrom| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let stream = direct();
            let consumer = Consumer::new(stream.source.clone(), key);
            drop(consumer.each(stream.guard(), async |_: Execution, _: Value| Ok::<_, Failure>(())));
        }))
        .is_ok()
    };
    assert!(starts(KeyFrom::body("/id")));
    for key in
        [KeyFrom::record_id(), KeyFrom::attribute("key"), KeyFrom::deduplication_id(), KeyFrom::envelope()]
    {
        assert!(!starts(key.clone()), "{key:?}");
    }
}
