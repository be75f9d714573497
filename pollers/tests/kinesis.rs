//! The poller of Kinesis, with a real stream.

mod support;

use std::sync::Arc;

use aws_sdk_kinesis::Client;
use futures_util::future::join_all;
use lambda_idempotency::event::{Shards, SourceKind};
use pollers::kinesis;

use support::{Function, Order, halves, orders, records};

const STREAM: &str = "orders";

/// Publishes them: those of a customer one after another.
async fn put(client: &Client, orders: &[Vec<Order>]) {
    let one = async |orders: &[Order]| {
        for Order { customer, body } in orders {
            kinesis::put(client, STREAM, customer, body.as_bytes()).await.expect("it is published");
        }
    };
    join_all(orders.iter().map(|orders| one(orders))).await;
}

/// Splits the first shard in the middle of its keys.
async fn split(client: &Client) {
    let listed = client.list_shards().stream_name(STREAM).send().await.expect("a list");
    let shard = listed.shards().first().expect("a shard");
    let range = shard.hash_key_range.as_ref().expect("a range");
    let [from, to] =
        [&range.starting_hash_key, &range.ending_hash_key].map(|key| key.parse::<u128>().expect("a number"));
    let split = client.split_shard().stream_name(STREAM).shard_to_split(&shard.shard_id);
    split.new_starting_hash_key((from + (to - from) / 2).to_string()).send().await.expect("it is split");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(kinesis), ignore = "KINESIS=required runs it")]
async fn each_order_of_a_stream_ships_once_while_its_shard_splits() {
    let (_running, endpoint) = kinesis::start(0).await.expect("Kinesis");
    let client = kinesis::client(&endpoint);
    let function = Function::start(SourceKind::Kinesis(Shards::default()), STREAM).await;
    let mapping = kinesis::mapping(client.clone(), STREAM, 2, function.mapping()).await.expect("a mapping");
    let poller = tokio::spawn(kinesis::follow(Arc::new(mapping)));

    let orders = orders(records());
    let [before, after] = halves(&orders);
    put(&client, &before).await;
    split(&client).await;
    put(&client, &after).await;

    function.until_done(records()).await;
    function.assert_shipped(&orders);
    poller.abort();
}
