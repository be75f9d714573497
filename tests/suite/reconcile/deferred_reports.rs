//! The queue of deferred reports: what fails is tried for days, and how late it is can be seen.

use std::time::{Duration, SystemTime};

use lambda_idempotency::{telemetry::DEFERRED_AGE, time::Timestamp};
use serde_json::{Value, json};

use crate::support::{
    embedded, function::Function, payments_api::TestProvider, sample::Sample, tables::ledger_table,
};

/// A report for a version of the function that knows its operation.
const NOT_YET: &str = r#"{"version":1,"kind":"deferred_report","key":"acme#of-tomorrow#k","item":{}}"#;

/// A batch of the queue with one message, which was sent that long ago.
fn batch(queue: &str, body: &str, receives: u32, ago: Duration) -> Value {
    let sent = Timestamp::from(SystemTime::now()).minus(ago).as_millis().to_string();
    json!({ "Records": [{
        "messageId": "m-1",
        "receiptHandle": "r-1",
        "body": body,
        "attributes": { "ApproximateReceiveCount": receives.to_string(), "SentTimestamp": sent },
        "eventSource": "aws:sqs",
        "eventSourceARN": format!("arn:aws:sqs:eu-central-1:123456789012:{queue}"),
    }] })
}

async fn reconcile() -> (Sample, Function) {
    let provider = TestProvider::start().await;
    let sample = Sample::new(&ledger_table(embedded::endpoint()).await, &provider.url).await;
    let reconcile = sample.start("reconcile", &[]).await;
    (sample, reconcile)
}

fn failed(answer: &Value) -> usize {
    answer["batchItemFailures"].as_array().expect("a list").len()
}

// T54: a report may be the only trace of an effect.
#[tokio::test]
async fn a_deferred_report_that_fails_is_tried_later_each_time() {
    let (sample, mut reconcile) = reconcile().await;
    for (receives, seconds) in [(1, 1..=1), (4, 6..=8), (50, 675..=900), (399, 675..=900)] {
        let before = sample.queues.calls().len();
        let answer = reconcile.invoke(&batch("deferred-reports", NOT_YET, receives, Duration::ZERO)).await;
        assert_eq!(failed(&answer.unwrap()), 1);
        let [call] = &sample.queues.calls()[before..] else { panic!("it is hidden once") };
        assert!(call["QueueUrl"].as_str().unwrap().ends_with("/deferred-reports"), "{call}");
        let entry = &call["Entries"][0];
        assert_eq!(entry["ReceiptHandle"], "r-1");
        assert!(seconds.contains(&entry["VisibilityTimeout"].as_i64().unwrap()), "{receives}: {entry}");
    }
    // Its queue hides a question, and buries it after five receives.
    let before = sample.queues.calls().len();
    let answer = reconcile.invoke(&batch("reconcile", NOT_YET, 4, Duration::ZERO)).await;
    assert_eq!((failed(&answer.unwrap()), sample.queues.calls().len()), (1, before));
}

// T57: SQS's own metric leaves out what was received three times.
#[tokio::test]
async fn the_age_of_a_deferred_report_is_a_metric_at_each_receive() {
    let (_sample, mut reconcile) = reconcile().await;
    for receives in [1, 300] {
        let before = reconcile.documents().len();
        let hour = Duration::from_secs(3600);
        reconcile.invoke(&batch("deferred-reports", NOT_YET, receives, hour)).await.unwrap();
        let [document] = &reconcile.documents()[before..] else { panic!("one document") };
        assert_eq!(document.dimensions, json!([[]]));
        let (ages, unit) = &document.metrics[DEFERRED_AGE];
        let age = ages[0].as_f64().expect("a number");
        assert!((3600.0..3660.0).contains(&age), "{age} s");
        assert_eq!(unit.as_deref(), Some("Seconds"));
    }
    // A question may wait on purpose.
    let before = reconcile.documents().len();
    reconcile.invoke(&batch("reconcile", NOT_YET, 1, Duration::ZERO)).await.unwrap();
    let written = &reconcile.documents()[before..];
    assert!(written.iter().all(|document| !document.metrics.contains_key(DEFERRED_AGE)), "{written:?}");
}

// T36
#[tokio::test]
async fn an_unreadable_deferred_report_is_a_dead_letter_at_once() {
    let (sample, mut reconcile) = reconcile().await;
    let body = r#"{"version":9,"kind":"deferred_report"}"#;
    let answer = reconcile.invoke(&batch("deferred-reports", body, 1, Duration::ZERO)).await.unwrap();
    assert_eq!(failed(&answer), 0);
    let calls = sample.queues.calls();
    let [buried] = &calls[..] else { panic!("{calls:?}") };
    assert!(buried["QueueUrl"].as_str().unwrap().ends_with("/deferred-reports-dead-letters"), "{buried}");
    assert_eq!(buried["MessageBody"], body);
}
