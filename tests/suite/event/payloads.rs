//! Messages whose body points to a payload in S3.

use std::time::{Duration, UNIX_EPOCH};

use aws_sdk_s3::{Client, primitives::ByteStream};
use lambda_idempotency::{
    Guard, MemoryStore, Operation,
    event::{Consumer, Envelope, KeyFrom, MemorySource},
    world::World,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{SHIP, fifo, parcel, parcel_that, queue, ships, tenant};
use crate::support::{
    clock::{WatchedClock, in_time},
    envelopes::{confirmation, pointer, s3, s3_record, sns},
    http::Counter,
    messages::{deliver, deliver_within, message, of_group, received},
    s3::LocalS3,
};

const BUCKET: &str = "payloads";
const MAX: usize = 8 * 1024 * 1024;

fn memory() -> Guard {
    Guard::new(MemoryStore::new(), Operation::new(SHIP), tenant())
}

fn consumer(queue: &MemorySource, key: KeyFrom, client: &Client) -> Consumer {
    Consumer::new(queue.clone(), key).payloads_in(client.clone(), [BUCKET])
}

async fn put(s3: &LocalS3, bucket: &str, key: &str, payload: impl Into<Vec<u8>>) {
    let put = s3.client.put_object().bucket(bucket).key(key).body(ByteStream::from(payload.into()));
    put.send().await.expect("an object");
}

// T34: each send has another pointer, so the pointer is no content, and no key is in it.
#[tokio::test]
async fn a_pointer_is_refused_by_its_name_whatever_the_key() {
    let sent = |mut message: Value, name: &str| {
        message["messageAttributes"][name] = json!({ "stringValue": "300000", "dataType": "Number" });
        message
    };
    let newer = pointer("big", "3d2c0a1e-1");
    let older = json!(["com.amazon.sqs.javamessaging.MessageS3Pointer", newer[1]]);
    let cases: [(&[Envelope], Value); 5] = [
        (&[], sent(message("m-1", &newer), "ExtendedPayloadSize")),
        (&[], sent(message("m-1", &older), "SQSLargePayloadSize")),
        (&[], message("m-1", &newer)),
        (&[Envelope::Sns], message("m-1", sns("sns-1", &newer))),
        (&[Envelope::Sns, Envelope::S3], sent(message("m-1", &newer), "ExtendedPayloadSize")),
    ];
    for (envelopes, message) in cases {
        let keys = [KeyFrom::content(), KeyFrom::body("/id"), KeyFrom::body("/0"), KeyFrom::body("/1/s3Key")];
        for key in keys {
            let (queue, runs) = (queue(), Counter::default());
            let consumer = Consumer::new(queue.clone(), key).envelopes(envelopes.iter().copied());
            let consumer = consumer.each(memory(), ships(&runs));
            assert!(deliver(&consumer, std::slice::from_ref(&message)).await.expect("an answer").is_empty());
            let dead = queue.take_dead();
            assert_eq!((runs.count(), dead.len()), (0, 1));
            assert!(dead[0].reason.contains("extended client") && dead[0].reason.contains("payloads_in"));
            assert_eq!(json!(dead[0].body), message["body"], "as it came");
        }
    }
}

// T72: one fact under two pointers. The key and the fingerprint are of the payload.
#[tokio::test]
async fn a_payload_is_loaded_before_its_key_and_its_fingerprint() {
    let s3 = LocalS3::with_bucket(BUCKET).await;
    put(&s3, BUCKET, "1", parcel("p-1").to_string()).await;
    put(&s3, BUCKET, "2", parcel("p-1").to_string()).await;
    put(&s3, BUCKET, "3", json!({ "id": "p-1", "does": "ships", "more": true }).to_string()).await;
    put(&s3, BUCKET, "a b+c%2F?x#y/é.json", parcel("p-4").to_string()).await;
    for key in [KeyFrom::body("/id"), KeyFrom::content()] {
        let (queue, runs) = (queue(), Counter::default());
        let by_content = format!("{key:?}").contains("Content");
        let consumer = consumer(&queue, key, &s3.client).each(memory(), ships(&runs));
        // T64: also in one batch, and beside the same parcel without a pointer.
        let same = [
            message("m-1", pointer(BUCKET, "1")),
            message("m-2", pointer(BUCKET, "2")),
            message("m-2", pointer(BUCKET, "2")),
            message("m-3", parcel("p-1")),
        ];
        assert!(deliver(&consumer, &same).await.expect("an answer").is_empty());
        assert_eq!((runs.count(), queue.take_dead().len()), (1, 0));
        let other = [message("m-4", pointer(BUCKET, "3"))];
        assert!(deliver(&consumer, &other).await.expect("an answer").is_empty());
        let dead = queue.take_dead();
        match by_content {
            true => assert_eq!((runs.count(), dead.len()), (2, 0)),
            false => assert_eq!(dead[0].reason, "the key was used for another input"),
        }
        let odd = [message("m-5", pointer(BUCKET, "a b+c%2F?x#y/é.json"))];
        let before = runs.count();
        assert!(deliver(&consumer, &odd).await.expect("an answer").is_empty());
        assert_eq!((runs.count(), queue.take_dead().len()), (before + 1, 0));
    }
}

#[tokio::test]
async fn a_payload_is_loaded_wherever_its_pointer_is_in_the_envelopes() {
    let s3_server = LocalS3::with_bucket(BUCKET).await;
    let notification = s3(&[s3_record("a", "1")]);
    put(&s3_server, BUCKET, "outside", sns("sns-1", &notification).to_string()).await;
    put(&s3_server, BUCKET, "inside", notification.to_string()).await;
    let (queue, runs) = (queue(), Counter::default());
    let consumer = consumer(&queue, KeyFrom::envelope(), &s3_server.client);
    let counted = runs.clone();
    let function = move |_, record: Value| {
        assert_eq!(record["s3"]["object"]["key"], "a");
        counted.add();
        async { Ok::<_, lambda_idempotency::Failure>(()) }
    };
    let consumer = consumer.envelopes([Envelope::Sns, Envelope::S3]).each(memory(), function);
    let messages = [
        message("m-1", pointer(BUCKET, "outside")),
        message("m-2", sns("sns-2", pointer(BUCKET, "inside"))),
        message("m-3", sns("sns-3", &notification)),
        message("m-4", confirmation("SubscriptionConfirmation")),
    ];
    assert!(deliver(&consumer, &messages).await.expect("an answer").is_empty());
    assert_eq!((runs.count(), queue.take_dead().len()), (1, 1));
}

#[tokio::test]
async fn an_unusable_payload_is_dead_and_its_letter_has_the_pointer() {
    let s3 = LocalS3::with_bucket(BUCKET).await;
    s3.client.create_bucket().bucket("secrets").send().await.expect("a bucket");
    put(&s3, "secrets", "1", parcel("p-1").to_string()).await;
    put(&s3, BUCKET, "pointer", pointer(BUCKET, "pointer").to_string()).await;
    put(&s3, BUCKET, "nowhere", json!(["com.amazon.sqs.javamessaging.MessageS3Pointer", {}]).to_string())
        .await;
    put(&s3, BUCKET, "bytes", vec![b'"', 0xff, b'"']).await;
    put(&s3, BUCKET, "large", vec![b' '; MAX + 1]).await;
    put(&s3, BUCKET, "empty", "").await;
    put(&s3, BUCKET, "text", "tea").await;
    let own = |place: Value| json!(["software.amazon.payloadoffloading.PayloadS3Pointer", place]);
    let (foreign, missing) = ("a bucket that this consumer does not name", "no payload where");
    let (nowhere, itself) = ("names no object", "itself a pointer");
    let cases = [
        (pointer("secrets", "1"), foreign),
        (pointer("", "1"), nowhere),
        (pointer("payloads/../secrets", "1"), foreign),
        (pointer("payloads/", "1"), foreign),
        (pointer("PAYLOADS", "1"), foreign),
        (pointer("arn:aws:s3:::payloads", "1"), foreign),
        (pointer(BUCKET, ""), nowhere),
        (own(json!({ "s3BucketName": BUCKET, "s3Key": null })), nowhere),
        (own(json!("secrets/1")), nowhere),
        (pointer(BUCKET, "missing"), missing),
        (pointer(BUCKET, "pointer"), itself),
        (pointer(BUCKET, "nowhere"), itself),
        (pointer(BUCKET, "bytes"), "not text in UTF-8"),
        (pointer(BUCKET, "large"), "longer than 8 MiB"),
        (pointer(BUCKET, "empty"), "not JSON"),
        (pointer(BUCKET, "text"), "not JSON"),
    ];
    for (pointer, reason) in cases {
        let (queue, runs) = (queue(), Counter::default());
        let consumer = consumer(&queue, KeyFrom::body("/id"), &s3.client).each(memory(), ships(&runs));
        let mut sent = message("m-1", &pointer);
        // What it says is not counted on.
        sent["messageAttributes"]["ExtendedPayloadSize"] =
            json!({ "stringValue": "7", "dataType": "Number" });
        assert!(deliver(&consumer, &[sent]).await.expect("an answer").is_empty());
        let dead = queue.take_dead();
        assert!(runs.count() == 0 && dead[0].reason.contains(reason), "{pointer}: {}", dead[0].reason);
        assert_eq!((&dead[0].body, &*dead[0].attributes["ExtendedPayloadSize"]), (&pointer.to_string(), "7"));
        assert!(!dead[0].reason.contains("secrets"), "{}", dead[0].reason);
    }
    let mut largest = parcel("p-1").to_string().into_bytes();
    largest.resize(MAX, b' ');
    put(&s3, BUCKET, "largest", largest).await;
    let (queue, runs) = (queue(), Counter::default());
    let consumer = consumer(&queue, KeyFrom::body("/id"), &s3.client).each(memory(), ships(&runs));
    assert!(
        deliver(&consumer, &[message("m-1", pointer(BUCKET, "largest"))])
            .await
            .expect("an answer")
            .is_empty()
    );
    assert_eq!((runs.count(), queue.take_dead().len()), (1, 0));
}

// T65, T66: nothing is begun, and the rest of the group waits behind it.
#[tokio::test]
async fn while_s3_is_away_messages_are_handed_back() {
    let s3 = LocalS3::with_bucket(BUCKET).await;
    put(&s3, BUCKET, "1", parcel("p-1").to_string()).await;
    let (queue, runs) = (fifo(), Counter::default());
    let consumer = consumer(&queue, KeyFrom::body("/id"), &s3.client).each(memory(), ships(&runs));
    let mut often = of_group("a", "a-1", pointer(BUCKET, "1"));
    often["attributes"]["ApproximateReceiveCount"] = json!("900");
    let batch = [
        often,
        of_group("a", "a-2", parcel_that("p-2", "ships")),
        of_group("b", "b-1", parcel_that("p-3", "ships")),
    ];
    for (status, code) in [(500, "InternalError"), (503, "SlowDown"), (429, "TooManyRequests")] {
        s3.fail(status, code);
        assert_eq!(deliver(&consumer, &batch).await.expect("an answer"), ["a-1", "a-2"], "{code}");
        assert_eq!((runs.count(), queue.take_dead().len()), (1, 0));
        let hidden = queue.take_hidden();
        assert!(hidden[0].1 >= Duration::from_secs(600) && hidden[1].1.is_zero(), "{hidden:?}");
    }
    s3.recover();
    assert!(deliver(&consumer, &batch).await.expect("an answer").is_empty());
    assert_eq!((runs.count(), queue.take_dead().len()), (3, 0));
}

// It may be a permission that somebody is about to add, or never will.
#[tokio::test]
async fn a_payload_that_s3_refuses_is_tried_a_hundred_times() {
    let s3 = LocalS3::with_bucket(BUCKET).await;
    let (queue, runs) = (queue(), Counter::default());
    let consumer = consumer(&queue, KeyFrom::body("/id"), &s3.client).each(memory(), ships(&runs));
    for (status, code) in [(403, "AccessDenied"), (404, "NoSuchBucket"), (403, "InvalidObjectState")] {
        s3.fail(status, code);
        let at = async |times| {
            let message = received("m-1", pointer(BUCKET, "1"), times);
            deliver(&consumer, &[message]).await.expect("an answer").len()
        };
        assert_eq!((at(1).await, at(99).await, at(100).await), (1, 1, 0), "{code}");
        let reason = format!("it was received 100 times: S3 refuses its payload: {code} ({status})");
        assert_eq!(queue.take_dead()[0].reason, reason);
    }
    assert_eq!(runs.count(), 0);
}

// A server that takes a request, and never answers.
#[tokio::test]
async fn a_payload_that_takes_too_long_hands_its_message_back() {
    let s3 = LocalS3::with_bucket(BUCKET).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = format!("http://{}", silent.local_addr().expect("an address"));
    let client = Client::from_conf(s3.client.config().to_builder().endpoint_url(address).build());
    // With little time, the messages that need no payload have their half of it.
    for (time, waits) in
        [(30_000, 10_000), (10_000, 3_500)].map(|(a, b)| (Duration::from_millis(a), Duration::from_millis(b)))
    {
        let (clock, queue, runs) = (WatchedClock::now_standing(), queue(), Counter::default());
        let consumer = consumer(&queue, KeyFrom::body("/id"), &client).world(clock.clone());
        let consumer = consumer.each(memory(), ships(&runs));
        let advances = async {
            clock.slept(waits, 1).await;
            clock.advance(waits);
        };
        let batch = [message("m-1", pointer(BUCKET, "1")), message("m-2", parcel("p-2"))];
        let now = UNIX_EPOCH + Duration::from_millis(clock.now().as_millis());
        let delivered = deliver_within(&consumer, &batch, now, time);
        let (back, ()) = in_time(async { tokio::join!(delivered, advances) }).await;
        assert_eq!(back.expect("an answer"), ["m-1"]);
        assert_eq!((runs.count(), queue.take_dead().len()), (1, 0), "{time:?}");
    }
}
