//! Batches as other senders write them: EventBridge Pipes, emulators, AWS's own examples.

use lambda_http::LambdaEvent;
use lambda_idempotency::{
    Guard, MemoryStore, Operation,
    event::{Consumer, KeyFrom},
};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{SHIP, fifo, parcel, parcel_that, queue, ships, tenant};
use crate::support::{
    http::Counter,
    messages::{deliver, message, of_group},
};

fn memory() -> Guard {
    Guard::new(MemoryStore::new(), Operation::new(SHIP), tenant())
}

// T65, T66
#[tokio::test]
async fn a_bare_list_of_records_is_a_batch() {
    let (queue, runs) = (fifo(), Counter::default());
    let consumer = Consumer::new(queue.clone(), KeyFrom::body("/id")).each(memory(), ships(&runs));
    let list = json!([
        of_group("a", "a-1", parcel("a-1")),
        of_group("a", "a-2", parcel_that("a-2", "nothing")),
        of_group("b", "b-1", parcel_that("b-1", "refuses")),
        of_group("a", "a-3", parcel("a-3")),
    ]);
    let hand_over = async |event: Value| {
        // As the runtime reads it, with white space.
        let event = serde_json::from_str(&format!("\n {event}")).expect("an event");
        consumer.clone().oneshot(LambdaEvent::new(event, Default::default())).await
    };
    let answer = hand_over(list).await.expect("an answer");
    let failures = json!({ "batchItemFailures": [{ "itemIdentifier": "a-2" }, { "itemIdentifier": "a-3" }] });
    assert_eq!(serde_json::to_value(answer).expect("JSON"), failures);
    assert_eq!((runs.count(), queue.take_dead().len()), (3, 1));
    assert!(hand_over(json!([])).await.expect("an answer").identifiers().is_empty());
    for (event, reason) in [
        (json!(["tea"]), "unknown source"),
        (json!([[]]), "unknown source"),
        (json!("tea"), "not an object with Records"),
        (json!({ "Records": { "0": {} } }), "not a list"),
        (json!({ "Records": null }), "not"),
    ] {
        let refused = hand_over(event).await.expect_err("it is no batch").to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}

/// A message with this in place of some members, or without them (null).
fn with(id: &str, members: Value) -> Value {
    let mut message = message(id, parcel(id));
    let Value::Object(members) = members else { panic!("{members}") };
    message.as_object_mut().expect("an object").extend(members);
    message
}

fn without(id: &str, member: &str) -> Value {
    let mut message = message(id, parcel(id));
    message.as_object_mut().expect("an object").remove(member).expect("a member");
    message
}

#[tokio::test]
async fn members_that_are_missing_null_or_unknown_change_nothing() {
    let attribute = |value: Value| json!({ "messageAttributes": { "a": value } });
    let messages = [
        without("m-1", "attributes"),
        without("m-2", "messageAttributes"),
        without("m-3", "md5OfBody"),
        without("m-4", "awsRegion"),
        without("m-5", "receiptHandle"),
        with(
            "m-6",
            json!({ "attributes": null, "messageAttributes": null, "md5OfBody": null, "awsRegion": null }),
        ),
        with("m-7", json!({ "receiptHandle": null })),
        with("m-8", json!({ "md5OfMessageAttributes": "0", "new": { "a": [1] } })),
        with("m-9", json!({ "attributes": { "AWSTraceHeader": null, "SequenceNumber": null, "new": "a" } })),
        with("m-10", attribute(Value::Null)),
        with("m-11", attribute(json!({}))),
        with("m-12", attribute(json!({ "stringValue": "a", "dataType": null }))),
        with(
            "m-13",
            attribute(
                json!({ "stringValue": "a", "binaryValue": null, "stringListValues": null, "binaryListValues": null, "dataType": "String" }),
            ),
        ),
        with(
            "m-14",
            attribute(
                json!({ "stringValue": null, "binaryValue": "MTEwMA==", "stringListValues": ["abc", "123"], "binaryListValues": ["MA=="], "dataType": "Binary" }),
            ),
        ),
        with(
            "m-15",
            attribute(
                json!({ "stringValue": "1", "binaryListValues": ["no base64!"], "dataType": "Number", "new": 1 }),
            ),
        ),
        with("m-16", attribute(json!({ "binaryValue": null, "stringValue": null }))),
    ];
    let (queue, runs) = (queue(), Counter::default());
    let consumer = Consumer::new(queue.clone(), KeyFrom::body("/id")).each(memory(), ships(&runs));
    assert!(deliver(&consumer, &messages).await.expect("an answer").is_empty());
    let dead = queue.take_dead();
    assert!(dead.is_empty(), "{:?}", dead.iter().map(|dead| (&dead.id, &dead.reason)).collect::<Vec<_>>());
    assert_eq!(runs.count(), messages.len());
}

// What is of another type could be a key.
#[tokio::test]
async fn members_of_another_type_are_dead_letters() {
    let attribute = |value: Value| json!({ "messageAttributes": { "a": value } });
    let others = [
        json!({ "body": 17 }),
        json!({ "body": { "id": "p-1" } }),
        json!({ "attributes": [] }),
        json!({ "attributes": { "MessageDeduplicationId": 17 } }),
        attribute(json!("tea")),
        attribute(json!({ "stringValue": 17 })),
        attribute(json!({ "binaryValue": "no base64!" })),
        attribute(json!({ "binaryValue": [1] })),
    ];
    for members in others {
        let (queue, runs) = (queue(), Counter::default());
        let consumer = Consumer::new(queue.clone(), KeyFrom::body("/id")).each(memory(), ships(&runs));
        let messages = [with("m-1", members.clone())];
        assert!(deliver(&consumer, &messages).await.expect("an answer").is_empty());
        let dead = queue.take_dead();
        assert_eq!(dead[0].reason, "the message is not as SQS writes it", "{members}");
        assert_eq!(runs.count(), 0);
        // All that can be read of it is in the letter: a pipe deletes the message.
        match &members["body"] {
            Value::Null => assert_eq!(dead[0].body, parcel("m-1").to_string(), "{members}"),
            body => assert_eq!(dead[0].body, body.to_string()),
        }
    }
    let (queue, runs) = (queue(), Counter::default());
    let consumer = Consumer::new(queue.clone(), KeyFrom::attribute("id")).each(memory(), ships(&runs));
    let members = json!({ "messageAttributes": { "id": { "stringValue": "p-1" }, "a": "tea" } });
    assert!(deliver(&consumer, &[with("m-1", members)]).await.expect("an answer").is_empty());
    let dead = queue.take_dead();
    assert_eq!((dead[0].attributes["id"].as_str(), dead[0].attributes.len()), ("p-1", 1));
}
