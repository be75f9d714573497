//! The poller of Kinesis, with a real stream.

mod support;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use aws_sdk_kinesis::{Client, primitives::Blob, types::PutRecordsRequestEntry};
use lambda_idempotency::event::{Shards, SourceKind};
use pollers::{kinesis, mapping::Mapping, part};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    task::JoinHandle,
    time,
};

use support::{
    Function,
    orders::{Order, halves, orders, records},
};

const STREAM: &str = "orders";
/// Records of one call.
const AT_ONCE: usize = 50;

/// Publishes them: those of a customer one after another, many at once. (On AWS, such a call may change their order.)
async fn put(client: &Client, orders: &[Vec<Order>]) {
    let longest = orders.iter().map(Vec::len).max().unwrap_or_default();
    let in_turn = (0..longest).flat_map(|nth| orders.iter().filter_map(move |orders| orders.get(nth)));
    for some in in_turn.collect::<Vec<_>>().chunks(AT_ONCE) {
        let entries = some.iter().map(|order| {
            let entry = PutRecordsRequestEntry::builder().partition_key(&order.customer);
            entry.data(Blob::new(order.body())).build().expect("an entry")
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

/// A poller that goes on from the checkpoints of the mapping.
async fn follow(client: &Client, mapping: &Mapping) -> JoinHandle<()> {
    let mapping = kinesis::mapping(client.clone(), STREAM, 2, mapping.clone()).await.expect("a mapping");
    tokio::spawn(kinesis::follow(Arc::new(mapping)))
}

// T1, T2, T9, T64, T66
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(kinesis), ignore = "KINESIS=required runs it")]
async fn orders_of_a_split_stream_ship_once_though_instances_die() {
    let (_running, endpoint) = kinesis::start(0).await.expect("Kinesis");
    let client = kinesis::client(&endpoint);
    let folder = tempfile::tempdir().expect("a folder");
    let function = Function::start(SourceKind::Kinesis(Shards::default()), STREAM).await;
    let mapping = Mapping { checkpoints: Some(folder.path().join("checkpoints")), ..function.mapping() };

    let first = follow(&client, &mapping).await;
    let orders = orders(records());
    let [before, after] = halves(&orders);
    let next = async || follow(&client, &mapping).await;
    let test = async {
        let ((), second) = tokio::join!(put(&client, &before), function.change_poller(first, next));
        split(&client).await;
        put(&client, &after).await;
        function.until_done(records()).await;
        second.abort();
    };
    function.reconciled(test).await;
    function.assert_shipped(&orders);
    for shard in 0..4 {
        assert!(function.has_done(&format!("shardId-{shard:012}:")), "shard {shard} has no records");
    }
}

#[tokio::test]
#[cfg_attr(not(kinesis), ignore = "KINESIS=required runs it")]
async fn a_part_and_its_files_go_with_the_poller_that_started_it() {
    let (folder, port) = (tempfile::tempdir().expect("a folder"), part::free_port().expect("a port"));
    let mut follow = Command::new(env!("CARGO_BIN_EXE_kinesis-stream"));
    follow.args(["follow", "--function", "ship", "--stream", STREAM, "--port", &port.to_string()]);
    let follow = follow.env("TMPDIR", folder.path()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut poller = follow.spawn().expect("it starts");
    let mut lines = BufReader::new(poller.stdout.take().expect("its output")).lines();
    let line = lines.next_line().await.expect("a line").expect("a line");
    assert!(line.contains("follows the stream orders"), "{line}");

    let is_here = || {
        let files = fs::read_dir(folder.path()).expect("the folder").count();
        (part::listens(SocketAddr::from((Ipv4Addr::LOCALHOST, port))), files)
    };
    assert_eq!(is_here(), (true, 1));
    // Without any time to tidy up.
    poller.kill().await.expect("it is killed");
    let gone = async {
        while is_here() != (false, 0) {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(time::timeout(Duration::from_secs(60), gone).await.is_ok(), "{:?}", is_here());
}
