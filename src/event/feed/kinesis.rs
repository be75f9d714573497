//! Records of a stream of Kinesis.

use serde_json::{Value, value::RawValue};

use super::{
    data::{self, Room},
    received::Received,
    shard::{self, Format},
};
use crate::{
    event::{Message, disposition::Disposition},
    lambda::trigger::ItemId,
};

/// Lambda's name for Kinesis.
const KINESIS: &str = "aws:kinesis";

pub(super) struct Kinesis;

impl Format for Kinesis {
    const SYSTEM: &str = "aws_kinesis";
    const NOUN: &str = "stream";

    /// Any member may be missing, or be something else than AWS documents (<https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html>).
    fn read(&self, raw: Box<RawValue>, name: &str, lane_by_shard: bool, room: &mut Room) -> Received {
        let record: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (arn, kinesis) = (text(&record["eventSourceARN"]).unwrap_or_default(), &record["kinesis"]);
        let (id, partition_key) = (text(&record["eventID"]), text(&kinesis["partitionKey"]));
        let item = text(&kinesis["sequenceNumber"]).filter(|number| !number.is_empty());
        let shard = id.as_deref().and_then(|id| id.split(':').next()).unwrap_or_default();
        let body = match &kinesis["data"] {
            Value::String(data) => data::of_kinesis(data, room),
            Value::Null => Err(Disposition::Dead("it has no data".to_owned())),
            _ => Err(Disposition::Dead("the record is not as Kinesis writes it".to_owned())),
        };
        let lane = match &partition_key {
            // A batch is of one shard.
            _ if lane_by_shard => Some("shard".to_owned()),
            key => key.as_ref().map(|key| format!("key {key}")),
        };
        // A consumer with enhanced fan-out has an ARN of its own.
        let stream = arn.split("/consumer/").next().unwrap_or_default();
        let record_id = item.clone().filter(|_| !stream.is_empty() && !shard.is_empty());
        let record_id = record_id.map(|number| vec![stream.to_owned(), shard.to_owned(), number]);
        Received {
            receipt: None,
            item: item.map(ItemId::Id),
            foreign: shard::foreign(&arn, ":stream/", record["eventSource"] == KINESIS, name),
            unusable: body.as_ref().err().cloned(),
            lane,
            sent_at: shard::time(&kinesis["approximateArrivalTimestamp"]),
            raw: Some(raw),
            message: Message {
                body: body.unwrap_or_default(),
                group: partition_key,
                record_id,
                receives: 1,
                id,
                ..Message::default()
            },
        }
    }
}
