//! Batches of messages, as Lambda hands them over.

use base64::{Engine, prelude::BASE64_STANDARD};
use lambda_idempotency::event::{Answers, Shards, SourceKind};
use serde::Deserialize;
use serde_json::value::RawValue;

/// One message of each source. Each `KEY` in it is replaced, and each `DATA` by its order in base64.
const MESSAGES: [&str; 4] = [
    include_str!("message.json"),
    include_str!("kinesis.json"),
    include_str!("change.json"),
    include_str!("kafka.json"),
];

/// One order.
const ORDER: &str = include_str!("order.json");

/// The queue, the stream, the table and the topic that the messages are from.
pub const QUEUE: &str = "orders";

/// Where messages come from: `SOURCE`, a queue if it is not set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    Queue,
    Stream,
    Table,
    Topic,
}

/// How many batches are one sample: two, so that even of batches of a single message half can be duplicates.
const BATCHES: u64 = 2;

/// The messages of a row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub source: Source,
    /// How many messages a batch has.
    pub size: u64,
    /// How many of 100 messages are duplicates: their keys are completed.
    pub duplicates: u64,
}

impl Load {
    /// How many messages a sample has.
    pub fn messages(self) -> u64 {
        self.size * BATCHES
    }

    /// How many messages of a sample are no duplicates.
    pub fn fresh(self) -> u64 {
        (0..self.messages()).filter(|&place| !self.is_duplicate(place)).count() as u64
    }

    /// A batch of all keys whose messages come again.
    pub fn completed(self) -> String {
        self.source.event(0..self.messages())
    }

    /// The batches of a sample. Each number is another sample.
    pub fn batches(self, number: u64) -> Vec<String> {
        let key =
            |place| if self.is_duplicate(place) { place } else { (number + 1) * self.messages() + place };
        let batch = |batch| self.source.event((batch * self.size..(batch + 1) * self.size).map(key));
        (0..BATCHES).map(batch).collect()
    }

    /// Duplicates are spread evenly.
    fn is_duplicate(self, place: u64) -> bool {
        (place + 1) * self.duplicates / 100 > place * self.duplicates / 100
    }
}

impl Source {
    pub fn from_env() -> Self {
        match std::env::var("SOURCE").as_deref() {
            Err(_) | Ok("queue") => Self::Queue,
            Ok("stream") => Self::Stream,
            Ok("table") => Self::Table,
            Ok("topic") => Self::Topic,
            Ok(other) => panic!("SOURCE is {other}: it is queue, stream, table or topic"),
        }
    }

    pub fn kind(self) -> SourceKind {
        match self {
            Self::Queue => SourceKind::Sqs,
            Self::Stream => SourceKind::Kinesis(Shards::default()),
            Self::Table => SourceKind::DynamoDb(Shards::default()),
            Self::Topic => SourceKind::Kafka(Answers::Partial, Shards::default()),
        }
    }

    /// A batch of one message for each key.
    pub fn event(self, keys: impl Iterator<Item = u64>) -> String {
        let message = MESSAGES[self as usize].trim_end();
        let of = |key: u64| {
            // As many characters as a UUID has.
            let (id, number) = (format!("{key:036}"), key.to_string());
            let data = BASE64_STANDARD.encode(ORDER.trim_end().replace("KEY", &id));
            message.replace("KEY", &id).replace("DATA", &data).replace("\"NUMBER\"", &number)
        };
        let messages = keys.map(of).collect::<Vec<_>>().join(",");
        match self {
            Self::Topic => {
                format!("{{\"eventSource\":\"aws:kafka\",\"records\":{{\"orders-0\":[{messages}]}}}}")
            }
            _ => format!("{{\"Records\":[{messages}]}}"),
        }
    }

    /// The orders of a batch, as JSON.
    pub fn orders(self, event: &str) -> Vec<String> {
        let decoded =
            |data: &str| String::from_utf8(BASE64_STANDARD.decode(data).expect("base64")).expect("text");
        let records: Vec<Record> = match self {
            Self::Topic => {
                let batch: Topic = serde_json::from_str(event).expect("an event");
                batch.records.into_values().flatten().collect()
            }
            _ => serde_json::from_str::<Batch>(event).expect("an event").records,
        };
        let order = |record: Record| match record {
            Record { body: Some(body), .. } => body,
            Record { kinesis: Some(Kinesis { data }), .. } | Record { value: Some(data), .. } => {
                decoded(&data)
            }
            Record { dynamodb: Some(change), .. } => {
                serde_json::from_str::<Change>(change.get()).expect("a change").order()
            }
            _ => panic!("a record without data"),
        };
        records.into_iter().map(order).collect()
    }
}

#[derive(Deserialize)]
struct Topic {
    records: std::collections::BTreeMap<String, Vec<Record>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Batch {
    records: Vec<Record>,
}

#[derive(Deserialize)]
struct Record {
    body: Option<String>,
    kinesis: Option<Kinesis>,
    dynamodb: Option<Box<RawValue>>,
    value: Option<String>,
}

#[derive(Deserialize)]
struct Kinesis {
    data: String,
}

/// A change of a table's item, which has the order as text.
#[derive(Deserialize)]
pub struct Change {
    #[serde(rename = "NewImage")]
    image: Image,
}

#[derive(Deserialize)]
struct Image {
    order: Text,
}

#[derive(Deserialize)]
struct Text {
    #[serde(rename = "S")]
    text: String,
}

impl Change {
    pub fn order(self) -> String {
        self.image.order.text
    }
}
