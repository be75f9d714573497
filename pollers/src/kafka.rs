//! Kafka: one broker of Maven Central, and how a topic's records are read and look in an event.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::future::join_all;
use rskafka::{
    BackoffConfig,
    chrono::DateTime,
    client::{
        Client, ClientBuilder,
        error::{Error, ProtocolError, RequestError},
        partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling},
    },
    record::{Record as Raw, RecordAndOffset},
};
use serde_json::{Map, Value, json};
use tokio::{process::Command, time};

use crate::{
    batch::Record,
    delivery::{Delivery, Feed, iso},
    errors::chain,
    mapping::{Mapping, region},
    part::{Fetched, Running, command, free_port, succeeded},
};

/// How long a broker waits for records.
const FETCH_WAIT_MS: i32 = 200;
/// Bytes of one partition that are fetched at once.
const FETCH_BYTES: i32 = 1_048_576;
/// A broker sends a first batch that is longer.
const FIRST_BATCH: i32 = 2;
/// The time between two searches for new partitions.
const DISCOVERY: Duration = Duration::from_secs(1);
const CREATED_WITHIN_MS: i32 = 10_000;

/// Without this, the client tries for ever, without a word.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

const PACKAGES: &str = "Java 17 and Maven (`apt-get install openjdk-17-jdk-headless maven`)";
const KAFKA: Fetched = Fetched {
    name: "kafka",
    manifests: &[("pom.xml", include_str!("../kafka/pom.xml"))],
    program: "mvn",
    arguments: &[
        "--quiet",
        "--batch-mode",
        "--strict-checksums",
        "dependency:copy-dependencies",
        "-DoutputDirectory=lib",
    ],
    packages: PACKAGES,
};

/// It runs for minutes only: the second compiler would take longer than it saves.
const JVM: [&str; 4] = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx512m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
];

/// Starts a broker on this port, 0 for any free one. Its address is for clients.
///
/// # Errors
/// If it cannot be fetched or started.
pub async fn start(port: u16) -> Result<(Running, String), String> {
    let jars = KAFKA.folder().await?.join("lib/*");
    let port = if port == 0 { free_port()? } else { port };
    let own = tempfile::tempdir().map_err(|error| error.to_string())?;
    let settings = own.path().join("server.properties");
    std::fs::write(&settings, properties(port, free_port()?, own.path()))
        .map_err(|error| error.to_string())?;
    let java = |mut java: Command| {
        java.args(JVM).arg("-cp").arg(&jars);
        java
    };
    let mut format = java(Command::new("java"));
    format.args(["kafka.tools.StorageTool", "format", "-t", "bG9jYWwtY2xvdWQtbG9jYQ", "-c"]).arg(&settings);
    succeeded("java", format.kill_on_drop(true).output().await, PACKAGES)?;
    let mut broker = java(command("java", own.path()));
    broker.arg("kafka.Kafka").arg(&settings);
    let mut running = Running::start(broker, own)?;
    let listens = running.listens(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
    listens.map_err(|why| format!("Kafka does not start: {why}"))?;
    Ok((running, format!("127.0.0.1:{port}")))
}

fn properties(port: u16, controller: u16, folder: &Path) -> String {
    format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
log.dirs={}
offsets.topic.replication.factor=1
auto.create.topics.enable=false
",
        folder.join("data").display()
    )
}

/// A client of the broker at this address.
///
/// # Errors
/// If no broker answers there, or it refuses it.
pub async fn client(address: &str) -> Result<Client, String> {
    let backoff = BackoffConfig { deadline: Some(ANSWERS_WITHIN), ..BackoffConfig::default() };
    let client = ClientBuilder::new(vec![address.to_owned()]).backoff_config(backoff).build().await;
    client.map_err(|error| format!("Kafka at {address}: {}", chain(&error)))
}

/// Creates the topic, if it is not there, and returns whether it was not.
///
/// # Errors
/// If the broker refuses it.
pub async fn create(client: &Client, topic: &str, partitions: i32) -> Result<bool, String> {
    let created = client.controller_client().map_err(|error| chain(&error))?;
    match created.create_topic(topic, partitions, 1, CREATED_WITHIN_MS).await {
        Ok(()) => Ok(true),
        Err(Error::ServerError { protocol_error: ProtocolError::TopicAlreadyExists, .. }) => Ok(false),
        Err(error) => Err(format!("the topic {topic}: {}", chain(&error))),
    }
}

/// The partitions of a topic.
///
/// # Errors
/// If it has none.
pub async fn partitions(client: &Client, topic: &str) -> Result<Vec<PartitionClient>, String> {
    let listed = client.list_topics().await.map_err(|error| chain(&error))?;
    let found = listed.into_iter().find(|listed| listed.name == topic);
    let found = found.ok_or_else(|| format!("there is no topic {topic}"))?;
    let of = |partition| client.partition_client(topic, partition, UnknownTopicHandling::Retry);
    let partitions = join_all(found.partitions.into_iter().map(of)).await;
    partitions.into_iter().map(|partition| partition.map_err(|error| chain(&error))).collect()
}

/// Publishes a record to the partition of its key, and returns where it is.
///
/// # Errors
/// If it was perhaps not published.
pub async fn put(partitions: &[PartitionClient], key: &str, value: &[u8]) -> Result<String, String> {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let partition = &partitions[(hasher.finish() % partitions.len() as u64) as usize];
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = i64::try_from(now).unwrap_or_default();
    let record = Raw {
        key: Some(key.as_bytes().to_vec()),
        value: Some(value.to_vec()),
        headers: BTreeMap::new(),
        timestamp: DateTime::from_timestamp_millis(now).unwrap_or_default(),
    };
    let offsets = partition.produce(vec![record], Compression::NoCompression).await;
    let offsets = offsets.map_err(|error| chain(&error))?;
    Ok(format!("{}-{}@{}", partition.topic(), partition.partition(), offsets.first().copied().unwrap_or(-1)))
}

/// A topic, and how its records look.
pub struct Topic {
    pub client: Client,
    pub name: String,
    /// The ARN of its cluster, as MSK has one.
    pub cluster: Option<String>,
    pub address: String,
}

impl Topic {
    /// What an event or a letter says of the cluster.
    fn cluster(&self) -> Map<String, Value> {
        let mut members = Map::from_iter([("bootstrapServers".to_owned(), json!(self.address))]);
        members.extend(self.cluster.iter().map(|arn| ("eventSourceArn".to_owned(), json!(arn))));
        members
    }
}

impl Feed for Topic {
    fn source(&self) -> String {
        format!("the topic {} at {}", self.name, self.address)
    }

    fn event(&self, records: &[Record]) -> String {
        let mut partitions = BTreeMap::<&str, Vec<&str>>::new();
        for record in records {
            partitions.entry(&record.lane).or_default().push(&record.event);
        }
        let partitions =
            partitions.iter().map(|(lane, events)| format!("{}:[{}]", json!(lane), events.join(",")));
        let source = if self.cluster.is_some() { "aws:kafka" } else { "SelfManagedKafka" };
        let mut event = self.cluster();
        event.insert("eventSource".to_owned(), json!(source));
        let event = Value::from(event).to_string();
        let members = event.trim_end_matches('}');
        format!(r#"{members},"records":{{{}}}}}"#, partitions.collect::<Vec<_>>().join(","))
    }

    fn places(&self, records: &[Record]) -> (&'static str, Value) {
        let mut partitions = Map::new();
        for record in records {
            let place = partitions.entry(&*record.lane).or_insert_with(
                || json!({ "firstRecordOffset": record.place, "firstRecordTimestamp": iso(record.arrived) }),
            );
            place["lastRecordOffset"] = json!(record.place);
            place["lastRecordTimestamp"] = json!(iso(record.arrived));
        }
        let mut places = self.cluster();
        places.insert("batchSize".to_owned(), json!(records.len()));
        places.insert("payloadSize".to_owned(), json!(self.event(records).len()));
        places.insert("recordsInfo".to_owned(), partitions.into());
        ("KafkaBatchInfo", places.into())
    }
}

/// The mapping of a topic, which it creates if it is not there.
///
/// # Errors
/// If it cannot begin.
pub async fn mapping(topic: Topic, partitions: i32, mapping: Mapping) -> Result<Delivery<Topic>, String> {
    let is_new = create(&topic.client, &topic.name, partitions).await?;
    let delivery = Delivery::new(topic, mapping, &region())?;
    if is_new {
        // They are of an earlier broker, whose data is gone.
        delivery.checkpoints.forget()?;
    }
    Ok(delivery)
}

/// Follows the topic without end: all its partitions, each from its checkpoint, with one batch at a time.
pub async fn follow(delivery: Arc<Delivery<Topic>>) {
    let (mut known, mut searched) = (Vec::new(), None::<Instant>);
    loop {
        if searched.is_none_or(|searched| searched.elapsed() > DISCOVERY) {
            match partitions(&delivery.feed.client, &delivery.feed.name).await {
                Ok(found) => known = found,
                Err(why) => delivery.say(&format!("cannot list the topic's partitions: {why}")),
            }
            searched = Some(Instant::now());
        }
        let pages = join_all(known.iter().map(|partition| page(&delivery, partition))).await;
        let (mut records, mut is_failing) = (Vec::new(), known.is_empty());
        for page in pages {
            match page {
                Ok(page) => records.extend(page.into_iter().enumerate()),
                Err(why) => {
                    delivery.say(&why);
                    is_failing = true;
                }
            }
        }
        // A batch has records of all partitions.
        records.sort_by_key(|(nth, _)| *nth);
        delivery.deliver(records.into_iter().map(|(_, record)| record).collect()).await;
        if is_failing {
            time::sleep(DISCOVERY).await;
        }
    }
}

/// The next records of a partition.
///
/// # Errors
/// If they cannot be read: a line that says so.
async fn page(delivery: &Delivery<Topic>, partition: &PartitionClient) -> Result<Vec<Record>, String> {
    let lane: Arc<str> = format!("{}-{}", delivery.feed.name, partition.partition()).into();
    let last = delivery.checkpoints.last(&lane).and_then(|place| place.parse::<i64>().ok());
    let next = match last {
        Some(last) => Ok(last + 1),
        None => partition.get_offset(OffsetAt::Earliest).await,
    };
    let next = next.map_err(|error| format!("cannot read {lane}: {}", chain(&error)))?;
    let records = fetch(delivery, partition, &lane, next).await.map_err(|error| {
        let why = chain(&error);
        if is_unreadable(&error) {
            format!(
                "{lane} stops at offset {next}, and on AWS it would not: the client of Kafka that is used here reads no compressed record, and \
                 none with a header that is null ({why})"
            )
        } else {
            format!("cannot read {lane} from offset {next}: {why}")
        }
    })?;
    let topic = &delivery.feed.name;
    Ok(records.iter().map(|record| of(record, topic, partition.partition(), &lane)).collect())
}

/// Whether the broker's answer came, and is not understood.
fn is_unreadable(error: &Error) -> bool {
    matches!(error, Error::Request(RequestError::ReadError(_) | RequestError::ReadVersionedError(_)))
}

/// The records of a partition from this offset, or from the earliest one if it is gone.
async fn fetch(
    delivery: &Delivery<Topic>,
    partition: &PartitionClient,
    lane: &str,
    next: i64,
) -> Result<Vec<RecordAndOffset>, Error> {
    let read = async |from, bytes| partition.fetch_records(from, 1..bytes, FETCH_WAIT_MS).await;
    let (mut from, mut fetched) = (next, read(next, FETCH_BYTES).await);
    if let Err(Error::ServerError { protocol_error: ProtocolError::OffsetOutOfRange, .. }) = fetched {
        delivery.say(&format!("{lane} has no offset {next} (any more): it goes on from the earliest"));
        from = partition.get_offset(OffsetAt::Earliest).await?;
        fetched = read(from, FETCH_BYTES).await;
    }
    // What is in front of a batch that cannot be read is read alone.
    if fetched.as_ref().is_err_and(is_unreadable) {
        fetched = read(from, FIRST_BATCH).await;
    }
    fetched.map(|(records, _)| records)
}

/// A record as Lambda hands it over (<https://docs.aws.amazon.com/lambda/latest/dg/with-msk.html>). A tombstone has no value.
fn of(raw: &RecordAndOffset, topic: &str, partition: i32, lane: &Arc<str>) -> Record {
    let RecordAndOffset { record, offset } = raw;
    let sent = u64::try_from(record.timestamp.timestamp_millis()).unwrap_or_default();
    let header = |(name, bytes): (&String, &Vec<u8>)| {
        // Java's bytes have a sign.
        let bytes: Vec<_> = bytes.iter().map(|byte| byte.cast_signed()).collect();
        json!({ name: bytes })
    };
    let mut event = json!({
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": record.timestamp.timestamp_millis(),
        "timestampType": "CREATE_TIME",
        "headers": record.headers.iter().map(header).collect::<Vec<_>>(),
    });
    for (member, bytes) in [("key", &record.key), ("value", &record.value)] {
        if let Some(bytes) = bytes {
            event[member] = json!(BASE64_STANDARD.encode(bytes));
        }
    }
    Record {
        lane: lane.clone(),
        place: offset.to_string(),
        item: json!({ "partition": &**lane, "offset": offset }),
        event: event.to_string(),
        arrived: SystemTime::UNIX_EPOCH + Duration::from_millis(sent),
    }
}
