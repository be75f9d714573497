//! Changes of a table, as its stream has them.

use serde_json::{Value, value::RawValue};

use super::{
    data::Room,
    received::Received,
    shard::{self, Format},
};
use crate::{
    event::{Message, disposition::Disposition},
    lambda::trigger::ItemId,
};

/// Lambda's name for streams of DynamoDB.
const DYNAMODB: &str = "aws:dynamodb";

/// The item's key, in one form: the order of its attributes means nothing.
fn canonical(keys: &Value) -> Option<String> {
    let mut keys: Vec<_> = keys.as_object()?.iter().map(|(name, value)| format!("{name}={value}")).collect();
    keys.sort_unstable();
    Some(keys.join(","))
}

pub(super) struct DynamoDb;

impl Format for DynamoDb {
    const SYSTEM: &str = "aws_dynamodb";
    const NOUN: &str = "table";

    /// Any member may be missing, or be something else than AWS documents (<https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html>).
    fn read(&self, raw: Box<RawValue>, name: &str, lane_by_shard: bool, _: &mut Room) -> Received {
        let record: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (arn, change) = (text(&record["eventSourceARN"]).unwrap_or_default(), &record["dynamodb"]);
        let id = text(&record["eventID"]);
        let number = text(&change["SequenceNumber"]).filter(|number| !number.is_empty());
        let lane = match lane_by_shard {
            // A batch is of one shard.
            true => Some("shard".to_owned()),
            false => canonical(&change["Keys"]).map(|keys| format!("item {keys}")),
        };
        // The stream's ARN has the time at which it was made.
        let record_id = id.clone().filter(|id| !id.is_empty() && !arn.is_empty());
        let unusable = "the record is not as a stream of DynamoDB writes it";
        Received {
            receipt: None,
            item: number.clone().map(ItemId::Id),
            foreign: shard::foreign(&arn, ":table/", record["eventSource"] == DYNAMODB, name),
            unusable: (!change.is_object()).then(|| Disposition::Dead(unusable.to_owned())),
            lane,
            sent_at: shard::time(&change["ApproximateCreationDateTime"]),
            message: Message {
                record_id: record_id.map(|id| vec![arn.clone(), id]),
                body: raw.get().to_owned(),
                receives: 1,
                // With its number, because a letter that is cut may have lost it.
                id: id.map(|id| format!("{id}:{}", number.unwrap_or_default())),
                ..Message::default()
            },
            raw: Some(raw),
        }
    }
}
