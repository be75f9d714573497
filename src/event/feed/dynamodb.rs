//! Changes of a table, as its stream has them.

use serde_json::{Value, value::RawValue};

use super::{received::Received, shard};
use crate::event::Message;

/// Lambda's name for streams of DynamoDB.
const DYNAMODB: &str = "aws:dynamodb";

/// The item's key, in one form: the order of its attributes means nothing.
fn canonical(keys: &Value) -> Option<String> {
    let mut keys: Vec<_> = keys.as_object()?.iter().map(|(name, value)| format!("{name}={value}")).collect();
    keys.sort_unstable();
    Some(keys.join(","))
}

/// Reads a record. Any member may be missing, or be something else than AWS documents (<https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html>).
pub(super) fn read(raw: Box<RawValue>, name: &str, lane_by_shard: bool) -> Received {
    let record: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (arn, change) = (text(&record["eventSourceARN"]).unwrap_or_default(), &record["dynamodb"]);
    let id = text(&record["eventID"]);
    let lane = match lane_by_shard {
        // A batch is of one shard.
        true => Some("shard".to_owned()),
        false => canonical(&change["Keys"]).map(|keys| format!("item {keys}")),
    };
    // The stream's ARN has the time at which it was made.
    let record_id = id.clone().filter(|id| !id.is_empty() && !arn.is_empty());
    Received {
        receipt: None,
        item: text(&change["SequenceNumber"]).filter(|number| !number.is_empty()),
        foreign: shard::foreign(&arn, ":table/", record["eventSource"] == DYNAMODB, name),
        unusable: (!change.is_object())
            .then(|| "the record is not as a stream of DynamoDB writes it".to_owned()),
        lane,
        sent_at: shard::time(&change["ApproximateCreationDateTime"]),
        message: Message {
            record_id: record_id.map(|id| vec![arn.clone(), id]),
            body: raw.get().to_owned(),
            receives: 1,
            id,
            ..Message::default()
        },
        raw: Some(raw),
    }
}
