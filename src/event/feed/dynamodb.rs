//! Changes of a table, as its stream has them.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    received::{Feed, Has, Received},
    shard::{self, Shards},
};
use crate::{
    event::{DeadMessage, Message, disposition::Again},
    store::stream::text_member,
    time::Timestamp,
};

/// Lambda's name for streams of DynamoDB.
const DYNAMODB: &str = "aws:dynamodb";

pub(super) struct DynamoDb(pub(super) Shards);

/// A change as Lambda hands it over (<https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html>). Any member may be missing or null, and there
/// may be others.
#[derive(Deserialize)]
struct Change<'a> {
    #[serde(borrow)]
    dynamodb: Option<Item<'a>>,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: Option<String>,
    #[serde(rename = "eventSource")]
    event_source: Option<String>,
    #[serde(rename = "eventID")]
    event_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Item<'a> {
    #[serde(borrow)]
    keys: Option<&'a RawValue>,
    sequence_number: Option<String>,
    /// In seconds.
    approximate_creation_date_time: Option<f64>,
}

const NOT_OF_DYNAMODB: &str = "the record is not as a stream of DynamoDB writes it";

/// The table's name in the ARN of its stream.
fn name_in(arn: &str) -> Option<&str> {
    arn.split_once(":table/").and_then(|(_, rest)| rest.split('/').next())
}

/// The item's key, in one form: the order of its attributes means nothing.
fn canonical(keys: &RawValue) -> Option<String> {
    let keys: serde_json::Map<String, serde_json::Value> = serde_json::from_str(keys.get()).ok()?;
    let mut keys: Vec<_> = keys.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    keys.sort_unstable();
    Some(keys.join(","))
}

impl Feed for DynamoDb {
    fn system(&self) -> &'static str {
        "aws_dynamodb"
    }

    fn noun(&self) -> &'static str {
        "table"
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
        let change = serde_json::from_str::<Change<'_>>(raw.get());
        let unusable = change.as_ref().map_or(true, |change| change.dynamodb.is_none());
        let change = change.unwrap_or_else(|_| Change {
            dynamodb: None,
            event_source_arn: text_member(raw.get(), "eventSourceARN"),
            event_source: text_member(raw.get(), "eventSource"),
            event_id: text_member(raw.get(), "eventID"),
        });
        let arn = change.event_source_arn.unwrap_or_default();
        let is_ours = change.event_source.as_deref() == Some(DYNAMODB) && name_in(&arn) == Some(name);
        let foreign =
            (!is_ours).then(|| if arn.is_empty() { "an unknown source".to_owned() } else { arn.clone() });
        let (keys, item, created) = match change.dynamodb {
            Some(item) => (
                item.keys.and_then(canonical),
                item.sequence_number.filter(|number| !number.is_empty()),
                item.approximate_creation_date_time,
            ),
            None => (None, None, None),
        };
        // A batch is of one shard.
        let lane = if self.0.lane_by_shard {
            Some("shard".to_owned())
        } else {
            keys.map(|keys| format!("item {keys}"))
        };
        // The stream's ARN has the time at which it was made.
        let record_id = change.event_id.clone().filter(|id| !id.is_empty() && !arn.is_empty());
        let created = created.filter(|at| at.is_finite() && *at >= 0.0);
        let sent_at = created.and_then(|at| Duration::try_from_secs_f64(at).ok());
        Received {
            message: Message {
                record_id: record_id.map(|id| vec![arn.clone(), id]),
                id: change.event_id,
                body: raw.get().to_owned(),
                receives: 1,
                ..Message::default()
            },
            receipt: None,
            item,
            foreign,
            unusable: unusable.then(|| NOT_OF_DYNAMODB.to_owned()),
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
