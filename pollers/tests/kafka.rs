//! The poller of Kafka, with a real broker.

mod support;

use std::sync::Arc;

use futures_util::future::join_all;
use lambda_idempotency::event::{Answers, Shards, SourceKind};
use pollers::{
    kafka::{self, Topic},
    mapping::Mapping,
};
use rskafka::client::partition::PartitionClient;
use tokio::task::JoinHandle;

use support::{
    Function,
    orders::{Order, halves, orders, records},
};

const TOPIC: &str = "orders";
const PARTITIONS: i32 = 3;

/// Publishes them: those of a customer one after another.
async fn put(partitions: &[PartitionClient], orders: &[Vec<Order>]) {
    let one = async |orders: &[Order]| {
        for order in orders {
            let put = kafka::put(partitions, &order.customer, order.body().as_bytes()).await;
            put.expect("it is published");
        }
    };
    join_all(orders.iter().map(|orders| one(orders))).await;
}

/// A poller that goes on from the checkpoints of the mapping.
async fn follow(address: &str, mapping: Mapping) -> JoinHandle<()> {
    let client = kafka::client(address).await.expect("a client");
    let topic = Topic { client, name: TOPIC.to_owned(), cluster: None, address: address.to_owned() };
    let mapping = kafka::mapping(topic, PARTITIONS, mapping).await.expect("a mapping");
    tokio::spawn(kafka::follow(Arc::new(mapping)))
}

// T1, T2, T9, T64, T66
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(kafka), ignore = "KAFKA=required runs it")]
async fn orders_of_a_topic_ship_once_though_instances_and_pollers_die() {
    let (_running, address) = kafka::start(0).await.expect("Kafka");
    let folder = tempfile::tempdir().expect("a folder");
    let function = Function::start(SourceKind::Kafka(Answers::Partial, Shards::default()), TOPIC).await;
    let mapping = Mapping { checkpoints: Some(folder.path().join("checkpoints")), ..function.mapping() };

    let first = follow(&address, mapping.clone()).await;
    let client = kafka::client(&address).await.expect("a client");
    let partitions = kafka::partitions(&client, TOPIC).await.expect("partitions");
    let orders = orders(records());
    let [before, after] = halves(&orders);
    let next = async || follow(&address, mapping).await;
    let test = async {
        let ((), second) = tokio::join!(put(&partitions, &before), function.change_poller(first, next));
        put(&partitions, &after).await;
        function.until_done(records()).await;
        second.abort();
    };
    function.reconciled(test).await;
    function.assert_shipped(&orders);
    for partition in 0..PARTITIONS {
        assert!(function.has_done(&format!("{TOPIC}-{partition}")), "partition {partition} has no records");
    }
}
