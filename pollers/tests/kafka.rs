//! The poller of Kafka, with a real broker.

mod support;

use std::sync::Arc;

use futures_util::future::join_all;
use lambda_idempotency::event::{Answers, Shards, SourceKind};
use pollers::{
    kafka::{self, Topic},
    mapping::Mapping,
};
use rskafka::client::{Client, partition::PartitionClient};
use tokio::task::JoinHandle;

use support::{Function, Order, halves, orders, records};

const TOPIC: &str = "orders";
const PARTITIONS: i32 = 3;

/// Publishes them: those of a customer one after another.
async fn put(partitions: &[PartitionClient], orders: &[Vec<Order>]) {
    let one = async |orders: &[Order]| {
        for Order { customer, body } in orders {
            kafka::put(partitions, customer, body.as_bytes()).await.expect("it is published");
        }
    };
    join_all(orders.iter().map(|orders| one(orders))).await;
}

/// A poller that goes on from the checkpoints of the mapping.
async fn follow(client: Client, address: &str, mapping: Mapping) -> JoinHandle<()> {
    let topic = Topic { client, name: TOPIC.to_owned(), cluster: None, address: address.to_owned() };
    let mapping = kafka::mapping(topic, PARTITIONS, mapping).await.expect("a mapping");
    tokio::spawn(kafka::follow(Arc::new(mapping)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(kafka), ignore = "KAFKA=required runs it")]
async fn each_order_of_a_topic_ships_once_while_pollers_change() {
    let (_running, address) = kafka::start(0).await.expect("Kafka");
    let client = async || kafka::client(&address).await.expect("a client");
    let folder = tempfile::tempdir().expect("a folder");
    let function = Function::start(SourceKind::Kafka(Answers::Partial, Shards::default()), TOPIC).await;
    let mapping = Mapping { checkpoints: Some(folder.path().join("checkpoints")), ..function.mapping() };

    let first = follow(client().await, &address, mapping.clone()).await;
    let own = client().await;
    let partitions = kafka::partitions(&own, TOPIC).await.expect("partitions");
    let orders = orders(records());
    let [before, after] = halves(&orders);
    // In the middle of a batch, perhaps: the next poller repeats it.
    let stops = async {
        function.until_done(records() / 8).await;
        first.abort();
    };
    tokio::join!(put(&partitions, &before), stops);
    let _ = first.await;
    let second = follow(client().await, &address, mapping).await;
    put(&partitions, &after).await;

    function.until_done(records()).await;
    function.assert_shipped(&orders);
    second.abort();
}
