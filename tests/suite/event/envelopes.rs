//! What services put around a message, and what they write into a queue of their own accord.

use axum::{body::Body, http::Request};
use lambda_idempotency::{
    Failure, Guard, MemoryStore, Operation,
    event::{BatchFunction, Consumer, Envelope, KeyFrom, Message},
};
use serde_json::{Value, json};

use super::{SHIP, fifo, parcel_that, queue, routes::shop_of, ships, tenant};
use crate::support::{
    envelopes::{bus, confirmation, object_created, s3, s3_record, sns},
    http::{Counter, PAY, guard_of, unkeyed},
    messages::{deliver, message, of_group},
};

use Envelope::{EventBridge, S3, Sns};

/// Counts its runs, whatever it is to do.
fn counting(consumer: Consumer, runs: &Counter) -> impl BatchFunction {
    let runs = runs.clone();
    let function = move |_, _: Value| {
        runs.add();
        async { Ok::<_, Failure>(()) }
    };
    consumer.each(memory(), function)
}

fn memory() -> Guard {
    Guard::new(MemoryStore::new(), Operation::new(SHIP), tenant())
}

/// How often these run, one after another, and the reasons of those that are dead.
async fn ran(envelopes: &[Envelope], key: KeyFrom, bodies: &[Value]) -> (usize, Vec<String>) {
    let (queue, runs) = (queue(), Counter::default());
    let consumer = Consumer::new(queue.clone(), key).envelopes(envelopes.iter().copied());
    let consumer = counting(consumer, &runs);
    for (n, body) in bodies.iter().enumerate() {
        let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        assert!(deliver(&consumer, &[message(&n.to_string(), body)]).await.expect("an answer").is_empty());
    }
    (runs.count(), queue.take_dead().into_iter().map(|dead| dead.reason).collect())
}

// T72: of events that differ, even by one part.
#[tokio::test]
async fn two_facts_are_never_one_in_any_envelope() {
    let of_s3 = |key: &str, sequencer: &str| bus("e-1", "aws.s3", &object_created(key, sequencer));
    let tagged = |request: &str, time: &str| {
        let mut detail = object_created("a", "");
        detail["object"].as_object_mut().expect("an object").remove("sequencer");
        detail["request-id"] = json!(request);
        let mut event = bus("e-1", "aws.s3", &detail);
        event["time"] = json!(time);
        event
    };
    let mut deleted = of_s3("a", "1");
    deleted["detail-type"] = json!("Object Deleted");
    let mut of_version = of_s3("a", "1");
    of_version["detail"]["object"]["version-id"] = json!("v-2");
    let differ = [
        of_s3("a", "1"),
        of_s3("a", "2"),
        of_s3("b", "1"),
        deleted,
        of_version,
        tagged("r-1", "2026-11-27T05:00:00Z"),
        tagged("r-2", "2026-11-27T05:00:00Z"),
        tagged("r-1", "2026-11-27T05:00:01Z"),
    ];
    assert_eq!(ran(&[EventBridge], KeyFrom::envelope(), &differ).await, (8, vec![]));
    let in_sns = ["1", "2", "1"].map(|sequencer| sns("sns-1", s3(&[s3_record("a", sequencer)])));
    assert_eq!(ran(&[Sns, S3], KeyFrom::envelope(), &in_sns).await, (2, vec![]));
}

// Of what S3's own id does not tell apart, the publication is the id: better twice than never.
#[tokio::test]
async fn an_event_without_an_own_id_has_that_of_its_publication() {
    let trail = json!({ "eventSource": "s3.amazonaws.com", "eventName": "PutObject", "requestParameters": { "key": "a" } });
    let mut moved = object_created("a", "");
    moved["request-id"] = json!("");
    let of_trail = "AWS API Call via CloudTrail";
    for (source, kind, detail) in [
        ("shop", "order.sent", &json!({ "id": "o-1" })),
        ("aws.s3", of_trail, &trail),
        ("aws.s3", "Object Created", &moved),
    ] {
        let twice = ["e-1", "e-2", "e-1"].map(|id| {
            let mut event = bus(id, source, detail);
            event["detail-type"] = kind.into();
            event
        });
        assert_eq!(ran(&[EventBridge], KeyFrom::envelope(), &twice).await, (2, vec![]), "{detail}");
    }
    // Of an object's event that cannot be read, that would be twice too.
    let mut unread = object_created("a", "1");
    unread["object"]["sequencer"] = json!(5);
    let reasons = vec!["the detail is not an object's, as S3 writes it".to_owned(); 2];
    let twice = ["e-1", "e-2"].map(|id| bus(id, "aws.s3", &unread));
    assert_eq!(ran(&[EventBridge], KeyFrom::envelope(), &twice).await, (0, reasons));
}

// With raw message delivery, SNS wraps these as ever: then nothing else in the queue has an envelope.
#[tokio::test]
async fn a_confirmation_of_sns_is_dead_and_says_what_to_do() {
    let nests: [&[Envelope]; 4] = [&[], &[Sns], &[Sns, S3], &[EventBridge]];
    for kind in ["SubscriptionConfirmation", "UnsubscribeConfirmation"] {
        for envelopes in nests {
            for key in [KeyFrom::content(), KeyFrom::body("/MessageId"), KeyFrom::body("/Records/0/id")] {
                let (runs, reasons) = ran(envelopes, key, &[confirmation(kind)]).await;
                assert_eq!((runs, reasons.len()), (0, 1), "{kind} in {envelopes:?}");
                assert!(
                    reasons[0].contains(kind) && reasons[0].contains("its Token or its SubscribeURL"),
                    "{}",
                    reasons[0]
                );
            }
        }
        let forwarded = sns("sns-1", confirmation(kind));
        let (runs, reasons) = ran(&[Sns, Sns], KeyFrom::envelope(), &[forwarded]).await;
        assert!(runs == 0 && reasons[0].contains(kind), "{reasons:?}");
    }
    let (queue, runs) = (queue(), Counter::default());
    let consumer = Consumer::new(queue.clone(), KeyFrom::envelope()).envelopes([Sns]);
    let as_text = |message: &Message| {
        Ok::<Request<Body>, _>(unkeyed().body(message.body.clone().into()).expect("a request"))
    };
    let consumer = consumer.route(shop_of(guard_of(MemoryStore::new(), Operation::new(PAY)), &runs), as_text);
    let confirmations = [message("m-1", confirmation("SubscriptionConfirmation"))];
    assert!(deliver(&consumer, &confirmations).await.expect("an answer").is_empty());
    let dead = queue.take_dead();
    assert!(dead[0].reason.contains("SubscriptionConfirmation") && runs.count() == 0, "{}", dead[0].reason);
    let published = [message("m-1", sns("sns-1", json!({ "does": "ships" })))];
    assert!(deliver(&consumer, &published).await.expect("an answer").is_empty());
    assert_eq!((runs.count(), queue.take_dead().len()), (1, 0));
}

// One that speaks of confirmations is a message.
#[tokio::test]
async fn a_message_that_only_resembles_a_confirmation_runs() {
    let bodies = [
        json!({ "id": "p-1", "Type": "SubscriptionConfirmation" }),
        json!({ "id": "p-2", "note": "SubscriptionConfirmation" }),
        json!({ "id": "p-3", "Type": "OrderConfirmation", "Token": "t", "TopicArn": "a" }),
    ];
    assert_eq!(ran(&[], KeyFrom::body("/id"), &bodies).await, (3, vec![]));
    let in_sns = bodies.map(|body| sns("sns-1", body));
    assert_eq!(ran(&[Sns], KeyFrom::body("/id"), &in_sns).await, (3, vec![]));
}

#[tokio::test]
async fn a_notification_of_several_records_or_of_none_is_dead() {
    let reason = vec!["the notification of S3 does not have one record".to_owned()];
    let (a, b) = (s3_record("a", "1"), s3_record("b", "2"));
    for records in [vec![], vec![a.clone(), b], vec![a.clone(), a.clone()], vec![a; 1_000]] {
        let notification = s3(&records);
        let wrapped = sns("sns-1", &notification);
        for key in [KeyFrom::envelope(), KeyFrom::content(), KeyFrom::body("/s3/object/key")] {
            assert_eq!(
                ran(&[S3], key.clone(), std::slice::from_ref(&notification)).await,
                (0, reason.clone())
            );
            assert_eq!(ran(&[Sns, S3], key, std::slice::from_ref(&wrapped)).await, (0, reason.clone()));
        }
    }
}

// Each is dead, and none ends the process.
#[tokio::test]
async fn what_is_no_envelope_is_dead_whatever_it_is() {
    let no_text = |message: Value| {
        let mut notification = sns("sns-1", "");
        notification["Message"] = message;
        notification
    };
    let without = |mut value: Value, member: &str| {
        value.as_object_mut().expect("an object").remove(member);
        value
    };
    let replaced = |text: Value, from: &str, to: &str| {
        let text = text.to_string();
        assert!(text.contains(from), "{text}");
        json!(text.replacen(from, to, 1))
    };
    let detail = json!({ "id": "o-1" });
    let deep = |open: &str| json!(open.repeat(300_000));
    let cases: [(&[Envelope], &str, Vec<Value>); 3] = [
        (
            &[Sns],
            "the body is not a notification of SNS",
            vec![
                json!(""),
                json!("tea"),
                json!([]),
                no_text(json!({ "id": "o-1" })),
                no_text(Value::Null),
                no_text(json!(17)),
                without(sns("sns-1", "{}"), "Message"),
                without(sns("sns-1", "{}"), "MessageId"),
                without(sns("sns-1", "{}"), "Type"),
                replaced(sns("sns-1", "{}"), r#""MessageId""#, r#""MessageId":"sns-0","MessageId""#),
                replaced(sns("sns-1", "{}"), r#""Message""#, r#""Mess\u0061ge":"[]","Message""#),
                replaced(sns("sns-1", "{}"), r#""Type":"Notification""#, r#""Type":"Other""#),
                bus("e-1", "shop", &detail),
                deep("["),
                deep(r#"{"Message":"#),
            ],
        ),
        (
            &[EventBridge],
            "the body is not an event of EventBridge",
            vec![
                json!("\u{0}"),
                without(bus("e-1", "shop", &detail), "id"),
                without(bus("e-1", "shop", &detail), "source"),
                without(bus("e-1", "shop", &detail), "detail"),
                replaced(bus("e-1", "shop", &detail), r#""source""#, r#""source":"other","source""#),
                deep(r#"{"detail":"#),
                sns("sns-1", &detail),
            ],
        ),
        (
            &[Sns, S3],
            "the body is not a notification of S3",
            vec![
                sns("sns-1", "tea"),
                sns("sns-1", json!({ "Records": "a" })),
                sns("sns-1", s3(&[json!(17)])),
                sns("sns-1", s3(&[without(s3_record("a", "1"), "s3")])),
                sns("sns-1", s3(&[without(s3_record("a", "1"), "eventName")])),
                sns("sns-1", bus("e-1", "aws.s3", &object_created("a", "1"))),
                sns("sns-1", "[".repeat(300_000)),
            ],
        ),
    ];
    for (envelopes, reason, bodies) in cases {
        for body in bodies {
            let (runs, reasons) = ran(envelopes, KeyFrom::content(), std::slice::from_ref(&body)).await;
            assert_eq!((runs, &*reasons), (0, &[reason.to_owned()][..]), "{envelopes:?}");
        }
    }
    // In its envelope: what is deeper than a function reads, and what is large.
    let deep = format!(r#"{{"id":{}"o-1"{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let event = bus("e-1", "shop", &json!("here")).to_string().replace("\"here\"", &deep);
    let (runs, reasons) = ran(&[EventBridge], KeyFrom::envelope(), &[json!(event)]).await;
    assert!(runs == 0 && reasons[0].contains("not what the function takes"), "{reasons:?}");
    let large = json!({ "id": "o-1", "note": "\u{1F600}\u{0}\"".repeat(100_000) });
    assert_eq!(ran(&[Sns], KeyFrom::body("/id"), &[sns("sns-1", large)]).await, (1, vec![]));
}

// As SNS writes them: bytes in base64, and lists as text.
#[tokio::test]
async fn attributes_of_a_notification_are_those_of_its_message() {
    let (queue, runs) = (queue(), Counter::default());
    let mut notification = sns("sns-1", "{}");
    notification["MessageAttributes"] = json!({
        "shop": { "Type": "String", "Value": "tea" },
        "photo": { "Type": "Binary", "Value": "aGk=" },
        "many": { "Type": "String.Array", "Value": "[\"a\"]" },
        "none": { "Type": "String", "Value": null }
    });
    let tenant = |message: &Message| {
        assert_eq!(message.attributes["shop"], "tea");
        assert_eq!(message.binary_attributes["photo"], b"hi");
        assert_eq!((message.attributes.len(), message.binary_attributes.len()), (2, 1));
        Some(tenant())
    };
    let consumer = Consumer::new(queue.clone(), KeyFrom::attribute("shop")).envelopes([Sns]);
    let counted = runs.clone();
    let function = move |_, _: Value| {
        counted.add();
        async { Ok::<_, Failure>(()) }
    };
    let consumer = consumer.each_of_tenants(tenant, memory(), function);
    assert!(deliver(&consumer, &[message("m-1", &notification)]).await.expect("an answer").is_empty());
    assert_eq!((runs.count(), queue.take_dead().len()), (1, 0));
    notification["MessageAttributes"]["photo"]["Value"] = json!("no base64!");
    assert!(deliver(&consumer, &[message("m-2", &notification)]).await.expect("an answer").is_empty());
    assert_eq!(queue.take_dead()[0].reason, "a binary attribute of the notification is not base64");
}

// T66: what is dead in its envelope leaves the group; what is handed back holds it up.
#[tokio::test]
async fn a_group_keeps_its_order_in_envelopes() {
    let (queue, runs) = (fifo(), Counter::default());
    let consumer = Consumer::new(queue.clone(), KeyFrom::envelope()).envelopes([Sns, EventBridge]);
    let consumer = consumer.each(memory(), ships(&runs));
    let nested = |group: &str, id: &str, does: &str| {
        let event = bus(&format!("e-{id}"), "shop", &parcel_that(id, does));
        of_group(group, id, sns(&format!("sns-{id}"), event))
    };
    let messages = [
        nested("a", "a-1", "ships"),
        of_group("a", "a-2", confirmation("SubscriptionConfirmation")),
        of_group("a", "a-3", sns("sns-3", "no event")),
        nested("a", "a-4", "nothing"),
        nested("b", "b-1", "ships"),
        of_group("a", "a-5", sns("sns-5", "no event")),
        nested("a", "a-6", "ships"),
    ];
    assert_eq!(deliver(&consumer, &messages).await.expect("an answer"), ["a-4", "a-5", "a-6"]);
    let dead: Vec<_> = queue.take_dead().into_iter().map(|dead| (dead.id, dead.group)).collect();
    let of_a = |id: &str| (Some(id.to_owned()), Some("a".to_owned()));
    assert_eq!((runs.count(), dead), (3, vec![of_a("a-2"), of_a("a-3")]));
}
