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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const KEY: &str = "tenant#pay#k";

    fn change(number: u32, image: Value) -> Value {
        json!({
            "eventName": "MODIFY",
            "eventSource": "aws:dynamodb",
            "dynamodb": {
                "Keys": { "pk": { "S": KEY }, "sk": { "S": "record" } },
                "NewImage": image,
                "SequenceNumber": number.to_string(),
            },
        })
    }

    fn image(state: &str, attempt: &str, created_at: u64) -> Value {
        json!({
            "state": { "S": state },
            "attempt": { "B": attempt },
            "created_at": { "N": created_at.to_string() },
            "lease_until": { "N": "30000" },
        })
    }

    fn netted(changes: &[Value]) -> Netted {
        let raw = changes.iter().map(|change| serde_json::value::to_raw_value(change).unwrap());
        net(&raw.collect::<Vec<_>>())
    }

    fn open(changes: &[Value]) -> Vec<Open> {
        let netted = netted(changes);
        assert!(netted.poison.is_empty(), "{:?}", netted.poison);
        netted.open
    }

    // R19
    #[test]
    fn an_execution_that_ends_in_its_batch_leaves_nothing_open() {
        for end in ["completed", "failed_retryable", "unknown"] {
            let left = open(&[change(1, image("in_progress", "A", 0)), change(2, image(end, "A", 0))]);
            assert_eq!(left, [], "{end}");
        }
        let left = open(&[change(7, image("in_progress", "A", 5))]);
        let expected = Open {
            key: KEY.into(),
            lease_until: Some(Timestamp::from_secs(30)),
            created_at: Timestamp::from_millis(5),
            sequence_number: "7".into(),
        };
        assert_eq!(left, [expected]);
    }

    // T19
    #[test]
    fn every_order_and_every_repetition_nets_the_same() {
        let began = change(1, image("in_progress", "A", 0));
        let ended = change(2, image("completed", "A", 0));
        let again = change(3, image("in_progress", "B", 0));
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let all = [&began, &ended, &again];
            let twice: Vec<_> = order.iter().chain(&order).map(|index| all[*index].clone()).collect();
            let left = open(&twice);
            assert_eq!((left.len(), &*left[0].sequence_number), (1, "3"), "{order:?}");
        }
    }

    // R18
    #[test]
    fn a_heartbeat_moves_the_lease_and_never_back() {
        let with_lease = |lease: &str| {
            let mut image = image("in_progress", "A", 0);
            image["lease_until"]["N"] = lease.into();
            change(1, image)
        };
        let left = open(&[with_lease("1000"), with_lease("9000"), with_lease("5000")]);
        assert_eq!(left[0].lease_until, Some(Timestamp::from_secs(9)));
    }

    // R20
    #[test]
    fn accepted_work_is_open_until_somebody_takes_it() {
        let accepted = change(1, image("pending", "A", 10));
        assert_eq!(open(std::slice::from_ref(&accepted))[0].lease_until, None);
        for taken in [change(2, image("in_progress", "B", 10)), change(2, image("completed", "B", 10))] {
            let left = open(&[accepted.clone(), taken]);
            assert!(left.iter().all(|open| open.lease_until.is_some()), "{left:?}");
        }
        // What the key did before it was accepted anew says nothing.
        let left = open(&[accepted, change(2, image("completed", "B", 9))]);
        assert_eq!(left.len(), 1);
    }

    // T19: what says nothing of a record is no poison.
    #[test]
    fn siblings_and_deletions_leave_nothing_open_and_are_no_poison() {
        let mut sibling = change(1, json!({ "body": { "B": "AA==" } }));
        sibling["dynamodb"]["Keys"]["sk"]["S"] = "body#0".into();
        let mut deletion = change(2, Value::Null);
        deletion["eventName"] = "UNKNOWN_TO_SDK_VERSION".into();
        let mut pruned = change(3, Value::Null);
        pruned["userIdentity"] = json!({ "type": "Service", "principalId": "dynamodb.amazonaws.com" });
        let netted = netted(&[sibling, deletion, pruned]);
        assert!(netted.open.is_empty() && netted.poison.is_empty(), "{netted:?}");
        assert_eq!(netted.pruned.values().sum::<u64>(), 1);
    }

    // T19
    #[test]
    fn a_record_that_cannot_be_read_is_poison_and_hides_no_other() {
        let damaged = |name: &str| {
            let mut image = image("in_progress", "A", 0);
            image.as_object_mut().unwrap().remove(name);
            change(5, image)
        };
        let poison = [
            damaged("state"),
            damaged("attempt"),
            damaged("created_at"),
            damaged("lease_until"),
            change(5, image("a_state_of_tomorrow", "A", 0)),
            change(5, json!("no image")),
            json!({ "dynamodb": { "SequenceNumber": "5" } }),
        ];
        for poison in poison {
            let netted = netted(&[poison.clone(), change(6, image("in_progress", "B", 0))]);
            assert_eq!(netted.open.len(), 1, "{poison}");
            assert_eq!(netted.poison[0].sequence_number.as_deref(), Some("5"), "{poison}");
        }
        let netted = netted(&[json!("nothing at all")]);
        assert_eq!((netted.poison.len(), &netted.poison[0].sequence_number), (1, &None));
    }
}
