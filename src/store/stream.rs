//! Reads the table's stream, as Lambda delivers it, and finds what each change of an item means for an execution.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_dynamo::AttributeValue;
use serde_json::value::RawValue;

use super::item::{MESSAGE, RECORD};
use crate::{
    key::{OperationName, RecordKey},
    record::{StateName, UnknownCause},
    time::Timestamp,
};

/// What one stream record means.
pub(crate) enum Change {
    /// The operation waits for a worker.
    Accepted(Seen),
    /// A worker owns the record, until the end of its lease.
    Began(Seen),
    /// The record is settled, unknown, or between workers.
    Ended(Seen),
    /// Time to live has deleted a record of this operation.
    Pruned(OperationName),
    /// Nothing that concerns an execution: an item that is not a record, another deletion, or a write that changes neither the
    /// record's worker nor its lease, such as the one that keeps a phase.
    Nothing,
}

/// Which execution of which record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The record's partition key.
    pub(crate) key: String,
    /// The id of the execution.
    pub(crate) attempt: Vec<u8>,
    /// When the key was first seen.
    pub(crate) created_at: Timestamp,
    /// When to look at it: once its lease has expired, or once the time is over in which a worker may claim it.
    pub(crate) look_at: Timestamp,
    /// The sequence number of the stream record.
    pub(crate) sequence_number: String,
}

/// A stream record as Lambda delivers it, reduced to the members that matter here
/// ([event](https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html)).
#[derive(Deserialize)]
struct StreamRecord<'a> {
    #[serde(borrow)]
    dynamodb: Images<'a>,
    #[serde(rename = "userIdentity")]
    user_identity: Option<Identity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Images<'a> {
    keys: Keys,
    /// Parsed only if the item is a record: body items are large.
    #[serde(borrow)]
    new_image: Option<&'a RawValue>,
    #[serde(borrow)]
    old_image: Option<&'a RawValue>,
    sequence_number: String,
}

#[derive(Deserialize)]
struct Identity {
    /// The embedded store writes the name with a small letter on the wire, and with a capital elsewhere.
    #[serde(rename = "principalId", alias = "PrincipalId")]
    principal_id: Option<String>,
}

#[derive(Deserialize)]
struct Keys {
    pk: AttributeValue,
    sk: AttributeValue,
}

/// The attributes of a record's image that matter here. Others are not read, so that damage to them hides no execution.
#[derive(PartialEq, Deserialize)]
struct Image {
    state: AttributeValue,
    attempt: AttributeValue,
    created_at: AttributeValue,
    lease_until: Option<AttributeValue>,
    claim_by: Option<AttributeValue>,
}

/// Reads one stream record. An error says what is wrong with it.
pub(crate) fn read(record: &str) -> Result<Change, &'static str> {
    let StreamRecord { dynamodb: images, user_identity } =
        serde_json::from_str(record).map_err(|_| "it is not a change of this table")?;
    let (AttributeValue::S(key), AttributeValue::S(sk)) = (images.keys.pk, images.keys.sk) else {
        return Err("its keys are not those of this table");
    };
    if sk != RECORD {
        return Ok(Change::Nothing);
    }
    // The new image decides, not the event's name: DynamoDB Local calls a deletion by time to live `UNKNOWN_TO_SDK_VERSION`.
    let Some(image) = images.new_image else {
        let by = user_identity.and_then(|identity| identity.principal_id);
        let pruned = by.is_some_and(|by| by == "dynamodb.amazonaws.com");
        let operation = RecordKey::from_partition_key(&key).map(|key| key.operation().clone());
        return Ok(operation.filter(|_| pruned).map_or(Change::Nothing, Change::Pruned));
    };
    let image: Image =
        serde_json::from_str(image.get()).map_err(|_| "its image lacks an attribute of a record")?;
    // What came before: its own change was read already, or comes again. Damage to it hides nothing.
    let before = images.old_image.and_then(|old| serde_json::from_str::<Image>(old.get()).ok());
    let same = before.is_some_and(|before| before == image);
    let (AttributeValue::S(state), AttributeValue::B(attempt), Some(created_at)) =
        (image.state, image.attempt, millis(&image.created_at))
    else {
        return Err("its image has an attribute of another type than a record's");
    };
    let time = |attribute: &Option<AttributeValue>| attribute.as_ref().and_then(millis);
    let (lease_until, claim_by) = (time(&image.lease_until), time(&image.claim_by));
    let seen = |look_at| Seen { key, attempt, created_at, look_at, sequence_number: images.sequence_number };
    match StateName::parse(&state) {
        Some(StateName::Pending) => match claim_by {
            Some(claim_by) => Ok(Change::Accepted(seen(claim_by))),
            None => Err("its image is pending, and nothing says until when"),
        },
        Some(StateName::InProgress) => match lease_until {
            None => Err("its image is in progress and has no lease"),
            Some(_) if same => Ok(Change::Nothing),
            Some(lease_until) => Ok(Change::Began(seen(lease_until))),
        },
        Some(
            StateName::Completed
            | StateName::FailedRetryable
            | StateName::Unknown
            | StateName::BetweenWorkers,
        ) => Ok(Change::Ended(seen(Timestamp::MAX))),
        None => Err("its image is in no state that this version knows"),
    }
}

/// Accepted work without a worker.
pub(crate) struct Waiting {
    /// The record's partition key.
    pub(crate) key: String,
    /// The id of its request, in hexadecimal digits.
    pub(crate) request: String,
    /// The sequence number of the stream record.
    pub(crate) sequence_number: Option<String>,
    /// Whether the worker that returned it lives, and hands its own message back.
    pub(crate) is_handed_back: bool,
}

/// A new message in the outbox.
pub(crate) struct Published {
    /// The partition key of the record that published it.
    pub(crate) key: String,
    /// The sequence number of the stream record.
    pub(crate) sequence_number: Option<String>,
}

/// Accepted work that a stream record shows to wait for a worker.
///
/// | the record | its message |
/// | --- | --- |
/// | is new, was found later to have done nothing, or an operator lets it resume | none may be in the queue |
/// | its worker is dead | is hidden for as long as the queue hides any: six times as long as a worker has |
/// | its worker returned it as undone | is handed back, unless that worker dies with the rest of its batch |
///
/// Nothing else brings a worker: what is interrupted has its message; what is escalated waits for an operator; and what has
/// killed as many workers as may execute it is not executed at once again.
pub(crate) fn waiting(record: &str) -> Option<Waiting> {
    #[derive(Deserialize)]
    struct Pending {
        state: AttributeValue,
        request_id: AttributeValue,
        last_failure: Option<AttributeValue>,
        reconcile_at: Option<AttributeValue>,
        tries: AttributeValue,
        max_attempts: AttributeValue,
        alarms: Option<AttributeValue>,
    }
    #[derive(Deserialize)]
    struct Before {
        state: AttributeValue,
        alarms: Option<AttributeValue>,
    }
    let change = member(record, "dynamodb")?;
    let is = |state: &AttributeValue, name: &str| *state == AttributeValue::S(name.to_owned());
    let Named { key, sk, sequence_number, .. } = named(record);
    let key = key.filter(|_| sk.is_some_and(|sk| sk == RECORD))?;
    let pending: Pending = serde_json::from_str(member(change, "NewImage")?).ok()?;
    let before = member(change, "OldImage").and_then(|old| serde_json::from_str::<Before>(old).ok());
    let AttributeValue::B(request) = &pending.request_id else { return None };
    let is_dead = pending.last_failure.is_some_and(|why| is(&why, UnknownCause::LeaseExpired.name()));
    // A write of alarms brings no worker.
    if before.as_ref().is_some_and(|before| before.state == pending.state && before.alarms != pending.alarms)
    {
        return None;
    }
    let worked = before.is_some_and(|before| is(&before.state, StateName::InProgress.name()));
    let is_pending = is(&pending.state, StateName::Pending.name());
    let is_escalated = pending.reconcile_at.as_ref().and_then(millis) == Some(Timestamp::MAX);
    let kills = is_dead && worked && number(&pending.tries) >= number(&pending.max_attempts);
    let is_handed_back = worked && !is_dead;
    let is_interrupted = is(&pending.state, StateName::BetweenWorkers.name());
    let waits = is_pending || is_interrupted && !is_handed_back && !is_escalated && !kills;
    waits.then(|| Waiting { key, request: hex::encode(request), sequence_number, is_handed_back })
}

/// The new message that a stream record shows, if it shows one. It is known by its sort key alone, so that none is unreadable.
pub(crate) fn published(record: &str) -> Option<Published> {
    let change = member(record, "dynamodb")?;
    member(change, "NewImage")?;
    let Named { key, sk, sequence_number, .. } = named(record);
    let key = key.filter(|_| sk.is_some_and(|sk| sk.starts_with(MESSAGE)))?;
    Some(Published { key, sequence_number })
}

fn millis(attribute: &AttributeValue) -> Option<Timestamp> {
    number(attribute).map(Timestamp::from_millis)
}

fn number(attribute: &AttributeValue) -> Option<u64> {
    match attribute {
        AttributeValue::N(digits) => digits.parse().ok(),
        _ => None,
    }
}

/// The length in bytes of the longest identifier of a stream record, a partition key.
const MAX_NAME: usize = 2_048;

/// The identifiers of a stream record, as far as they can be read.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Named {
    /// The partition key of its item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// The sort key of its item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sk: Option<String>,
    /// Its place in the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sequence_number: Option<String>,
    /// Lambda's id for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) event_id: Option<String>,
    /// The stream, which names the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stream: Option<String>,
}

/// The identifiers of a stream record that cannot be read. Each is parsed alone, so that one cannot hide the others.
pub(crate) fn named(record: &str) -> Named {
    let change = member(record, "dynamodb").unwrap_or_default();
    let keys = member(change, "Keys").unwrap_or_default();
    let identifier = |object, name| text_member(object, name).filter(|text| text.len() <= MAX_NAME);
    let key = |name| identifier(member(keys, name)?, "S");
    Named {
        key: key("pk"),
        sk: key("sk"),
        sequence_number: identifier(change, "SequenceNumber"),
        event_id: identifier(record, "eventID"),
        stream: identifier(record, "eventSourceARN"),
    }
}

/// A string member of a JSON object. Its other members may be anything.
pub(crate) fn text_member(object: &str, name: &str) -> Option<String> {
    serde_json::from_str(member(object, name)?).ok()
}

fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let members: HashMap<String, &RawValue> = serde_json::from_str(object).ok()?;
    members.get(name).map(|member| member.get())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    // T54, T68: an interrupted operation whose record gets an alarm, of which operators are told, and which they clear.
    #[test]
    fn a_write_of_alarms_brings_no_worker() {
        let image = |state: &str, alarms: Value| {
            let image = json!({
                "state": { "S": state }, "request_id": { "B": "AAAA" }, "tries": { "N": "1" }, "max_attempts": { "N": "1" },
            });
            let mut image = image.as_object().expect("an object").clone();
            image.extend((!alarms.is_null()).then(|| ("alarms".to_owned(), alarms)));
            Value::from(image)
        };
        let waits = |before: Value, after: Value| {
            let keys = json!({ "pk": { "S": "acme#pay#k" }, "sk": { "S": "record" } });
            let change = json!({ "Keys": keys, "NewImage": after, "OldImage": before });
            waiting(&json!({ "dynamodb": change }).to_string()).is_some()
        };
        let (raised, told) = (json!({ "L": [{ "BOOL": false }] }), json!({ "L": [{ "BOOL": true }] }));
        for state in ["between_workers", "pending"] {
            for (before, after) in
                [(Value::Null, raised.clone()), (raised.clone(), told.clone()), (told.clone(), Value::Null)]
            {
                assert!(!waits(image(state, before.clone()), image(state, after)), "{state}, {before}");
            }
            assert!(waits(image("unknown", Value::Null), image(state, raised.clone())), "{state}");
            assert!(waits(image(state, raised.clone()), image(state, raised.clone())), "{state}, resumed");
        }
    }
}
