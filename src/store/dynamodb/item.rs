//! A record as a DynamoDB item, and back. Attributes have the names that the record's parts have everywhere.
//!
//! | attribute | in state | what |
//! | --- | --- | --- |
//! | `pk`, `sk` | all | [`RecordKey::partition_key`], `record` |
//! | `schema` | all | version of this layout |
//! | `state` | all | `pending`, `in_progress`, `completed`, `failed_retryable`, `unknown` |
//! | `revision`, `attempt`, `attempts` | all | mark of the last write, of the execution, and how many there were |
//! | `fingerprint`, `fingerprint_rule` | all | what was asked, and the rule that says so |
//! | `created_at` | all | milliseconds since 1970 |
//! | `lease_until` | `in_progress` | milliseconds since 1970 |
//! | `completed_at`, `failed_at`, `since` | as they say | milliseconds since 1970 |
//! | `expires_at` | `completed`, `failed_retryable` | **seconds** since 1970: the time-to-live attribute |
//! | `status`, `headers`, `body…` | `completed` | the kept response |
//! | `cause`, `reconcile_at`, `asked` | `unknown` | why, when to ask next, and how often that was done |
//! | `reconcile_shard` | `unknown` | the partition of the index `reconcile` that finds it |

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteArray, ByteBuf};

use crate::{
    fingerprint::Fingerprint,
    key::RecordKey,
    record::{
        AttemptId, BodyId, Encoding, KeptBody, KeptResponse, Place, Record, Revision, State, UnknownCause,
    },
    time::Timestamp,
};

/// The version of this layout. A reader takes this one and every earlier one; what is newer is left alone.
pub(super) const SCHEMA: u32 = 1;

/// The sort key of a record in its item collection.
pub(super) const RECORD: &str = "record";

/// The partition key attribute.
pub(super) const PK: &str = "pk";

/// The sort key attribute.
pub(super) const SK: &str = "sk";

/// Where a body is that is in the record itself.
const IN_RECORD: &str = "record";

/// Where a body is that is nowhere.
const OMITTED: &str = "omitted";

/// A completed record's item without partition key, headers and body, in bytes as DynamoDB counts them: names and
/// values. Measured by a test below.
const FIXED_SIZE: usize = 330;

/// What a capacity unit of a write covers, in bytes.
const CAPACITY_UNIT: usize = 1024;

/// An item that is no record which this version can read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnreadableItem {
    /// It does not have the attributes of a record.
    #[error("the item does not have the attributes of a record")]
    Shape(#[from] serde_dynamo::Error),
    /// It was written by a newer version.
    #[error("the item has schema {0}, newer than {SCHEMA}")]
    Newer(u32),
    /// An attribute is missing or does not say what it should.
    #[error("attribute `{0}` is missing or malformed")]
    Attribute(&'static str),
}

/// How many partitions the index of unknown outcomes has: one takes 1,000 writes a second, and an index that lags would
/// throttle the table while a provider is down and everything becomes unknown.
pub(super) const SHARDS: u8 = 8;

/// The partition of the index in which an unknown outcome is found.
fn shard(key: &RecordKey) -> u8 {
    key.hash().first_byte() % SHARDS
}

/// How many bytes of body the record's item has room for within one capacity unit.
pub(super) fn room_for_body(record: &Record) -> usize {
    let headers: usize = match &record.state {
        // A list's element costs 1 byte, a list 3; a header is a list of two.
        State::Completed { response, .. } => {
            response.headers.iter().map(|(name, value)| name.len() + value.len() + 6).sum()
        }
        _ => 0,
    };
    CAPACITY_UNIT.saturating_sub(FIXED_SIZE + record.key.partition_key().len() + headers)
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Item {
    pk: String,
    sk: String,
    schema: u32,
    state: String,
    revision: ByteArray<16>,
    attempt: ByteArray<16>,
    attempts: u32,
    fingerprint: ByteArray<32>,
    fingerprint_rule: u32,
    created_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease_until: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    completed_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reconcile_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reconcile_shard: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<(String, String)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<ByteBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_id: Option<ByteArray<16>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_place: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_encoding: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_length: Option<u64>,
}

/// The record as an item.
pub(super) fn to_item(record: &Record) -> Result<HashMap<String, AttributeValue>, serde_dynamo::Error> {
    let mut item = Item {
        pk: record.key.partition_key(),
        sk: RECORD.to_owned(),
        schema: SCHEMA,
        state: record.state.name().to_owned(),
        revision: ByteArray::new(*record.revision.as_bytes()),
        attempt: ByteArray::new(*record.attempt.as_bytes()),
        attempts: record.attempts,
        fingerprint: ByteArray::new(*record.fingerprint.digest()),
        fingerprint_rule: record.fingerprint.rule(),
        created_at: record.created_at.as_millis(),
        expires_at: record.state.expires_at().map(Timestamp::as_secs_rounded_up),
        ..Item::default()
    };
    match &record.state {
        State::Pending => {}
        State::InProgress { lease_until } => item.lease_until = Some(lease_until.as_millis()),
        State::Completed { response, completed_at, .. } => {
            item.completed_at = Some(completed_at.as_millis());
            item.keep(response);
        }
        State::FailedRetryable { failed_at, .. } => item.failed_at = Some(failed_at.as_millis()),
        State::Unknown { cause, since, reconcile_at, asked } => {
            item.cause = Some(cause.name().to_owned());
            item.since = Some(since.as_millis());
            item.reconcile_at = Some(reconcile_at.as_millis());
            item.reconcile_shard = Some(shard(&record.key).to_string());
            item.asked = Some(*asked);
        }
    }
    serde_dynamo::to_item(item)
}

/// The record that an item is.
pub(super) fn from_item(attributes: HashMap<String, AttributeValue>) -> Result<Record, UnreadableItem> {
    // The version first: a newer layout may have other attributes.
    match attributes.get("schema").and_then(|schema| schema.as_n().ok()?.parse().ok()) {
        Some(schema) if schema <= SCHEMA => {}
        Some(newer) => return Err(UnreadableItem::Newer(newer)),
        None => return Err(UnreadableItem::Attribute("schema")),
    }
    let item: Item = serde_dynamo::from_item(attributes)?;
    if item.sk != RECORD {
        return Err(UnreadableItem::Attribute(SK));
    }
    Ok(Record {
        key: RecordKey::from_partition_key(&item.pk).ok_or(UnreadableItem::Attribute(PK))?,
        revision: Revision::from_bytes(*item.revision),
        attempt: AttemptId::from_bytes(*item.attempt),
        attempts: item.attempts,
        fingerprint: Fingerprint::new(item.fingerprint_rule, *item.fingerprint),
        created_at: Timestamp::from_millis(item.created_at),
        state: item.state()?,
    })
}

impl Item {
    fn keep(&mut self, response: &KeptResponse) {
        self.status = Some(response.status);
        self.headers = Some(response.headers.clone());
        let (place, length) = match &response.body {
            KeptBody::Inline { bytes, encoding, length } => {
                self.body = Some(ByteBuf::from(bytes.to_vec()));
                self.body_encoding = Some(encoding.name().to_owned());
                (IN_RECORD, length)
            }
            KeptBody::Outside { id, place, encoding, length } => {
                self.body_id = Some(ByteArray::new(*id.as_bytes()));
                self.body_encoding = Some(encoding.name().to_owned());
                (place.name(), length)
            }
            KeptBody::Omitted { length } => (OMITTED, length),
        };
        self.body_place = Some(place.to_owned());
        self.body_length = Some(*length);
    }

    fn state(self) -> Result<State, UnreadableItem> {
        let millis = |value: Option<u64>, name| {
            value.map(Timestamp::from_millis).ok_or(UnreadableItem::Attribute(name))
        };
        let expires_at =
            self.expires_at.map(Timestamp::from_secs).ok_or(UnreadableItem::Attribute("expires_at"));
        Ok(match self.state.as_str() {
            "pending" => State::Pending,
            "in_progress" => State::InProgress { lease_until: millis(self.lease_until, "lease_until")? },
            "completed" => State::Completed {
                completed_at: millis(self.completed_at, "completed_at")?,
                expires_at: expires_at?,
                response: self.response()?,
            },
            "failed_retryable" => State::FailedRetryable {
                failed_at: millis(self.failed_at, "failed_at")?,
                expires_at: expires_at?,
            },
            "unknown" => State::Unknown {
                cause: (self.cause.as_deref().and_then(UnknownCause::parse))
                    .ok_or(UnreadableItem::Attribute("cause"))?,
                since: millis(self.since, "since")?,
                reconcile_at: millis(self.reconcile_at, "reconcile_at")?,
                // Not there where the record was written before there was an index of such outcomes.
                asked: self.asked.unwrap_or_default(),
            },
            _ => return Err(UnreadableItem::Attribute("state")),
        })
    }

    fn response(self) -> Result<KeptResponse, UnreadableItem> {
        let missing = UnreadableItem::Attribute;
        let length = self.body_length.ok_or(missing("body_length"))?;
        let encoding =
            (self.body_encoding.as_deref().and_then(Encoding::parse)).ok_or(missing("body_encoding"));
        let body = match self.body_place.as_deref().ok_or(missing("body_place"))? {
            OMITTED => KeptBody::Omitted { length },
            IN_RECORD => KeptBody::Inline {
                bytes: self.body.ok_or(missing("body"))?.into_vec().into(),
                encoding: encoding?,
                length,
            },
            place => KeptBody::Outside {
                id: BodyId::from_bytes(*self.body_id.ok_or(missing("body_id"))?),
                place: Place::parse(place).ok_or(missing("body_place"))?,
                encoding: encoding?,
                length,
            },
        };
        Ok(KeptResponse {
            status: self.status.filter(|status| (100..1000).contains(status)).ok_or(missing("status"))?,
            headers: self.headers.ok_or(missing("headers"))?,
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::record::tests::{bid, response};

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_123);

    fn completed(response: KeptResponse) -> Record {
        let reserved = Record::reserve(&bid("k"), Revision::mint(), NOW);
        reserved
            .complete(reserved.attempt, Revision::mint(), response, NOW, Duration::from_millis(86_400_001))
            .unwrap()
    }

    /// The size of an item as DynamoDB counts it.
    fn size(item: &HashMap<String, AttributeValue>) -> usize {
        fn value(attribute: &AttributeValue) -> usize {
            match attribute {
                AttributeValue::S(text) => text.len(),
                AttributeValue::N(digits) => digits.len().div_ceil(2) + 1,
                AttributeValue::B(bytes) => bytes.as_ref().len(),
                AttributeValue::L(list) => 3 + list.iter().map(|element| 1 + value(element)).sum::<usize>(),
                other => panic!("{other:?} in a record"),
            }
        }
        item.iter().map(|(name, attribute)| name.len() + value(attribute)).sum()
    }

    // T13: a Number, in seconds, on settled records only.
    #[test]
    fn the_time_to_live_is_a_number_of_seconds_on_settled_records_only() {
        let item = to_item(&completed(response())).unwrap();
        assert_eq!(item["expires_at"], AttributeValue::N("1800086401".into()));
        let reserved = Record::reserve(&bid("k"), Revision::mint(), NOW);
        let unknown =
            reserved.doubt(reserved.attempt, Revision::mint(), UnknownCause::Panicked, NOW).unwrap();
        for open in [Record::accept(&bid("k"), Revision::mint(), NOW), reserved, unknown] {
            assert!(!to_item(&open).unwrap().contains_key("expires_at"), "{}", open.state.name());
        }
    }

    #[test]
    fn a_record_whose_body_fills_its_room_costs_one_capacity_unit_and_not_a_half() {
        let mut kept = response();
        kept.headers = vec![("content-type".into(), "application/json".into()); 3];
        let room = room_for_body(&completed(kept.clone()));
        let bytes = Bytes::from(vec![b'x'; room]);
        kept.body = KeptBody::Inline { length: room as u64, bytes, encoding: Encoding::Identity };
        let size = size(&to_item(&completed(kept)).unwrap());
        assert!((CAPACITY_UNIT - 64..=CAPACITY_UNIT).contains(&size), "{size}");
    }

    // T36
    #[test]
    fn an_item_of_a_newer_schema_is_left_alone() {
        let mut item = to_item(&completed(response())).unwrap();
        item.insert("schema".into(), AttributeValue::N((SCHEMA + 1).to_string()));
        assert!(matches!(from_item(item), Err(UnreadableItem::Newer(_))));
    }

    #[test]
    fn an_item_that_lacks_any_needed_attribute_is_unreadable_and_never_a_guess() {
        let unknown = {
            let reserved = Record::reserve(&bid("k"), Revision::mint(), NOW);
            reserved.doubt(reserved.attempt, Revision::mint(), UnknownCause::Panicked, NOW).unwrap()
        };
        let reserved = Record::reserve(&bid("k"), Revision::mint(), NOW);
        for record in [completed(response()), unknown, reserved] {
            let whole = to_item(&record).unwrap();
            assert_eq!(from_item(whole.clone()).unwrap(), record);
            // These two came later, and older records do without.
            let needed = |name: &&String| !matches!(name.as_str(), "asked" | "reconcile_shard");
            for name in whole.keys().filter(needed) {
                let mut damaged = whole.clone();
                damaged.remove(name);
                assert!(from_item(damaged).is_err(), "read without {name}");
            }
        }
    }
}
