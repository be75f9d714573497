//! A stream record in the event.

use crate::template::matches;
use aws_sdk_dynamodbstreams::types::{AttributeValue, Record as Raw};
use aws_smithy_types::{DateTime, base64};
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

/// A record, ready for an event.
pub struct Record {
    pub sequence_number: String,
    pub created: Option<DateTime>,
    /// JSON.
    pub event: String,
}

impl Record {
    /// The record, if it matches one of the filters, or there is none.
    pub fn of(raw: &Raw, stream: &str, filters: &[Value]) -> Option<Self> {
        let change = raw.dynamodb();
        let created = change.and_then(|change| change.approximate_creation_date_time()).copied();
        let sequence_number = change.and_then(|change| change.sequence_number()).unwrap_or_default();
        let mut shown = Map::new();
        let mut show = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                shown.insert(name.to_owned(), value);
            }
        };
        show("ApproximateCreationDateTime", created.map(|time| time.secs().into()));
        show("SequenceNumber", Some(sequence_number.into()));
        if let Some(change) = change {
            show("Keys", change.keys().map(item));
            show("NewImage", change.new_image().map(item));
            show("OldImage", change.old_image().map(item));
            show("SizeBytes", change.size_bytes().map(Value::from));
            show("StreamViewType", change.stream_view_type().map(|view| view.as_str().into()));
        }
        let mut event = json!({
            "eventID": raw.event_id(),
            "eventName": raw.event_name().map(|name| name.as_str()),
            "eventVersion": raw.event_version(),
            "eventSource": "aws:dynamodb",
            "awsRegion": raw.aws_region(),
            "dynamodb": shown,
            "eventSourceARN": stream,
        });
        if let Some(identity) = raw.user_identity() {
            // Only a deletion by TTL has one. The embedded DynamoDB spells its members differently, so the client does not
            // see them.
            event["userIdentity"] = json!({
                "type": identity.r#type().unwrap_or("Service"),
                "principalId": identity.principal_id().unwrap_or("dynamodb.amazonaws.com"),
            });
        }
        let is_taken = filters.is_empty() || filters.iter().any(|filter| matches(filter, Some(&event)));
        is_taken.then(|| Self {
            sequence_number: sequence_number.to_owned(),
            created,
            event: event.to_string(),
        })
    }

    /// How long ago it was created. DynamoDB rounds that down to a second.
    pub fn age(&self) -> Duration {
        let created = self.created.and_then(|created| SystemTime::try_from(created).ok());
        created.and_then(|created| created.elapsed().ok()).unwrap_or_default()
    }
}

fn item(item: &HashMap<String, AttributeValue>) -> Value {
    item.iter().map(|(name, value)| (name.clone(), attribute(value))).collect::<Map<_, _>>().into()
}

fn attribute(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::B(bytes) => json!({ "B": base64::encode(bytes) }),
        AttributeValue::Bool(flag) => json!({ "BOOL": flag }),
        AttributeValue::Bs(set) => json!({ "BS": set.iter().map(base64::encode).collect::<Vec<_>>() }),
        AttributeValue::L(list) => json!({ "L": list.iter().map(attribute).collect::<Vec<_>>() }),
        AttributeValue::M(map) => json!({ "M": item(map) }),
        AttributeValue::N(number) => json!({ "N": number }),
        AttributeValue::Ns(set) => json!({ "NS": set }),
        AttributeValue::Null(flag) => json!({ "NULL": flag }),
        AttributeValue::S(text) => json!({ "S": text }),
        AttributeValue::Ss(set) => json!({ "SS": set }),
        // The function could not read a type that this client does not know.
        _ => json!({}),
    }
}
