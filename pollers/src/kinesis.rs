//! Kinesis: `kinesis-local` of npm, and how a stream's records are read and look in an event.

use std::{
    collections::HashMap,
    error::Error,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use aws_sdk_kinesis::{
    Client,
    config::{BehaviorVersion, Credentials, Region},
    operation::describe_stream_summary::DescribeStreamSummaryError,
    primitives::Blob,
    types::{self, Shard, ShardIteratorType, StreamStatus},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{self, Instant},
};

use crate::{
    batch::Record,
    delivery::{Delivery, Feed, iso},
    errors::chain,
    mapping::{Mapping, region},
    part::{Fetched, Running, command, free_port},
};

const ACCOUNT: &str = "123456789012";

/// The wait before a shard without new records is read again.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The time between two searches for new shards.
const DISCOVERY: Duration = Duration::from_secs(1);

const KINESIS: Fetched = Fetched {
    name: "kinesis-local",
    manifests: &[
        ("package.json", include_str!("../kinesis/package.json")),
        ("package-lock.json", include_str!("../kinesis/package-lock.json")),
    ],
    program: "npm",
    arguments: &["ci", "--ignore-scripts", "--no-audit", "--no-fund"],
    packages: "Node.js with npm (`apt-get install nodejs npm`)",
};

/// By itself, it would listen on all addresses of the machine.
const ON_LOOPBACK: &str = r#"
const { Server } = require("net"), { listen } = Server.prototype;
Server.prototype.listen = function (at, ...rest) { return listen.call(this, { ...(typeof at == "object" ? at : { port: at }), host: "127.0.0.1" }, ...rest); };
require("./main.js");
"#;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Starts Kinesis on this port, 0 for any free one.
///
/// # Errors
/// If it cannot be fetched or started.
pub async fn start(port: u16) -> Result<(Running, String), String> {
    let folder = KINESIS.folder().await?;
    let port = if port == 0 { free_port()? } else { port };
    let mut node = command("node", &folder.join("node_modules/kinesis-local"));
    // One port is for TLS, which is not used here.
    let settings = [("KINESIS_MOCK_PLAIN_PORT", port.to_string()), ("KINESIS_MOCK_TLS_PORT", "0".to_owned())];
    let names = [
        "CREATE_STREAM_DURATION",
        "SPLIT_SHARD_DURATION",
        "MERGE_SHARDS_DURATION",
        "UPDATE_SHARD_COUNT_DURATION",
    ];
    node.args(["-e", ON_LOOPBACK]).envs(settings).envs(names.map(|name| (name, "50ms")));
    node.envs([
        ("AWS_REGION", region()),
        ("AWS_ACCOUNT_ID", ACCOUNT.to_owned()),
        ("LOG_LEVEL", "WARN".to_owned()),
    ]);
    let own = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut running = Running::start(node, own)?;
    let listens = running.listens(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
    listens.map_err(|why| format!("Kinesis does not start: {why}"))?;
    Ok((running, format!("http://127.0.0.1:{port}")))
}

/// A client of the Kinesis at this address.
pub fn client(endpoint: &str) -> Client {
    let config = aws_sdk_kinesis::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region()))
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(endpoint);
    Client::from_conf(config.build())
}

/// Creates the stream, if it is not there, and returns its ARN, and when it was created.
///
/// # Errors
/// If Kinesis refuses it.
pub async fn create(client: &Client, stream: &str, shards: i32) -> Outcome<(String, SystemTime)> {
    loop {
        let described = client.describe_stream_summary().stream_name(stream).send().await;
        match described.map_err(aws_sdk_kinesis::error::SdkError::into_service_error) {
            Ok(described) => {
                let summary = described.stream_description_summary.ok_or("no summary")?;
                if summary.stream_status == StreamStatus::Active {
                    return Ok((summary.stream_arn, summary.stream_creation_timestamp.try_into()?));
                }
                time::sleep(POLL_INTERVAL).await;
            }
            Err(DescribeStreamSummaryError::ResourceNotFoundException(_)) => {
                let created = client.create_stream().stream_name(stream).shard_count(shards).send().await;
                match created.map_err(aws_sdk_kinesis::error::SdkError::into_service_error) {
                    // Another poller was first.
                    Err(error) if !error.is_resource_in_use_exception() => return Err(error.into()),
                    _ => {}
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Publishes a record, and returns its sequence number.
///
/// # Errors
/// If it was perhaps not published.
pub async fn put(client: &Client, stream: &str, key: &str, data: &[u8]) -> Outcome<String> {
    let put = client.put_record().stream_name(stream).partition_key(key).data(Blob::new(data));
    Ok(put.send().await?.sequence_number)
}

/// A stream, and how its records look.
pub struct Stream {
    pub client: Client,
    pub name: String,
    pub arn: String,
    pub created: SystemTime,
}

impl Feed for Stream {
    fn source(&self) -> String {
        format!("{} of {}", self.arn, iso(self.created))
    }

    fn event(&self, records: &[Record]) -> String {
        let events: Vec<_> = records.iter().map(|record| &*record.event).collect();
        format!(r#"{{"Records":[{}]}}"#, events.join(","))
    }

    fn places(&self, records: &[Record]) -> (&'static str, Value) {
        let (first, last) = (&records[0], &records[records.len() - 1]);
        let places = json!({
            "shardId": &*first.lane,
            "startSequenceNumber": first.place,
            "endSequenceNumber": last.place,
            "approximateArrivalOfFirstRecord": iso(first.arrived),
            "approximateArrivalOfLastRecord": iso(last.arrived),
            "batchSize": records.len(),
            "streamArn": self.arn,
        });
        ("KinesisBatchInfo", places)
    }
}

/// The mapping of a stream, which it creates if it is not there.
///
/// # Errors
/// If it cannot begin.
pub async fn mapping(
    client: Client,
    stream: &str,
    shards: i32,
    mapping: Mapping,
) -> Result<Delivery<Stream>, String> {
    let created = create(&client, stream, shards).await;
    let (arn, created) = created.map_err(|error| format!("the stream {stream}: {}", chain(&*error)))?;
    Delivery::new(Stream { client, name: stream.to_owned(), arn, created }, mapping, &region())
}

/// Follows the stream without end: each shard from its checkpoint, and after its parents, with one batch at a time.
pub async fn follow(delivery: Arc<Delivery<Stream>>) {
    // Each shard, and whether it has been read to its end.
    let mut shards: HashMap<String, bool> = HashMap::new();
    let mut readers = JoinSet::new();
    loop {
        match list(&delivery.feed).await {
            Ok(listed) => {
                let next: Vec<_> = listed.iter().filter(|shard| is_next(shard, &listed, &shards)).collect();
                for shard in next {
                    shards.insert(shard.shard_id.clone(), false);
                    readers.spawn(read(delivery.clone(), shard.shard_id.clone()));
                }
            }
            Err(error) => delivery.say(&format!("cannot list the stream's shards: {}", chain(&*error))),
        }
        let next = Instant::now() + DISCOVERY;
        while let Ok(Some(ended)) = time::timeout_at(next, readers.join_next()).await {
            // A reader that panicked is not at its end.
            let Ok(shard) = ended else { continue };
            shards.insert(shard, true);
        }
        time::sleep_until(next).await;
    }
}

/// Whether a shard is not read yet, and those that it came from are at their end. One that is no longer listed has expired.
fn is_next(shard: &Shard, listed: &[Shard], shards: &HashMap<String, bool>) -> bool {
    let parents = [&shard.parent_shard_id, &shard.adjacent_parent_shard_id];
    let is_over = |parent: &String| {
        shards.get(parent) == Some(&true) || listed.iter().all(|shard| shard.shard_id != *parent)
    };
    !shards.contains_key(&shard.shard_id) && parents.into_iter().flatten().all(is_over)
}

async fn list(stream: &Stream) -> Outcome<Vec<Shard>> {
    let (mut shards, mut next) = (Vec::new(), None::<String>);
    loop {
        let list = stream.client.list_shards();
        let list = match next {
            // A token has the stream's name.
            Some(token) => list.next_token(token),
            None => list.stream_name(&stream.name),
        };
        let answer = list.send().await?;
        shards.extend(answer.shards.unwrap_or_default());
        next = answer.next_token;
        if next.is_none() {
            return Ok(shards);
        }
    }
}

/// Reads a shard to its end, and returns its id.
async fn read(delivery: Arc<Delivery<Stream>>, shard: String) -> String {
    let lane: Arc<str> = shard.as_str().into();
    let mut iterator = None;
    loop {
        match page(&delivery, &lane, iterator.take()).await {
            Ok((records, next)) => {
                let is_empty = records.is_empty();
                delivery.deliver(records).await;
                if next.is_none() {
                    return shard;
                }
                iterator = next;
                if !is_empty {
                    continue;
                }
            }
            Err(error) => delivery.say(&format!("cannot read {shard}: {}", chain(&*error))),
        }
        time::sleep(POLL_INTERVAL).await;
    }
}

/// The next records of a shard, and what reads those behind them: nothing, at its end.
async fn page(
    delivery: &Delivery<Stream>,
    shard: &Arc<str>,
    iterator: Option<String>,
) -> Outcome<(Vec<Record>, Option<String>)> {
    let Stream { client, name, arn, .. } = &delivery.feed;
    let iterator = match iterator {
        Some(iterator) => iterator,
        // At first, and after an error, because an iterator expires.
        None => {
            let after = delivery.checkpoints.last(shard);
            let from = match &after {
                Some(_) => ShardIteratorType::AfterSequenceNumber,
                None => ShardIteratorType::TrimHorizon,
            };
            let get = client.get_shard_iterator().stream_name(name).shard_id(&**shard);
            let got = get.shard_iterator_type(from).set_starting_sequence_number(after).send().await?;
            got.shard_iterator.ok_or("no iterator")?
        }
    };
    let limit = i32::try_from(delivery.mapping.batch_size)?;
    let answer = client.get_records().shard_iterator(iterator).limit(limit).send().await?;
    let records = answer.records.iter().map(|record| of(record, shard, arn)).collect::<Outcome<_>>()?;
    Ok((records, answer.next_shard_iterator))
}

/// A record as Lambda hands it over (<https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html>).
fn of(record: &types::Record, shard: &Arc<str>, arn: &str) -> Outcome<Record> {
    let arrived = record.approximate_arrival_timestamp.ok_or("a record has no time")?;
    let number = &record.sequence_number;
    let event = json!({
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": record.partition_key,
            "sequenceNumber": number,
            "data": BASE64_STANDARD.encode(&record.data),
            "approximateArrivalTimestamp": arrived.as_secs_f64(),
        },
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": format!("{shard}:{number}"),
        "eventName": "aws:kinesis:record",
        "invokeIdentityArn": format!("arn:aws:iam::{ACCOUNT}:role/local"),
        "awsRegion": region(),
        "eventSourceARN": arn,
    });
    Ok(Record {
        lane: shard.clone(),
        place: number.clone(),
        item: json!(number),
        event: event.to_string(),
        arrived: arrived.try_into()?,
    })
}
