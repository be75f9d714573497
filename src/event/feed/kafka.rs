//! Records of a topic of Kafka: Amazon MSK, or a cluster of one's own.

use std::fmt;

use lambda_runtime::Error;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use super::{
    data::{self, Room},
    received::{Answers, Has, Received},
    shard::Format,
};
use crate::{
    event::{Message, disposition::Disposition},
    lambda::trigger::{Event, ItemId, refuse},
    time::Timestamp,
};

/// Lambda's names for Kafka.
const KAFKA: [&str; 2] = ["aws:kafka", "SelfManagedKafka"];

const NOT_OF_KAFKA: &str = "the record is not as Kafka's mapping writes it";

pub(super) struct Kafka {
    pub(super) answers: Answers,
}

/// A batch, as Lambda hands it over (<https://docs.aws.amazon.com/lambda/latest/dg/with-msk.html>).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Batch {
    event_source: String,
    #[serde(deserialize_with = "of_all_partitions")]
    records: Vec<Box<RawValue>>,
}

/// The records of all partitions. Each says itself which it is of.
fn of_all_partitions<'a, D: Deserializer<'a>>(batch: D) -> Result<Vec<Box<RawValue>>, D::Error> {
    struct Partitions;

    impl<'a> Visitor<'a> for Partitions {
        type Value = Vec<Box<RawValue>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("records by partition")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut partitions: A) -> Result<Self::Value, A::Error> {
            let mut records = Vec::new();
            // Not into a map, which would keep one of two of the same name.
            while let Some((_, of_one)) = partitions.next_entry::<IgnoredAny, Self::Value>()? {
                records.extend(of_one);
            }
            Ok(records)
        }
    }

    batch.deserialize_map(Partitions)
}

/// Bytes, as numbers with or without a sign: AWS shows both.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    let byte = |number: &Value| {
        let number = number.as_i64()?;
        u8::try_from(number).or_else(|_| i8::try_from(number).map(i8::cast_unsigned)).ok()
    };
    value.as_array()?.iter().map(byte).collect()
}

/// Puts the headers into the message: those that are text, and others. Of several with one name the last one counts, as Kafka itself has it.
fn read_headers(headers: &Value, message: &mut Message) -> Option<()> {
    if headers.is_null() {
        return Some(());
    }
    for (name, value) in headers.as_array()?.iter().filter_map(Value::as_object).flatten() {
        message.attributes.remove(name);
        message.binary_attributes.remove(name);
        if value.is_null() {
            continue;
        }
        match String::from_utf8(bytes(value)?) {
            Ok(text) => drop(message.attributes.insert(name.clone(), text)),
            Err(binary) => drop(message.binary_attributes.insert(name.clone(), binary.into_bytes())),
        }
    }
    Some(())
}

impl Format for Kafka {
    const SYSTEM: &str = "kafka";
    const NOUN: &str = "topic";
    const HAS: Has = Has { deduplication_id: false, attributes: true, record_id: true };

    fn answers(&self) -> Answers {
        self.answers
    }

    fn records(&self, event: &Event) -> Result<Vec<Box<RawValue>>, Error> {
        let batch: Batch = serde_json::from_str(event.as_str())
            .map_err(|_| refuse("it is not an object with an eventSource, and with records by partition"))?;
        match KAFKA.contains(&&*batch.event_source) {
            true => Ok(batch.records),
            false => Err(refuse("its eventSource is not Kafka's")),
        }
    }

    fn read(&self, raw: Box<RawValue>, name: &str, lane_by_shard: bool, _: &mut Room) -> Received {
        let record: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        let topic = record["topic"].as_str();
        let partition = topic.zip(record["partition"].as_u64()).map(|(topic, n)| format!("{topic}-{n}"));
        let place = partition.clone().zip(record["offset"].as_i64());
        let item = place.map(|(partition, offset)| ItemId::Offset { partition, offset });
        let timestamp = record["timestamp"].as_u64();
        let key = record["key"].as_str().filter(|key| !key.is_empty());
        let lane = match (partition, key) {
            (None, _) => None,
            (Some(partition), _) if lane_by_shard => Some(format!("shard {partition}")),
            // Without a key, Kafka itself chose the partition, and so no order.
            (Some(partition), key) => key.map(|key| format!("key {partition} {key}")),
        };
        let body = match &record["value"] {
            // A tombstone: what had this key is deleted.
            Value::Null if record.is_object() => Ok("null".to_owned()),
            Value::String(value) => data::bytes(value).and_then(data::text),
            _ => Err(Disposition::Dead(NOT_OF_KAFKA.to_owned())),
        };
        let id = item.as_ref().map(ToString::to_string);
        let mut message = Message {
            // With its time, because the offsets of a topic that is made once more begin at 0 again.
            record_id: id.clone().zip(timestamp).map(|(id, time)| vec![id, time.to_string()]),
            group: key.and_then(|key| String::from_utf8(data::bytes(key).ok()?).ok()),
            receives: 1,
            id,
            ..Message::default()
        };
        let headers = read_headers(&record["headers"], &mut message);
        let headers = headers.ok_or_else(|| Disposition::Dead(NOT_OF_KAFKA.to_owned()));
        let unusable = body.as_ref().err().or(headers.as_ref().err()).cloned();
        message.body = body.unwrap_or_default();
        let foreign = (topic != Some(name)).then(|| topic.unwrap_or("an unknown topic").to_owned());
        let sent_at = timestamp.map(Timestamp::from_millis);
        Received { message, receipt: None, item, foreign, unusable, lane, sent_at, raw: Some(raw) }
    }

    fn alone(&self, raw: &str, item: Option<&ItemId>) -> String {
        let partition = match item {
            Some(ItemId::Offset { partition, .. }) => partition,
            _ => "unknown",
        };
        let ([source, _], partition) = (KAFKA, Value::from(partition));
        format!("{{\"parked\":true,\"eventSource\":\"{source}\",\"records\":{{{partition}:[{raw}]}}}}")
    }
}
