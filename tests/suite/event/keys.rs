//! Where keys come from, what is around messages, and messages that cannot be used.

use futures_util::FutureExt;
use lambda_idempotency::{
    Failure,
    event::{Consumer, Envelope, KeyFrom, Message},
    key::{RecordKey, Tenant},
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{QUEUE, consumer, fifo, guard, parcel, queue, record_key, ships};
use crate::support::{
    envelopes::{bus, object_created, s3, s3_record, s3_test, sns},
    guarded::Guarded,
    http::Counter,
    messages::{deliver, message, of_group},
    on_each_store,
};

async fn run(guarded: &Guarded, consumer: Consumer, messages: &[Value]) -> usize {
    let runs = Counter::default();
    let counted = runs.clone();
    let function = move |_, _: Value| {
        counted.add();
        async { Ok::<_, Failure>(()) }
    };
    assert!(deliver(&consumer.each(guard(guarded), function), messages).await.expect("an answer").is_empty());
    runs.count()
}

pub fn with_attribute(mut message: Value, name: &str, value: Value) -> Value {
    message["messageAttributes"][name] = value;
    message
}

pub fn text(value: &str) -> Value {
    json!({ "stringValue": value, "dataType": "String", "stringListValues": [], "binaryListValues": [] })
}

#[apply(on_each_store)]
async fn a_key_comes_from_where_its_consumer_says(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let either = || KeyFrom::first([KeyFrom::attribute("key"), KeyFrom::body("/id")]);
    let cases: [(KeyFrom, Value, &[&str]); 10] = [
        (either(), with_attribute(message("m", "{}"), "key", text("e-1")), &["e-1"]),
        (either(), message("m", json!({ "id": "e-2" })), &["e-2"]),
        (either(), with_attribute(message("m", json!({ "id": "e-3" })), "key", text("e-3")), &["e-3"]),
        (KeyFrom::body("/order/id"), message("m", json!({ "order": { "id": "o-1" } })), &["o-1"]),
        (KeyFrom::body("/a~1b"), message("m", json!({ "a/b": 17 })), &["17"]),
        (KeyFrom::attribute("key"), with_attribute(message("m", "{}"), "key", text("k-1")), &["k-1"]),
        (KeyFrom::deduplication_id(), of_group("g", "m", "{}"), &["d-m"]),
        (
            KeyFrom::all([KeyFrom::body("/shop"), KeyFrom::body("/number")]),
            message("m", json!({ "shop": "tea", "number": 1 })),
            &["tea", "1"],
        ),
        (
            KeyFrom::cloud_event(),
            message("m", json!({ "specversion": "1.0", "source": "/shop", "id": "e-1", "type": "order" })),
            &["/shop", "e-1"],
        ),
        (KeyFrom::body("/long"), message("m", json!({ "long": "x".repeat(300) })), &[&"x".repeat(300)]),
    ];
    for (from, message, key) in cases {
        let source = if message["attributes"]["MessageGroupId"].is_null() { queue() } else { fifo() };
        let consumer = Consumer::new(source, from.clone());
        assert_eq!(run(&guarded, consumer, &[message]).await, 1, "{from:?}");
        let record = guarded.record(&record_key(key)).await;
        assert!(record.is_some_and(|record| record.state.name() == "completed"), "{from:?}");
    }
}

// A hash tells the operator who looks for a customer's order nothing.
#[apply(on_each_store)]
async fn a_record_names_what_its_key_is_a_hash_of(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let parts = KeyFrom::all([KeyFrom::body("/shop"), KeyFrom::body("/number")]);
    let (long, hostile) = ("x".repeat(300), "a\",\"b\u{202e}\r\n");
    for (shop, origin) in [
        ("tea", format!(r#"queue {QUEUE} ["tea","7"]"#)),
        (hostile, format!(r#"queue {QUEUE} ["a\",\"b\u202e\r\n","7"]"#)),
        (&long, format!("queue {QUEUE} [\"{long}")[..120].to_owned()),
    ] {
        let message = message("m", json!({ "shop": shop, "number": 7 }));
        assert_eq!(run(&guarded, Consumer::new(queue(), parts.clone()), &[message]).await, 1);
        let record = guarded.record(&record_key(&[shop, "7"])).await.expect("a record");
        assert_eq!(record.origin.expect("an origin").as_str(), origin);
    }
    let message = message("m", json!({ "shop": "tea" }));
    assert_eq!(run(&guarded, Consumer::new(queue(), KeyFrom::body("/shop")), &[message]).await, 1);
    let record = guarded.record(&record_key(&["tea"])).await.expect("a record");
    assert_eq!(record.origin.expect("an origin").as_str(), format!("queue {QUEUE}"));
}

#[apply(on_each_store)]
async fn a_key_of_the_content_ignores_how_json_is_written(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let consumer = Consumer::new(queue(), KeyFrom::content());
    let bodies = [r#"{"a":1,"b":2}"#, r#"{ "b": 2, "a": 1.0 }"#, r#"{"a":1,"b":3}"#];
    let messages: Vec<_> =
        bodies.iter().enumerate().map(|(n, body)| message(&format!("m-{n}"), body)).collect();
    assert_eq!(run(&guarded, consumer, &messages).await, 2);
}

/// Envelopes, two deliveries of one fact, its key, and a member of what is in the envelopes.
type Case<'a> = (&'a [Envelope], [Value; 2], &'a [&'a str], &'a str);

// T72: the id of SQS differs in each case, and so does that of each envelope but the innermost one.
#[apply(on_each_store)]
async fn an_envelope_is_opened_and_its_id_is_a_key(endpoint: &str) {
    use Envelope::{EventBridge, S3, Sns};
    let order = json!({ "id": "o-1", "amount": 17 });
    let created = s3(&[s3_record("a b.pdf", "0C0F")]);
    let of_record: &[&str] = &["ObjectCreated:Put.", "lake.", "a b.pdf.", ".", "0C0F."];
    let cases: [Case<'_>; 7] = [
        (&[Sns], ["sns-1", "sns-1"].map(|id| sns(id, &order)), &["sns-1"], "/amount"),
        (&[EventBridge], ["e-1", "e-1"].map(|id| bus(id, "shop", &order)), &["shop", "e-1"], "/amount"),
        (&[S3], [created.clone(), created.clone()], of_record, "/s3/object/size"),
        (&[Sns, S3], ["sns-1", "sns-2"].map(|id| sns(id, &created)), of_record, "/s3/object/size"),
        (
            &[Sns, EventBridge],
            ["sns-1", "sns-2"].map(|id| sns(id, bus("e-1", "shop", &order))),
            &["shop", "e-1"],
            "/amount",
        ),
        (
            &[EventBridge],
            ["e-1", "e-2"].map(|id| bus(id, "aws.s3", &object_created("a b.pdf", "0C0F"))),
            &["Object Created.", "lake.", "a b.pdf.", "v-1.", "0C0F."],
            "/object/size",
        ),
        (&[Sns, Sns], ["sns-1", "sns-2"].map(|id| sns(id, sns("sns-3", &order))), &["sns-3"], "/amount"),
    ];
    for (envelopes, bodies, key, member) in cases {
        let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
        let consumer = Consumer::new(queue.clone(), KeyFrom::envelope()).envelopes(envelopes.iter().copied());
        let counted = runs.clone();
        let function = move |_, input: Value| {
            assert!(input.pointer(member).is_some(), "{input}");
            counted.add();
            async { Ok::<_, Failure>(()) }
        };
        let consumer = consumer.each(guard(&guarded), function);
        let [first, second] = bodies;
        // T64: twice in one batch, and again in another.
        let batch = [message("m-1", &first), message("m-2", &second), message("m-2", &second)];
        for batch in [&batch[..], &[message("m-3", &second)]] {
            assert!(deliver(&consumer, batch).await.expect("an answer").is_empty());
        }
        assert!(guarded.record(&record_key(key)).await.is_some(), "{envelopes:?}");
        assert_eq!((runs.count(), guarded.number_of_items().await), (1, 1), "{envelopes:?}");
        // Without its envelope, the same content is not a message.
        assert!(deliver(&consumer, &[message("m-4", &order)]).await.expect("an answer").is_empty());
        assert_eq!((runs.count(), queue.take_dead().len()), (1, 1), "{envelopes:?}");
    }
}

/// A change of an object's tags: such an event has no sequencer.
fn tagged(time: &str, request: &str) -> Value {
    json!({
        "eventVersion": "2.3", "eventSource": "aws:s3", "awsRegion": "us-east-2", "eventTime": time,
        "eventName": "ObjectTagging:Put", "responseElements": { "x-amz-request-id": request, "x-amz-id-2": "x" },
        "s3": {
            "s3SchemaVersion": "1.0", "configurationId": "tags", "bucket": { "name": "lake", "arn": "arn:aws:s3:::lake" },
            "object": { "key": "cat.jpg", "eTag": "b21b84d6", "versionId": "v-1" }
        }
    })
}

// What tells them apart is outside of the object.
#[apply(on_each_store)]
async fn two_events_of_one_s3_object_are_never_one(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, queue());
    let (time, request) = ("2026-11-20T10:00:00.000Z", "C3D13FE58DE4C810");
    let events = [
        tagged(time, request),
        tagged("2026-11-20T10:00:00.001Z", request),
        tagged(time, "C3D13FE58DE4C811"),
        tagged(time, request),
    ];
    let messages: Vec<_> = events
        .iter()
        .enumerate()
        .map(|(n, event)| message(&n.to_string(), json!({ "Records": [event] })))
        .collect();
    let consumer = || Consumer::new(queue.clone(), KeyFrom::envelope()).envelopes([Envelope::S3]);
    assert_eq!(run(&guarded, consumer(), &messages).await, 3, "the last one is the first one again");
    for time in [json!(""), Value::Null] {
        let mut event = tagged("", request);
        event["eventTime"] = time;
        assert_eq!(run(&guarded, consumer(), &[message("m", json!({ "Records": [event] }))]).await, 0);
        let dead = queue.take_dead();
        assert_eq!(
            dead[0].reason,
            "the notification of S3 has neither a sequencer nor an eventTime, so it has no id"
        );
    }
}

#[apply(on_each_store)]
async fn the_test_event_of_s3_is_acknowledged(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, queue());
    let nested: [(&[Envelope], Value); 3] = [
        (&[Envelope::S3], s3_test()),
        (&[Envelope::Sns, Envelope::S3], sns("sns-1", s3_test())),
        (&[Envelope::Sns, Envelope::Sns, Envelope::S3], sns("sns-1", sns("sns-2", s3_test()))),
    ];
    for (envelopes, test) in nested {
        let consumer = Consumer::new(queue.clone(), KeyFrom::envelope()).envelopes(envelopes.iter().copied());
        assert_eq!(run(&guarded, consumer, &[message("m-1", test)]).await, 0);
        assert!(queue.take_dead().is_empty(), "{envelopes:?}");
    }
}

#[apply(on_each_store)]
async fn the_tenant_of_a_message_comes_from_its_resolver(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, queue());
    let tenant = |message: &Message| Tenant::parse(message.attributes.get("tenant")?).ok();
    let of = |name: &str| with_attribute(message(name, parcel("p-1")), "tenant", text(name));
    let runs = Counter::default();
    let consumer = consumer(&guarded, &queue).each_of_tenants(tenant, guard(&guarded), ships(&runs));
    let messages = [of("acme"), of("globex"), of("acme"), message("m-4", parcel("p-1"))];
    assert!(deliver(&consumer, &messages).await.expect("an answer").is_empty());
    assert_eq!(runs.count(), 2);
    let dead = queue.take_dead();
    assert_eq!((dead.len(), dead[0].id.as_deref()), (1, Some("m-4")));
    assert_eq!(dead[0].reason, "the message names no tenant");
    for name in ["acme", "globex"] {
        let key = record_key(&["p-1"]);
        let tenant = Tenant::parse(name).expect("a tenant");
        let key = RecordKey::new(tenant, key.operation().clone(), key.idempotency_key().clone());
        assert!(guarded.record(&key).await.is_some());
    }
}

// Each is dead with its reason, and the rest of the batch runs.
#[apply(on_each_store)]
async fn a_message_that_cannot_be_used_blocks_no_other(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let mut no_body = message("no-body", "");
    no_body["body"] = Value::Null;
    let mut no_attributes = message("no-attributes", parcel("p-2"));
    (no_attributes["attributes"], no_attributes["messageAttributes"]) = (Value::Null, Value::Null);
    let binary = json!({ "binaryValue": "not base64!", "dataType": "Binary", "stringListValues": [], "binaryListValues": [] });
    let secret = r#"{"id":"p-9","card":"4111111111111111""#;
    let messages = [
        message("good-1", parcel("p-1")),
        message("not-json", "tea"),
        message("truncated", secret),
        message("no-key", json!({ "does": "ships" })),
        message("empty-key", json!({ "id": "" })),
        message("null-key", json!({ "id": null })),
        message("fraction", json!({ "id": 1.5 })),
        message("object", json!({ "id": {} })),
        no_body,
        with_attribute(message("base64", parcel("p-3")), "photo", binary),
        no_attributes,
        message("good-2", parcel("p-4")),
    ];
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    assert!(deliver(&consumer, &messages).await.expect("an answer").is_empty());
    let mut dead = queue.take_dead();
    dead.sort_by(|a, b| a.id.cmp(&b.id));
    let reasons: Vec<_> =
        dead.iter().map(|dead| (dead.id.as_deref().unwrap_or_default(), &*dead.reason)).collect();
    let neither = "the key at /id is neither a text nor a whole number";
    let no_json = "the message's body is not JSON, so it has no key at /id";
    let expected = [
        ("base64", "the message is not as SQS writes it"),
        ("empty-key", neither),
        ("fraction", neither),
        ("no-body", "the message has no body"),
        ("no-key", "the message's body has no key at /id"),
        ("not-json", no_json),
        ("null-key", neither),
        ("object", neither),
        ("truncated", no_json),
    ];
    assert_eq!(reasons, expected);
    assert!(dead.iter().any(|dead| dead.body == secret), "a dead letter has the whole body");
    assert_eq!((runs.count(), queue.take_hidden().len()), (3, 0));
}

// The reason goes to operators, the body does not.
#[apply(on_each_store)]
async fn a_body_of_another_type_is_dead_and_not_quoted(endpoint: &str) {
    #[derive(serde::Deserialize)]
    struct Parcel {
        #[serde(rename = "weight")]
        _weight: u32,
    }
    let (guarded, queue) = (Guarded::on(endpoint).await, queue());
    let function = |_, _: Parcel| async { Ok::<_, Failure>(()) }.boxed();
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), function);
    let body = json!({ "id": "p-1", "weight": "4111111111111111" });
    assert!(deliver(&consumer, &[message("m-1", body)]).await.expect("an answer").is_empty());
    let dead = queue.take_dead();
    assert!(!dead[0].reason.contains("4111") && dead[0].reason.contains("not what the function takes"));
    assert_eq!(guarded.number_of_items().await, 0);
}
