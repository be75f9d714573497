//! The target for SQS queues, on a FIFO queue and on a standard one.

use std::collections::BTreeSet;

use aws_sdk_sqs::types::Message;
use lambda_idempotency::{
    Failure, Guard, MemoryStore, Operation,
    event::{Consumer, KeyFrom, SqsSource},
    key::Tenant,
    outbox::{SqsTarget, Target},
    queue::ProducerKey,
    store::OutboxMessage,
    telemetry::error_chain,
};
use serde_json::{Value, json};

use super::{topic, undelivered};
use crate::support::{
    embedded,
    guarded::{Guarded, completed, owned, request, written},
    http::Counter,
    messages::deliver,
    sqs::{Queue, Sqs, attribute},
};

/// What two operations published, in the order of each.
async fn published() -> Vec<OutboxMessage> {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let mut published = Vec::new();
    for _ in 0..2 {
        let request = request();
        let ours = owned(guarded.executor().reserve(&request).await);
        for n in 0..2 {
            // SQS refuses the first character, but not its escape.
            let body = json!({ "n": n, "text": "\u{FFFE}\u{1F600}" });
            ours.execution().publish(&topic(), &body).expect("it is a message");
        }
        written(guarded.executor().finish(ours, completed("done")).await);
        published.extend(undelivered(&guarded, &request.key).await);
    }
    published
}

/// What is in the queue, oldest first, with the group of each message.
async fn received(queue: &Queue) -> Vec<(String, Value)> {
    let arrived = queue.receive().await;
    let event = |message: &Message| serde_json::from_str(message.body().expect("a body")).expect("JSON");
    let group = |message: &Message| queue.record(message)["attributes"]["MessageGroupId"].to_string();
    arrived.iter().map(|message| (group(message), event(message))).collect()
}

fn event(message: &OutboxMessage) -> Value {
    serde_json::from_str(&message.to_cloud_event()).expect("JSON")
}

#[tokio::test]
#[cfg_attr(not(dynamodb_local), ignore = "ElasticMQ needs Java 17 and Maven")]
async fn elasticmq_is_handed_each_message_as_a_cloud_event() {
    let (sqs, messages) = (Sqs::elasticmq(), published().await);
    let (fifo, standard) = (sqs.queue("placed.fifo", 60).await, sqs.queue("placed", 60).await);
    for queue in [&fifo, &standard] {
        let target = SqsTarget::new(&sqs.config(), &*queue.url);
        // Each twice: its deliverer died before the message was removed.
        for message in messages.iter().flat_map(|message| [message, message]) {
            target.deliver(message).await.expect("the queue accepts it");
        }
    }
    // A FIFO queue takes a message once, and keeps those of an operation in order.
    let arrived = received(&fifo).await;
    assert_eq!(arrived.len(), 4, "{arrived:?}");
    for operation in messages.chunks(2) {
        let of_operation =
            |event: &Value| event["idempotencykey"] == *operation[0].key.idempotency_key().as_str();
        let (groups, events): (BTreeSet<_>, Vec<_>) =
            arrived.iter().filter(|(_, event)| of_operation(event)).cloned().unzip();
        assert_eq!((groups.len(), events), (1, operation.iter().map(event).collect()));
    }
    let arrived = received(&standard).await;
    let ids: BTreeSet<_> = arrived.iter().map(|(_, event)| event["id"].to_string()).collect();
    assert_eq!((arrived.len(), ids.len()), (8, 4));

    let gone = SqsTarget::new(&sqs.config(), standard.url.replace("placed", "gone"));
    let error = gone.deliver(&messages[0]).await.expect_err("there is no such queue");
    assert!(error_chain(&error).contains("does not exist"), "{}", error_chain(&error));
}

// T63: a consumer that changes from one of these to another repeats nothing. To `cloud_event` it does, because that has two parts.
#[tokio::test]
async fn a_delivered_message_has_its_id_as_its_key() {
    let (sqs, messages) = (Sqs::start().await, published().await);
    let (fifo, standard) = (sqs.queue("placed.fifo", 60).await, sqs.queue("placed", 60).await);
    let tenant = Tenant::parse("acme").expect("a tenant");
    let (guard, runs) = (Guard::new(MemoryStore::new(), Operation::new("ship"), tenant), Counter::default());
    let mut counts = Vec::new();
    for queue in [&fifo, &standard] {
        SqsTarget::new(&sqs.config(), &*queue.url).deliver(&messages[0]).await.expect("the queue accepts it");
        let arrived = queue.next().await;
        assert_eq!(attribute(&arrived[0], ProducerKey::NAME), Some(&*messages[0].id()));
        let only_fifo = (queue.name == fifo.name).then(KeyFrom::deduplication_id);
        let keys = [KeyFrom::attribute(ProducerKey::NAME), KeyFrom::body("/id")].into_iter().chain(only_fifo);
        for key in keys.chain([KeyFrom::cloud_event()]) {
            let counted = runs.clone();
            let function = move |_, _: Value| {
                counted.add();
                async { Ok::<_, Failure>(()) }
            };
            let source = SqsSource::new(&sqs.config(), &*queue.url, &*queue.dead_letters);
            let consumer = Consumer::new(source, key).each(guard.clone(), function);
            assert!(deliver(&consumer, &[queue.record(&arrived[0])]).await.expect("an answer").is_empty());
            counts.push(runs.count());
        }
    }
    assert_eq!(counts, [1, 1, 1, 2, 2, 2, 2]);
}
