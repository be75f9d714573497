//! Records of a stream of Kinesis.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    data,
    received::{Feed, Has, Received},
    shard::{self, Shards},
};
use crate::{
    event::{DeadMessage, Message, disposition::Again},
    store::stream::text_member,
    time::Timestamp,
};

/// Lambda's name for Kinesis.
const KINESIS: &str = "aws:kinesis";

pub(super) struct Kinesis(pub(super) Shards);

/// A record as Lambda hands it over (<https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html>). Any member may be missing or null, and
/// there may be others.
#[derive(Deserialize)]
struct KinesisRecord {
    kinesis: Option<Data>,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: Option<String>,
    #[serde(rename = "eventSource")]
    event_source: Option<String>,
    #[serde(rename = "eventID")]
    event_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    partition_key: Option<String>,
    sequence_number: Option<String>,
    data: Option<String>,
    /// In seconds.
    approximate_arrival_timestamp: Option<f64>,
}

const NOT_OF_KINESIS: &str = "the record is not as Kinesis writes it";

/// The stream's name in an ARN, which may be that of a consumer with enhanced fan-out.
fn name_in(arn: &str) -> Option<&str> {
    arn.split_once(":stream/").and_then(|(_, rest)| rest.split('/').next())
}

impl Feed for Kinesis {
    fn system(&self) -> &'static str {
        "aws_kinesis"
    }

    fn noun(&self) -> &'static str {
        "stream"
    }

    fn has(&self) -> Has {
        Has { deduplication_id: false, attributes: false, record_id: true }
    }

    fn max_attempts(&self) -> u32 {
        shard::MAX_ATTEMPTS
    }

    fn seen_of_an_attempt(&self) -> u32 {
        1
    }

    fn read(&self, raw: Box<RawValue>, name: &str) -> Received {
        let Ok(record) = serde_json::from_str::<KinesisRecord>(raw.get()) else {
            let data = serde_json::from_str::<serde_json::Value>(raw.get()).unwrap_or_default();
            let text = |name: &str| data["kinesis"][name].as_str().map(str::to_owned);
            let lane = if self.0.lane_by_shard { Some("shard".to_owned()) } else { text("partitionKey") };
            return Received {
                message: Message { id: text_member(raw.get(), "eventID"), ..Message::default() },
                receipt: None,
                item: text("sequenceNumber"),
                foreign: None,
                unusable: Some(NOT_OF_KINESIS.to_owned()),
                lane,
                sent_at: None,
                raw: Some(raw),
            };
        };
        let KinesisRecord { kinesis, event_source_arn, event_source, event_id } = record;
        let arn = event_source_arn.unwrap_or_default();
        let is_ours = event_source.as_deref() == Some(KINESIS) && name_in(&arn) == Some(name);
        let foreign =
            (!is_ours).then(|| if arn.is_empty() { "an unknown source".to_owned() } else { arn.clone() });
        let kinesis = kinesis.unwrap_or(Data {
            partition_key: None,
            sequence_number: None,
            data: None,
            approximate_arrival_timestamp: None,
        });
        let shard = event_id.as_deref().and_then(|id| id.split(':').next()).unwrap_or_default();
        let item = kinesis.sequence_number.filter(|number| !number.is_empty());
        let body = kinesis.data.as_deref().map_or(Err("it has no data"), data::text);
        let lane = match &kinesis.partition_key {
            _ if self.0.lane_by_shard => Some(format!("shard {shard}")),
            key => key.as_ref().map(|key| format!("key {key}")),
        };
        let record_id = item.clone().filter(|_| !arn.is_empty() && !shard.is_empty());
        let record_id = record_id.map(|number| vec![arn.clone(), shard.to_owned(), number]);
        // A float has whole seconds exactly, and milliseconds almost.
        let sent_at = kinesis.approximate_arrival_timestamp.filter(|at| at.is_finite() && *at >= 0.0);
        let sent_at = sent_at.and_then(|at| Duration::try_from_secs_f64(at).ok());
        Received {
            message: Message {
                id: event_id,
                body: body.clone().unwrap_or_default(),
                group: kinesis.partition_key,
                record_id,
                receives: 1,
                ..Message::default()
            },
            receipt: None,
            item,
            foreign,
            unusable: body.err().map(str::to_owned),
            lane,
            sent_at: sent_at
                .map(|at| Timestamp::from_millis(u64::try_from(at.as_millis()).unwrap_or(u64::MAX))),
            raw: Some(raw),
        }
    }

    fn after(&self, again: Again, seen: u32, nonce: [u8; 16]) -> Duration {
        self.0.pause(again, seen, nonce)
    }

    fn waits(&self) -> bool {
        true
    }

    fn gives_up(&self, again: Again, age: Duration, is_last: bool) -> Option<String> {
        self.0.gives_up(again, age, is_last)
    }

    fn letter(&self, received: &Received) -> DeadMessage {
        shard::letter(received)
    }
}
