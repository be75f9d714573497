//! Records of a topic: what runs, what is parked, and what the mapping is answered.

use lambda_idempotency::{
    Execution, Failure, Guard, MemoryStore, Operation,
    event::{Answers, Consumer, KeyFrom, Message, Shards, SourceKind},
    key::Tenant,
};
use serde_json::{Value, json};

use super::{
    SHIP, parcel, parcel_that,
    streams::{HOUR, START, Stream},
    tenant,
};
use crate::support::{
    messages::message,
    streams::{STREAM, batch_of_topic, of_topic},
};

fn partial() -> Stream {
    Stream::of(SourceKind::Kafka(Answers::Partial, Shards::default()))
}

/// A record with this parcel and this key.
fn record(partition: u32, offset: u32, key: &str, body: &Value) -> Value {
    of_topic(partition, offset, Some(key), Some(body.to_string().as_bytes()), START)
}

#[tokio::test(start_paused = true)]
async fn each_partition_names_what_must_come_again() {
    let stream = partial();
    let consumer = stream.consumer().max_attempts(100).each(stream.guard(), stream.ships());
    let batch = batch_of_topic(&[
        record(0, 15, "a", &parcel_that("1", "nothing")),
        record(0, 16, "a", &parcel("2")),
        record(0, 17, "b", &parcel("3")),
        // The same key in another partition has no order with it.
        record(1, 15, "a", &parcel("4")),
        record(1, 16, "c", &parcel_that("5", "fails")),
    ]);
    let back = stream.hand_over(&consumer, batch).await.expect("an answer");
    assert_eq!(back, ["parcels-0@15", "parcels-0@16", "parcels-1@16"]);
    let mut runs = stream.take_runs();
    runs.sort();
    runs.dedup();
    assert_eq!(runs, ["1", "3", "4", "5"]);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_answered_as_a_partition_and_an_offset() {
    use lambda_http::{Context, LambdaEvent};
    use lambda_idempotency::lambda::Event;
    use tower::ServiceExt;

    let stream = partial();
    let batch = batch_of_topic(&[record(0, 15, "a", &parcel_that("1", "fails"))]);
    let event: Event = serde_json::from_value(batch).expect("an event");
    // Without a deadline there is no time to wait.
    let answer = stream.each().oneshot(LambdaEvent::new(event, Context::default())).await.expect("an answer");
    let expected =
        json!({ "batchItemFailures": [{ "itemIdentifier": { "partition": "parcels-0", "offset": 15 } }] });
    assert_eq!(serde_json::to_value(answer).expect("JSON"), expected);
}

// A mapping without partial answers takes each answer for a success.
#[tokio::test(start_paused = true)]
async fn without_partial_answers_a_failure_brings_all_again() {
    let stream = Stream::of(SourceKind::Kafka(Answers::Whole, Shards::default()));
    let consumer = stream.each();
    let batch = batch_of_topic(&[
        record(0, 1, "a", &parcel("1")),
        record(0, 2, "b", &parcel_that("2", "fails")),
        record(0, 3, "c", &parcel_that("3", "refuses")),
    ]);
    let failed = stream.hand_over(&consumer, batch).await.unwrap_err().to_string();
    assert!(failed.contains("1 of its messages must come again"), "{failed}");
    assert_eq!(stream.parked().reason, "no such address");
    let done =
        batch_of_topic(&[record(0, 1, "a", &parcel("1")), record(0, 3, "c", &parcel_that("3", "refuses"))]);
    assert_eq!(stream.hand_over(&consumer, done).await.expect("success"), [""; 0]);
    assert_eq!(stream.take_runs(), ["1", "2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn a_partition_in_one_lane_stops_at_its_first_failure() {
    let stream = Stream::of(SourceKind::Kafka(Answers::Partial, Shards::default().lane_by_shard()));
    let batch = batch_of_topic(&[
        record(0, 1, "a", &parcel_that("1", "fails")),
        record(0, 2, "b", &parcel("2")),
        record(1, 1, "c", &parcel("3")),
    ]);
    let back = stream.hand_over(&stream.each(), batch).await.expect("an answer");
    assert_eq!(
        (back, stream.take_runs().contains(&"2".to_owned())),
        (vec!["parcels-0@1".to_owned(), "parcels-0@2".to_owned()], false)
    );
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_is_null_and_has_a_place() {
    let stream = partial();
    let consumer = Consumer::new(stream.source.clone(), KeyFrom::record_id());
    let runs = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = runs.clone();
    let consumer = consumer.each(stream.guard(), move |_: Execution, parcel: Option<Value>| {
        seen.lock().unwrap().push(parcel);
        async { Ok::<_, Failure>(()) }
    });
    let mut missing = of_topic(0, 2, Some("b"), None, START);
    missing.as_object_mut().expect("an object").remove("value");
    let mut batch = vec![of_topic(0, 1, Some("a"), None, START), missing];
    // The topic is made once more: the same place, another time.
    batch.push(of_topic(0, 1, Some("a"), Some(b"{}"), START.plus(HOUR)));
    for _ in 0..2 {
        assert_eq!(stream.hand_over(&consumer, batch_of_topic(&batch)).await.expect("an answer"), [""; 0]);
    }
    assert_eq!(runs.lock().unwrap().iter().filter(|run| run.is_none()).count(), 2);
    assert_eq!(runs.lock().unwrap().len(), 3);
    assert!(stream.source.take_dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn headers_are_text_or_bytes_with_or_without_a_sign() {
    let stream = partial();
    let consumer = Consumer::new(stream.source.clone(), KeyFrom::attribute("key"));
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let messages = seen.clone();
    let of = move |message: &Message| {
        messages.lock().unwrap().push((message.attributes.clone(), message.binary_attributes.clone()));
        Some(tenant())
    };
    let consumer = consumer.each_of_tenants(of, stream.guard(), stream.ships());
    let with = |offset: u32, headers: Value| {
        let mut record = record(0, offset, &offset.to_string(), &parcel("1"));
        record["headers"] = headers;
        record
    };
    let batch = [
        // The last one counts.
        with(
            1,
            json!([{ "key": [49] }, { "key": [50] }, { "name": [-61, -97] }, { "photo": [255, -2] }, { "none": null }]),
        ),
        with(2, json!([{ "key": [300] }])),
        with(3, json!({ "key": [49] })),
        with(4, json!([{ "key": [49] }, { "key": null }])),
        with(5, Value::Null),
    ];
    assert_eq!(stream.hand_over(&consumer, batch_of_topic(&batch)).await.expect("an answer"), [""; 0]);
    let (text, binary) = seen.lock().unwrap()[0].clone();
    assert_eq!((text["key"].as_str(), text["name"].as_str(), &*binary["photo"]), ("2", "ß", &[255, 254][..]));
    assert_eq!((text.len(), binary.len()), (2, 1));
    let mut reasons: Vec<_> = stream.source.take_dead().into_iter().map(|dead| dead.reason).collect();
    reasons.sort();
    let (unusable, keyless) =
        ("the record is not as Kafka's mapping writes it", "the message has no attribute key for its key");
    assert_eq!(reasons, [keyless, keyless, unusable, unusable]);
    assert_eq!(stream.take_runs().len(), 1);
}

// T84
#[tokio::test(start_paused = true)]
async fn a_letter_of_a_topic_runs_its_record() {
    let stream = partial();
    let poison = record(3, 7, "a", &parcel_that("1", "nothing"));
    let batch = batch_of_topic(&[poison.clone(), record(3, 8, "a", &parcel("2"))]);
    let consumer = stream.each();
    assert_eq!(stream.hand_over(&consumer, batch).await.expect("an answer"), [""; 0]);
    let parked = stream.parked();
    assert_eq!(
        (parked.id.as_deref(), &*parked.reason),
        (Some("parcels-3@7"), "it was tried 5 times: no connection")
    );
    // A queue takes ten attributes, and headers may be more: they are in the record.
    assert!(parked.attributes.is_empty() && parked.group.is_none());
    let letter: Value = serde_json::from_str(&parked.body).expect("an event");
    assert_eq!(letter["parked"], true);
    assert_eq!(letter["records"], json!({ "parcels-3": [poison] }));
    assert_eq!(stream.hand_over(&consumer, letter).await.expect("an answer"), [""; 0]);
    assert_eq!(stream.parked().reason, "it was tried 6 times: no connection");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_record_of_the_topic_is_said_or_parked() {
    let stream = partial();
    let consumer = stream.each();
    let mut foreign = record(0, 1, "a", &parcel("1"));
    foreign["topic"] = json!("others");
    let long_key = "k".repeat(4096);
    let batch = batch_of_topic(&[
        foreign.clone(),
        record(0, 2, &long_key, &parcel("2")),
        of_topic(0, 3, Some("b"), Some(&[0xff]), START),
        of_topic(0, 4, None, Some(b""), START),
        of_topic(0, 5, None, Some(parcel("5").to_string().as_bytes()), START),
    ]);
    assert_eq!(stream.hand_over(&consumer, batch).await.expect("an answer"), ["others-0@1"]);
    let mut runs = stream.take_runs();
    runs.sort();
    assert_eq!(runs, ["2", "5"]);
    assert_eq!(stream.source.take_dead().len(), 2);
    let refused = stream.hand_over(&consumer, batch_of_topic(&[foreign])).await.unwrap_err().to_string();
    assert!(refused.contains("others") && refused.contains(&format!("topic {STREAM}")), "{refused}");
    for event in [
        json!({ "Records": [message("m-1", parcel("1"))] }),
        json!({ "eventSource": "aws:mq", "records": {} }),
        json!({ "eventSource": "aws:kafka", "records": [] }),
        json!({ "eventSource": "aws:kafka", "records": { "parcels-0": {} } }),
        json!([]),
        Value::Null,
    ] {
        assert!(stream.hand_over(&consumer, event.clone()).await.is_err(), "{event}");
    }
    // A record that says nothing of itself is from no topic, and has no id.
    let nameless =
        json!({ "eventSource": "aws:kafka", "records": { "parcels-0": [null, 5, {}, parcel("1")] } });
    assert!(stream.hand_over(&consumer, nameless).await.is_err());
    assert_eq!(stream.take_runs(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_topic_is_parked_once_it_is_old() {
    let stream = partial();
    let of_age = |offset: u32, hours: u32| {
        let body = parcel_that(&offset.to_string(), "fails").to_string();
        of_topic(0, offset, Some(&offset.to_string()), Some(body.as_bytes()), START.minus(hours * HOUR))
    };
    // The producer's clock is ahead.
    let mut early = of_age(3, 0);
    early["timestamp"] = json!(START.plus(9 * HOUR).as_millis());
    let batch = batch_of_topic(&[of_age(1, 5), of_age(2, 6), early]);
    let back = stream.hand_over(&stream.each(), batch).await.expect("an answer");
    assert_eq!(back, ["parcels-0@1", "parcels-0@3"]);
    assert_eq!(stream.parked().id.as_deref(), Some("parcels-0@2"));
}

// Two lists of one partition are more than its mapping writes. Nothing of them is lost.
#[tokio::test(start_paused = true)]
async fn a_partition_that_is_named_twice_loses_nothing() {
    let stream = partial();
    let text = format!(
        r#"{{"eventSource":"SelfManagedKafka","records":{{"parcels-0":[{}],"parcels-0":[{}]}}}}"#,
        record(0, 1, "a", &parcel("1")),
        record(0, 2, "a", &parcel("2"))
    );
    let event = serde_json::value::RawValue::from_string(text).expect("JSON");
    let event = serde_json::from_str(event.get()).expect("an event");
    let now = std::time::UNIX_EPOCH + std::time::Duration::from_millis(START.as_millis());
    let back = crate::support::messages::hand_over_event(
        &stream.each(),
        event,
        now,
        std::time::Duration::from_secs(30),
    )
    .await;
    assert_eq!(back.expect("an answer"), [""; 0]);
    assert_eq!(stream.take_runs(), ["1", "2"]);
}

#[test]
fn a_topic_has_attributes_and_places() {
    let starts = |key: KeyFrom| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let guard = Guard::new(MemoryStore::new(), Operation::new(SHIP), Tenant::parse("acme").unwrap());
            let consumer = Consumer::new(partial().source, key);
            drop(consumer.each(guard, async |_: Execution, _: Value| Ok::<_, Failure>(())));
        }))
        .is_ok()
    };
    assert!(starts(KeyFrom::attribute("key")) && starts(KeyFrom::record_id()));
    assert!(!starts(KeyFrom::deduplication_id()));
}
