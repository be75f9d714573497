//! The poller of Kinesis, with a real stream.

mod support;

use std::sync::Arc;

use aws_sdk_kinesis::{Client, primitives::Blob, types::PutRecordsRequestEntry};
use lambda_idempotency::event::{Shards, SourceKind};
use pollers::kinesis;

use support::{Function, Order, halves, orders, records};

const STREAM: &str = "orders";
/// Records of one call.
const AT_ONCE: usize = 50;

/// Publishes them: those of a customer one after another, many at once. (On AWS, such a call may change their order.)
async fn put(client: &Client, orders: &[Vec<Order>]) {
    let longest = orders.iter().map(Vec::len).max().unwrap_or_default();
    let in_turn = (0..longest).flat_map(|nth| orders.iter().filter_map(move |orders| orders.get(nth)));
    for some in in_turn.collect::<Vec<_>>().chunks(AT_ONCE) {
        let entries = some.iter().map(|Order { customer, body }| {
            let entry =
                PutRecordsRequestEntry::builder().partition_key(customer).data(Blob::new(body.as_bytes()));
            entry.build().expect("an entry")
        });
        let put = client.put_records().stream_name(STREAM).set_records(Some(entries.collect()));
        assert_eq!(put.send().await.expect("an answer").failed_record_count, Some(0));
    }
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
