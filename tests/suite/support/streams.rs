//! Batches of streams' records, as Lambda hands them over.

use std::io::Write;

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, write::GzEncoder};
use lambda_idempotency::time::Timestamp;
use serde_json::{Map, Value, json};

/// The stream that the records are from.
pub const STREAM: &str = "parcels";

/// The shard that they are from.
pub const SHARD: &str = "shardId-000000000006";

/// A record of Kinesis with these bytes, with the members that AWS documents (<https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html>).
pub fn bytes(number: u32, key: &str, data: &[u8], at: Timestamp) -> Value {
    let sequence = sequence(number);
    json!({
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": key,
            "sequenceNumber": sequence,
            "data": BASE64_STANDARD.encode(data),
            "approximateArrivalTimestamp": seconds(at)
        },
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": format!("{SHARD}:{sequence}"),
        "eventName": "aws:kinesis:record",
        "invokeIdentityArn": "arn:aws:iam::123456789012:role/lambda-role",
        "awsRegion": "us-east-2",
        "eventSourceARN": format!("arn:aws:kinesis:us-east-2:123456789012:stream/{STREAM}")
    })
}

/// The same with text.
pub fn record(number: u32, key: &str, body: impl ToString, at: Timestamp) -> Value {
    bytes(number, key, body.to_string().as_bytes(), at)
}

/// Its sequence number.
pub fn sequence(number: u32) -> String {
    format!("4959033827149025660855969253836157109592157598913658{number:04}")
}

/// A change of this item, with the members that AWS documents (<https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html>).
pub fn change(number: u32, keys: &Value, image: &Value, at: Timestamp) -> Value {
    json!({
        "eventID": format!("{number:032x}"),
        "eventVersion": "1.0",
        "dynamodb": {
            "Keys": keys,
            "NewImage": image,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
            "SequenceNumber": number.to_string(),
            "ApproximateCreationDateTime": seconds(at),
            "SizeBytes": 26
        },
        "awsRegion": "us-west-2",
        "eventName": "INSERT",
        "eventSourceARN": format!("arn:aws:dynamodb:us-east-2:123456789012:table/{STREAM}/stream/2015-06-27T00:48:05.899"),
        "eventSource": "aws:dynamodb"
    })
}

/// Compressed, as CloudWatch Logs does.
pub fn gzip(data: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(data).expect("memory");
    packed.finish().expect("memory")
}

#[expect(clippy::cast_precision_loss, reason = "as AWS writes it")]
fn seconds(at: Timestamp) -> f64 {
    at.as_millis() as f64 / 1e3
}

/// A record of the topic of that name with these bytes, with the members that AWS documents
/// (<https://docs.aws.amazon.com/lambda/latest/dg/with-msk.html>). `None` is a tombstone.
pub fn of_topic(
    partition: u32,
    offset: u32,
    key: Option<&str>,
    value: Option<&[u8]>,
    at: Timestamp,
) -> Value {
    json!({
        "topic": STREAM,
        "partition": partition,
        "offset": offset,
        "timestamp": at.as_millis(),
        "timestampType": "CREATE_TIME",
        "key": key.map(|key| BASE64_STANDARD.encode(key)),
        "value": value.map(|value| BASE64_STANDARD.encode(value)),
        "headers": [{ "shop": b"tea".to_vec() }],
    })
}

/// A batch of records of a topic, by their partitions.
pub fn batch_of_topic(records: &[Value]) -> Value {
    let mut by_partition = Map::new();
    for record in records {
        let partition = format!("{}-{}", STREAM, record["partition"]);
        let of_one = by_partition.entry(partition).or_insert_with(|| json!([]));
        of_one.as_array_mut().expect("a list").push(record.clone());
    }
    json!({
        "eventSource": "aws:kafka",
        "eventSourceArn": "arn:aws:kafka:us-east-2:123456789012:cluster/vpc/751d2973-a626-431c-9d4e-d7975eb44dd7-2",
        "bootstrapServers": "b-2.demo.a1bcde.c1.kafka.us-east-2.amazonaws.com:9092",
        "records": by_partition,
    })
}
