//! Nets insertions against completions: what a batch of stream records leaves open.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    key::{OperationName, RecordKey},
    metrics::Count,
    time::Timestamp,
};

/// The sort key of a record, as in the table.
const RECORD: &str = "record";

/// What a batch of stream records comes to.
#[derive(Debug, Default)]
pub struct Netted {
    /// Executions that began and whose end the batch does not show, and work that nobody has taken yet.
    pub open: Vec<Open>,
    /// Stream records that cannot be read.
    pub poison: Vec<Poison>,
    /// Operations of the records that time to live has deleted, each with how many.
    pub pruned: HashMap<OperationName, u64>,
}

impl Netted {
    /// Counts what time to live has deleted.
    pub fn count_pruned(&self) {
        for (operation, number) in &self.pruned {
            Count::TtlPruned.add_many(operation, *number);
        }
    }
}

/// Something that a batch left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The record's partition key.
    pub key: String,
    /// Until when its worker owns it; `None` where it waits for one.
    pub lease_until: Option<Timestamp>,
    /// When the key was first seen.
    pub created_at: Timestamp,
    /// The stream record that says so.
    pub sequence_number: String,
}

/// A stream record that cannot be read.
#[derive(Debug)]
pub struct Poison {
    /// Its sequence number, where that much can be read.
    pub sequence_number: Option<String>,
    /// What is wrong with it.
    pub reason: &'static str,
    /// The stream record's place in the batch.
    pub index: usize,
}

/// Nets the records of a batch.
///
/// By the mark of the execution, and whatever their order: an execution that the batch shows both in progress and past it
/// is no concern of ours, however often and in which order its records come. What is open here and ended in another batch
/// costs one look at the record.
pub fn net(records: &[Box<RawValue>]) -> Netted {
    let mut netted = Netted::default();
    let mut began: HashMap<(String, String), Open> = HashMap::new();
    let mut ended: HashSet<(String, String)> = HashSet::new();
    let mut waiting: HashMap<String, Open> = HashMap::new();
    let mut taken: HashMap<String, Timestamp> = HashMap::new();
    for (index, raw) in records.iter().enumerate() {
        let seen = match read(raw.get()) {
            Ok(Some(seen)) => seen,
            Ok(None) => continue,
            Err(reason) => {
                let sequence_number = sequence_number(raw.get());
                netted.poison.push(Poison { sequence_number, reason, index });
                continue;
            }
        };
        match seen {
            Seen::Pruned { operation } => *netted.pruned.entry(operation).or_default() += 1,
            Seen::Pending(open) => {
                waiting.insert(open.key.clone(), open);
            }
            Seen::Began { attempt, open } => {
                later(&mut taken, &open.key, open.created_at);
                let execution = (open.key.clone(), attempt);
                let lease_until = began.get(&execution).and_then(|before| before.lease_until);
                // A heartbeat has moved it.
                began.insert(execution, Open { lease_until: open.lease_until.max(lease_until), ..open });
            }
            Seen::Ended { key, attempt, created_at } => {
                later(&mut taken, &key, created_at);
                ended.insert((key, attempt));
            }
        }
    }
    began.retain(|execution, _| !ended.contains(execution));
    // Work that was taken, or that ended, since it was accepted.
    waiting.retain(|key, open| taken.get(key).is_none_or(|created_at| *created_at < open.created_at));
    netted.open = began.into_values().chain(waiting.into_values()).collect();
    netted
}

fn later(taken: &mut HashMap<String, Timestamp>, key: &str, at: Timestamp) {
    match taken.get_mut(key) {
        Some(there) => *there = at.max(*there),
        None => {
            taken.insert(key.to_owned(), at);
        }
    }
}

/// What one stream record says of one execution.
enum Seen {
    Pending(Open),
    Began { attempt: String, open: Open },
    Ended { key: String, attempt: String, created_at: Timestamp },
    Pruned { operation: OperationName },
}

/// A stream record as Lambda hands it over, as far as it matters here
/// ([event](https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html)).
#[derive(Deserialize)]
struct StreamRecord<'a> {
    #[serde(borrow)]
    dynamodb: Change<'a>,
    #[serde(borrow, rename = "userIdentity")]
    user_identity: Option<Identity<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Change<'a> {
    #[serde(borrow)]
    keys: Keys<'a>,
    #[serde(borrow)]
    new_image: Option<Image<'a>>,
    #[serde(borrow)]
    sequence_number: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Keys<'a> {
    #[serde(borrow)]
    pk: Text<'a>,
    #[serde(borrow)]
    sk: Text<'a>,
}

#[derive(Deserialize)]
struct Image<'a> {
    #[serde(borrow)]
    state: Option<Text<'a>>,
    #[serde(borrow)]
    attempt: Option<Binary<'a>>,
    #[serde(borrow)]
    created_at: Option<Number<'a>>,
    #[serde(borrow)]
    lease_until: Option<Number<'a>>,
}

#[derive(Deserialize)]
struct Text<'a> {
    #[serde(borrow, rename = "S")]
    text: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Binary<'a> {
    #[serde(borrow, rename = "B")]
    base64: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Number<'a> {
    #[serde(borrow, rename = "N")]
    digits: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Identity<'a> {
    #[serde(borrow, rename = "principalId", alias = "PrincipalId")]
    principal_id: Option<Cow<'a, str>>,
}

fn read(record: &str) -> Result<Option<Seen>, &'static str> {
    let record: StreamRecord<'_> =
        serde_json::from_str(record).map_err(|_| "it is no change of this table")?;
    let Change { keys, new_image, sequence_number } = record.dynamodb;
    if keys.sk.text != RECORD {
        // What is kept beside a record: a body, an audit line.
        return Ok(None);
    }
    // By what stands there now, and not by the event's name: DynamoDB Local calls a deletion by time to live
    // `UNKNOWN_TO_SDK_VERSION`.
    let Some(image) = new_image else {
        let by = record.user_identity.and_then(|identity| identity.principal_id);
        let pruned = by.as_deref() == Some("dynamodb.amazonaws.com");
        let operation = || RecordKey::from_partition_key(&keys.pk.text).map(|key| key.operation().clone());
        return Ok(operation().filter(|_| pruned).map(|operation| Seen::Pruned { operation }));
    };
    let key = keys.pk.text.into_owned();
    let attempt = image.attempt.ok_or("its image has no attempt")?.base64.into_owned();
    let created_at = millis(image.created_at).ok_or("its image has no time of creation")?;
    let open = |lease_until| Open {
        key: key.clone(),
        lease_until,
        created_at,
        sequence_number: sequence_number.to_string(),
    };
    Ok(Some(match image.state.as_ref().map(|state| &*state.text) {
        Some("pending") => Seen::Pending(open(None)),
        Some("in_progress") => {
            let lease_until = millis(image.lease_until).ok_or("its image is in progress and has no lease")?;
            Seen::Began { attempt, open: open(Some(lease_until)) }
        }
        Some("completed" | "failed_retryable" | "unknown") => Seen::Ended { key, attempt, created_at },
        _ => return Err("its image is in no state that this version knows"),
    }))
}

fn millis(number: Option<Number<'_>>) -> Option<Timestamp> {
    number?.digits.parse().ok().map(Timestamp::from_millis)
}

/// The sequence number of a stream record of which nothing else can be read.
fn sequence_number(record: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Least {
        dynamodb: Numbered,
    }
    #[derive(Deserialize)]
    struct Numbered {
        #[serde(rename = "SequenceNumber")]
        sequence_number: String,
    }
    serde_json::from_str(record).ok().map(|least: Least| least.dynamodb.sequence_number)
}
