//! Several messages of one FIFO group in one batch, from ElasticMQ: it hides and orders them as SQS does.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use lambda_idempotency::{
    Operation,
    event::{Consumer, KeyFrom},
};
use serde_json::json;

use super::sqs::{bodies, deliver_next, guard, in_order, source};
use crate::support::{
    messages::deliver_within,
    sqs::{NewMessage, Sqs, attribute},
};

// T66: what follows the failed one was received with it, and neither runs nor overtakes it.
#[tokio::test]
#[cfg_attr(not(dynamodb_local), ignore = "ElasticMQ needs Java 17 and Maven")]
async fn elasticmq_keeps_a_group_in_order_behind_its_failed_message() {
    let sqs = Sqs::elasticmq();
    let queue = sqs.queue("parcels.fifo", 60).await;
    let of =
        |group: &str, id: &str, does: &str| NewMessage::of_group(group, json!({ "id": id, "does": does }));
    let messages = [
        of("a", "a-1", "ships"),
        of("a", "a-2", "waits"),
        of("a", "a-3", "refuses"),
        of("a", "a-4", "ships"),
        of("b", "b-1", "ships"),
    ];
    queue.send(&messages).await;
    let order = Arc::default();
    let consumer = Consumer::new(source(&sqs, &queue), KeyFrom::body("/id"));
    let consumer = consumer.each(guard(Operation::new("ship")), in_order(&order));
    let first = deliver_next(&queue, &consumer).await;
    assert_eq!(first.len(), 5, "all in one batch: {:?}", bodies(&first));
    assert_eq!(queue.left().await, 3, "a-2 and what follows it");
    // The followers are visible at once by their own time, and blocked by the one that is hidden.
    assert!(queue.receive().await.is_empty());
    let second = deliver_next(&queue, &consumer).await;
    assert_eq!(bodies(&second), [&*messages[1].body, &messages[2].body, &messages[3].body]);
    let order: Vec<String> = order.lock().unwrap().clone();
    let of_a: Vec<_> = order.iter().filter(|id| id.starts_with('a')).collect();
    assert_eq!(of_a, ["a-1", "a-2", "a-2", "a-3", "a-4"]);
    assert_eq!(bodies(&queue.take_dead_letters().await), [&*messages[2].body]);
    assert_eq!(queue.left().await, 0);
}

// Its consumer may not need them, but whoever sends it back does.
#[tokio::test]
#[cfg_attr(not(dynamodb_local), ignore = "ElasticMQ needs Java 17 and Maven")]
async fn elasticmq_gets_a_dead_letter_with_the_bytes_of_its_attributes() {
    let sqs = Sqs::elasticmq();
    let queue = sqs.queue("parcels", 60).await;
    let photo = vec![0, 159, 146, 150];
    let message = NewMessage {
        attributes: vec![("shop".to_owned(), "tea".to_owned())],
        binary: vec![("photo".to_owned(), photo.clone())],
        ..NewMessage::new("no parcel")
    };
    let consumer = Consumer::new(source(&sqs, &queue), KeyFrom::body("/id"));
    let consumer = consumer.each(guard(Operation::new("ship")), in_order(&Arc::default()));
    queue.send(&[message]).await;
    let record = queue.record(&queue.next().await[0]);
    assert!(record["messageAttributes"]["photo"]["binaryValue"].is_string(), "{record}");
    let (now, time) = (SystemTime::now(), Duration::from_secs(30));
    assert!(deliver_within(&consumer, &[record], now, time).await.expect("an answer").is_empty());
    let dead = queue.take_dead_letters().await;
    let kept = dead[0].message_attributes().and_then(|all| all.get("photo")?.binary_value());
    assert_eq!(kept.map(AsRef::as_ref), Some(&*photo));
    assert_eq!(attribute(&dead[0], "shop"), Some("tea"));
    assert!(attribute(&dead[0], "idempotency-reason").is_some_and(|reason| reason.contains("not JSON")));
}
