//! Keys that two readers could read differently, and mistakes that a function does not start with.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use lambda_idempotency::{
    Execution, Failure, Guard, MemoryStore, Operation,
    event::{Consumer, Envelope, KeyFrom, invocation},
    key::{age::KeyTime, signature::Secrets},
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{
    SHIP, consumer, fifo, guard,
    keys::{text, with_attribute},
    parcel_that, queue, record_key, ships, tenant,
};
use crate::support::{
    guarded::Guarded,
    http::Counter,
    messages::{deliver, message, of_group},
    on_each_store,
};

async fn nothing(_: Execution, _: Value) -> Result<(), Failure> {
    Ok(())
}

// As floats, these two would be one key.
#[apply(on_each_store)]
async fn large_numbers_that_differ_are_different_keys(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    let numbers =
        ["9007199254740993", "9007199254740992", "18446744073709551615", "-9223372036854775808", "0"];
    for number in numbers {
        let body = format!(r#"{{"id":{number},"does":"ships"}}"#);
        assert!(deliver(&consumer, &[message("m-1", body)]).await.expect("an answer").is_empty());
        assert!(guarded.record(&record_key(&[number])).await.is_some(), "{number}");
    }
    assert_eq!((runs.count(), queue.take_dead().len()), (numbers.len(), 0));
}

#[apply(on_each_store)]
async fn a_key_that_readers_could_read_differently_is_none(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let at_id = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    let numbers = ["18446744073709551616", "-9223372036854775809", "1.0", "1e3", "1E400", "-0.0"];
    let numbers = numbers.map(|number| format!(r#"{{"id":{number},"does":"ships"}}"#));
    let others = [
        r#"{"id":"p-1","does":"ships","id":"p-2"}"#,
        r#"{"id":"p-1","does":"ships","i\u0064":"p-2"}"#,
        r#"{"id":"p-1","does":"ships"} {"id":"p-2"}"#,
        r#"{"id":["p-1"],"does":"ships"}"#,
        r#"{"id":true,"does":"ships"}"#,
    ];
    let bodies: Vec<_> = numbers.into_iter().chain(others.map(str::to_owned)).collect();
    for body in &bodies {
        assert!(deliver(&at_id, &[message("m-1", body)]).await.expect("an answer").is_empty());
        let dead = queue.take_dead();
        assert_eq!(dead.len(), 1, "{body}");
        assert!(!dead[0].reason.contains("p-1"), "{}", dead[0].reason);
    }
    let deep = Consumer::new(queue.clone(), KeyFrom::body("/order/id")).each(guard(&guarded), ships(&runs));
    let twice = r#"{"order":{"id":"p-1"},"order":{"id":"p-2"}}"#;
    assert!(deliver(&deep, &[message("m-1", twice)]).await.expect("an answer").is_empty());
    let reasons: Vec<_> = queue.take_dead().into_iter().map(|dead| dead.reason).collect();
    assert_eq!(reasons, ["the message's body has two keys, or none that can be read"]);
    assert_eq!((runs.count(), guarded.number_of_items().await), (0, 0));
}

#[tokio::test]
async fn a_message_with_two_keys_that_differ_is_dead() {
    let (queue, runs) = (queue(), Counter::default());
    let from = KeyFrom::first([KeyFrom::attribute("key"), KeyFrom::body("/id")]);
    let consumer = Consumer::new(queue.clone(), from).each(memory(), ships(&runs));
    let differs = with_attribute(message("m-1", json!({ "id": "k-2" })), "key", text("k-1"));
    let neither = message("m-2", "{}");
    let wrong = with_attribute(message("m-3", json!({ "id": true })), "key", text("k-3"));
    assert!(deliver(&consumer, &[differs, neither, wrong]).await.expect("an answer").is_empty());
    let reasons: Vec<_> = queue.take_dead().into_iter().map(|dead| dead.reason).collect();
    let expected = [
        "the message has two keys that differ",
        "the message has no attribute key for its key; the message's body has no key at /id",
        "the key at /id is neither a text nor a whole number",
    ];
    assert_eq!((reasons, runs.count()), (expected.map(str::to_owned).to_vec(), 0));
}

/// What a function says that does not start.
fn refuses_to_start<T>(start: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(start()))).expect_err("a panic");
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("a message")
}

fn memory() -> Guard {
    Guard::new(MemoryStore::new(), Operation::new(SHIP), tenant())
}

#[test]
fn a_consumer_with_a_mistake_does_not_start() {
    let of = |key: KeyFrom| Consumer::new(queue(), key);
    let deep = || KeyFrom::all([KeyFrom::body("/a"), KeyFrom::all([KeyFrom::envelope()])]);
    let hour = Duration::from_secs(3600);
    let secrets = Secrets::parse("a-secret-that-both-sides-share-and-keep").expect("secrets");
    let signed = Operation::new(SHIP).refuse_older_than(hour, KeyTime::Signed(secrets));
    let s3 = aws_sdk_s3::Config::builder().behavior_version(aws_sdk_s3::config::BehaviorVersion::latest());
    let client = aws_sdk_s3::Client::from_conf(s3.build());
    let mistakes = [
        ("at_once(0)", refuses_to_start(|| of(KeyFrom::body("/id")).at_once(0))),
        ("max_attempts(0)", refuses_to_start(|| of(KeyFrom::body("/id")).max_attempts(0))),
        ("orderId", refuses_to_start(|| KeyFrom::body("orderId"))),
        ("KeyFrom::body(\"\")", refuses_to_start(|| KeyFrom::body(""))),
        ("/a~2", refuses_to_start(|| KeyFrom::body("/a~2"))),
        ("at least one part", refuses_to_start(|| KeyFrom::all([]))),
        ("Consumer::envelopes", refuses_to_start(|| of(KeyFrom::envelope()).each(memory(), nothing))),
        ("Consumer::envelopes", refuses_to_start(|| of(deep()).each(memory(), nothing))),
        (".fifo", refuses_to_start(|| of(KeyFrom::deduplication_id()).each(memory(), nothing))),
        ("for requests", refuses_to_start(|| of(KeyFrom::header("Idempotency-Key")).each(memory(), nothing))),
        (
            "for requests",
            refuses_to_start(|| {
                of(KeyFrom::first([KeyFrom::body("/id"), KeyFrom::query("a")])).each(memory(), nothing)
            }),
        ),
        ("attribute(\"key\")", refuses_to_start(|| invocation(memory(), KeyFrom::attribute("key"), nothing))),
        ("envelope", refuses_to_start(|| invocation(memory(), KeyFrom::envelope(), nothing))),
        (".fifo", refuses_to_start(|| invocation(memory(), KeyFrom::deduplication_id(), nothing))),
        ("innermost", refuses_to_start(|| of(KeyFrom::envelope()).envelopes([Envelope::S3, Envelope::Sns]))),
        (
            "Envelope::EventBridge alone",
            refuses_to_start(|| of(KeyFrom::envelope()).envelopes([Envelope::EventBridge, Envelope::S3])),
        ),
        (
            "attribute(\"key\")",
            refuses_to_start(|| {
                of(KeyFrom::attribute("key")).envelopes([Envelope::Sns, Envelope::S3]).each(memory(), nothing)
            }),
        ),
        ("without a bucket", refuses_to_start(|| of(KeyFrom::content()).payloads_in(client, [""; 0]))),
        ("KeyTime::Signed", refuses_to_start(|| Guard::new(MemoryStore::new(), signed, tenant()))),
    ];
    for (expected, message) in &mistakes {
        assert!(message.contains(expected), "{expected}: {message}");
    }
    // The same keys where there are such messages.
    drop(of(deep()).envelopes([Envelope::Sns]).each(memory(), nothing));
    drop(Consumer::new(fifo(), KeyFrom::deduplication_id()).each(memory(), nothing));
    drop(of(KeyFrom::attribute("key")).each(memory(), nothing));
}

// Sent back from the dead letters, it has another deduplication id of the queue's: a new key would run it again.
#[apply(on_each_store)]
async fn a_buried_message_that_comes_back_has_its_key(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, fifo(), Counter::default());
    let consumer = Consumer::new(queue.clone(), KeyFrom::deduplication_id()).world(guarded.clock.clone());
    let consumer = consumer.each(guard(&guarded), ships(&runs));
    let body = parcel_that("p-1", "refuses");
    let mut next = of_group("g", "m-1", &body);
    let mut ids = HashSet::new();
    for id in ["m-2", "m-3", "m-4"] {
        assert!(ids.insert(next["attributes"]["MessageDeduplicationId"].clone()));
        assert!(deliver(&consumer, &[next]).await.expect("an answer").is_empty());
        let dead = queue.take_dead();
        let [dead] = &dead[..] else { panic!("{dead:?}") };
        assert_eq!(dead.deduplication_id.as_deref(), Some("d-m-1"));
        assert_eq!((&*dead.reason, dead.group.as_deref()), ("no such address", Some("g")));
        assert!(!dead.attributes.contains_key("idempotency-deduplication-id"), "{:?}", dead.attributes);
        next = of_group("g", id, &dead.body);
        let first = json!({ "stringValue": dead.deduplication_id, "dataType": "String", "stringListValues": [], "binaryListValues": [] });
        next["messageAttributes"]["idempotency-deduplication-id"] = first;
    }
    assert_eq!((runs.count(), guarded.number_of_items().await), (1, 1));
    assert!(guarded.record(&record_key(&["d-m-1"])).await.is_some());
}
