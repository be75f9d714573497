//! Messages with the key of their producer, from a queue of somebody else's SQS to a consumer.

use aws_sdk_sqs::{Client, types::SendMessageBatchRequestEntry};
use lambda_idempotency::{
    Failure, Guard, Operation,
    event::{BatchFunction, Consumer, Envelope, KeyFrom},
    queue::ProducerKey,
    world::SystemWorld,
};
use serde_json::{Value, json};

use super::sqs::{bodies, deliver_next, guard, source};
use crate::support::{
    client::connect,
    envelopes::bus,
    http::Counter,
    messages::{deliver, message},
    proxy::{Cut, Proxy, Then},
    sqs::{Queue, Sqs},
};

/// A consumer of this queue that counts its runs.
fn counting(
    (sqs, queue): (&Sqs, &Queue),
    key: KeyFrom,
    guard: &Guard,
    runs: &Counter,
) -> impl BatchFunction + use<> {
    let runs = runs.clone();
    let function = move |_, _: Value| {
        runs.add();
        async { Ok::<_, Failure>(()) }
    };
    Consumer::new(source(sqs, queue), key).each(guard.clone(), function)
}

fn by_attribute() -> KeyFrom {
    KeyFrom::attribute(ProducerKey::NAME)
}

fn ship() -> Guard {
    guard(Operation::new("ship"))
}

// SQS has taken the first one.
#[tokio::test]
async fn a_send_whose_answer_is_lost_is_repeated_without_a_second_effect() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parcels", 60).await;
    let proxy = Proxy::before(sqs.url()).await;
    let client = Client::new(&connect(proxy.url()).max_attempts(1).sdk_config());
    let key = ProducerKey::mint(&SystemWorld);
    let send = client.send_message().queue_url(&queue.url).message_body(json!({ "id": "p-1" }).to_string());
    let send = send.message_attributes(ProducerKey::NAME, key.attribute());
    proxy.cut(&["SendMessage"], Cut::Answer(0), Then::Closed, 1);
    send.clone().send().await.expect_err("the answer is lost");
    send.send().await.expect("SQS answers");
    let (runs, mut received) = (Counter::default(), 0);
    let consumer = counting((&sqs, &queue), by_attribute(), &ship(), &runs);
    while queue.left().await > 0 {
        received += deliver_next(&queue, &consumer).await.len();
    }
    assert_eq!((received, runs.count()), (2, 1));
}

// In one request, as a producer of many messages sends them. A FIFO queue drops the second one for some minutes only.
#[tokio::test]
async fn a_fifo_queue_and_its_consumer_know_one_key() {
    let sqs = Sqs::start().await;
    let (fifo, standard) = (sqs.queue("parcels.fifo", 60).await, sqs.queue("parcels", 60).await);
    let client = Client::new(&sqs.config());
    let key = ProducerKey::parse("order-1").expect("a key");
    for queue in [&fifo, &standard] {
        let is_fifo = queue.name.ends_with(".fifo");
        let entries = ["1", "2"].map(|id| {
            let entry = SendMessageBatchRequestEntry::builder().id(id).message_body(r#"{"id":"p-1"}"#);
            let entry = entry.message_attributes(ProducerKey::NAME, key.attribute());
            let entry = entry.set_message_group_id(is_fifo.then(|| format!("customer-{id}")));
            let entry = entry.set_message_deduplication_id(is_fifo.then(|| key.as_str().to_owned()));
            entry.build().expect("it has an id and a body")
        });
        let send = client.send_message_batch().queue_url(&queue.url);
        let sent = send.set_entries(Some(entries.to_vec())).send().await.expect("SQS answers");
        assert!(sent.failed.is_empty(), "{:?}", sent.failed);
    }
    let (guard, runs) = (ship(), Counter::default());
    let messages = fifo.next().await;
    assert_eq!(bodies(&messages), [r#"{"id":"p-1"}"#]);
    // One record, whichever of the two a consumer reads, and for the standard queue too.
    for key in [KeyFrom::deduplication_id(), by_attribute()] {
        let consumer = counting((&sqs, &fifo), key, &guard, &runs);
        assert!(deliver(&consumer, &[fifo.record(&messages[0])]).await.expect("an answer").is_empty());
    }
    let consumer = counting((&sqs, &standard), by_attribute(), &guard, &runs);
    let mut received = 0;
    while standard.left().await > 0 {
        received += deliver_next(&standard, &consumer).await.len();
    }
    assert_eq!((received, runs.count()), (2, 1));
}

// EventBridge gives each publication an id of its own.
#[tokio::test]
async fn an_event_that_is_published_twice_has_its_producers_key() {
    let key = ProducerKey::parse("order-1").expect("a key");
    let detail = key.detail(&json!({ "id": "p-1" })).expect("a detail");
    let detail: Value = serde_json::from_str(&detail).expect("JSON");
    let (queue, runs) = (crate::event::queue(), Counter::default());
    let counted = runs.clone();
    let function = move |_, _: Value| {
        counted.add();
        async { Ok::<_, Failure>(()) }
    };
    let consumer = Consumer::new(queue.clone(), KeyFrom::body("/idempotency-key"));
    let consumer = consumer.envelopes([Envelope::EventBridge]).each(ship(), function);
    for id in ["e-1", "e-2"] {
        let message = message(id, bus(id, "shop", &detail));
        assert!(deliver(&consumer, &[message]).await.expect("an answer").is_empty());
    }
    assert_eq!((runs.count(), queue.take_dead().len()), (1, 0));
}
