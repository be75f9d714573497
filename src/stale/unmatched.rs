//! Finds the executions that a batch of stream records leaves open: those that began, and did not end in the batch.

use std::collections::{BTreeMap, HashMap};

use serde_json::value::RawValue;

use crate::{
    key::OperationName,
    message::Poison,
    store::stream::{self, Change, Seen},
};

/// What is left of a batch of stream records once executions that ended are taken out.
#[derive(Default)]
pub(super) struct Unmatched {
    /// Executions that began and did not end in the batch, and accepted work that no worker has taken yet.
    pub(super) open: Vec<Seen>,
    /// Stream records that cannot be read.
    pub(super) poison: Vec<Poison>,
    /// How many executions began in the batch, or extended their lease.
    pub(super) began: u64,
    /// How many records time to live has deleted, by operation.
    pub(super) pruned: HashMap<OperationName, u64>,
}

/// Takes the executions that ended out of a batch.
///
/// Executions are matched by their attempt and their sequence numbers. The order of the batch does not count, nor does how often
/// a record comes. An execution that ended in the batch is left out, unless it is in progress after that: a heartbeat may have
/// claimed it back, so an end cancels only what came before it (T41). An execution that is open here and ended in another batch
/// costs one check of its record.
pub(super) fn unmatched_inserts(records: &[Box<RawValue>]) -> Unmatched {
    let mut unmatched = Unmatched::default();
    // Sorted, so that the same batch has the same result in the same order.
    let mut began: BTreeMap<(String, Vec<u8>), Seen> = BTreeMap::new();
    let mut ends: HashMap<(String, Vec<u8>), String> = HashMap::new();
    let mut waiting: BTreeMap<String, Seen> = BTreeMap::new();
    let mut taken: HashMap<String, String> = HashMap::new();
    for raw in records {
        match stream::read(raw.get()) {
            Ok(Change::Nothing) => {}
            Ok(Change::Pruned(operation)) => *unmatched.pruned.entry(operation).or_default() += 1,
            // Behind an execution that did nothing, it is pending again.
            Ok(Change::Accepted(seen)) => {
                ended(&mut ends, &seen);
                let before = waiting.entry(seen.key.clone()).or_insert_with(|| seen.clone());
                if order(&before.sequence_number) < order(&seen.sequence_number) {
                    *before = seen;
                }
            }
            Ok(Change::Began(seen)) => {
                keep_last(taken.entry(seen.key.clone()).or_default(), seen.sequence_number.clone());
                let execution = (seen.key.clone(), seen.attempt.clone());
                let before = began.entry(execution).or_insert_with(|| seen.clone());
                // A heartbeat may have extended it.
                before.look_at = seen.look_at.max(before.look_at);
                keep_last(&mut before.sequence_number, seen.sequence_number);
            }
            Ok(Change::Ended(seen)) => {
                keep_last(taken.entry(seen.key.clone()).or_default(), seen.sequence_number.clone());
                ended(&mut ends, &seen);
            }
            Err(reason) => unmatched.poison.push(Poison::of(raw, reason)),
        }
    }
    unmatched.began = began.len() as u64;
    began.retain(|execution, open| {
        ends.get(execution).is_none_or(|end| order(end) < order(&open.sequence_number))
    });
    // Work that was taken, or that ended, since it was accepted is not open.
    waiting.retain(|key, open| taken.get(key).is_none_or(|last| order(last) < order(&open.sequence_number)));
    unmatched.open = began.into_values().chain(waiting.into_values()).collect();
    // In the order of the stream: if the time is too short, only the rest of the batch is delivered again.
    unmatched.open.sort_by(|one, other| order(&one.sequence_number).cmp(&order(&other.sequence_number)));
    unmatched
}

/// Orders sequence numbers, which have more digits than any number type: by their length, then by their digits.
fn order(sequence_number: &str) -> (usize, &str) {
    let digits = sequence_number.trim_start_matches('0');
    (digits.len(), digits)
}

fn keep_last(last: &mut String, sequence_number: String) {
    if order(last) < order(&sequence_number) {
        *last = sequence_number;
    }
}

/// The execution of this record has ended by this change.
fn ended(ends: &mut HashMap<(String, Vec<u8>), String>, seen: &Seen) {
    let execution = (seen.key.clone(), seen.attempt.clone());
    keep_last(ends.entry(execution).or_default(), seen.sequence_number.clone());
}

#[cfg(test)]
mod tests {
    use base64::{Engine, prelude::BASE64_STANDARD};
    use serde_json::{Value, json};

    use super::*;
    use crate::time::Timestamp;

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
            "attempt": { "B": BASE64_STANDARD.encode(attempt) },
            "created_at": { "N": created_at.to_string() },
            "lease_until": { "N": "30000" },
            "claim_by": { "N": "70000" },
        })
    }

    fn unmatched(changes: &[Value]) -> Unmatched {
        let raw = changes.iter().map(|change| serde_json::value::to_raw_value(change).unwrap());
        unmatched_inserts(&raw.collect::<Vec<_>>())
    }

    fn open(changes: &[Value]) -> Vec<Seen> {
        let unmatched = unmatched(changes);
        assert!(unmatched.poison.is_empty(), "{}", unmatched.poison[0].reason);
        unmatched.open
    }

    #[test]
    fn an_execution_that_ends_in_its_batch_leaves_nothing_open() {
        for end in ["completed", "failed_retryable", "unknown", "between_workers"] {
            let left = open(&[change(1, image("in_progress", "A", 0)), change(2, image(end, "A", 0))]);
            assert_eq!(left, [], "{end}");
        }
        let left = open(&[change(7, image("in_progress", "A", 5))]);
        let expected = Seen {
            key: KEY.into(),
            attempt: b"A".into(),
            created_at: Timestamp::from_millis(5),
            look_at: Timestamp::from_secs(30),
            sequence_number: "7".into(),
        };
        assert_eq!(left, [expected]);
    }

    // T19
    #[test]
    fn every_order_and_every_repetition_matches_the_same() {
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

    // T80
    #[test]
    fn each_execution_that_began_is_counted_once_in_its_batch() {
        let began = change(1, image("in_progress", "A", 0));
        let ended = change(2, image("completed", "A", 0));
        let again = change(3, image("in_progress", "B", 0));
        for (batch, count) in
            [(vec![&began, &ended, &began], 1), (vec![&began, &again, &ended], 2), (vec![&ended], 0)]
        {
            let batch: Vec<_> = batch.into_iter().cloned().collect();
            assert_eq!(unmatched(&batch).began, count, "{batch:?}");
        }
    }

    // T41
    #[test]
    fn an_execution_that_was_claimed_back_is_open_again() {
        let began = change(98, image("in_progress", "A", 0));
        let lease_expired = change(99, image("unknown", "A", 0));
        let alive = change(100, image("in_progress", "A", 0));
        for batch in [
            [&began, &lease_expired, &alive],
            [&alive, &lease_expired, &began],
            [&lease_expired, &alive, &lease_expired],
        ] {
            let left = open(&batch.map(Clone::clone));
            assert_eq!((left.len(), &*left[0].sequence_number), (1, "100"), "{batch:?}");
        }
        let ended = change(101, image("completed", "A", 0));
        assert_eq!(open(&[ended.clone(), alive.clone(), lease_expired.clone(), began.clone()]), []);
        assert_eq!(open(&[began, lease_expired, alive, ended]), []);
    }

    /// A write over this image, of a state, an attempt and a lease.
    fn changed(number: u32, before: Value, after: Value) -> Value {
        let mut change = change(number, after);
        change["dynamodb"]["OldImage"] = before;
        change
    }

    #[test]
    fn a_write_that_keeps_a_phase_needs_no_check_of_its_own() {
        let began = || image("in_progress", "A", 0);
        assert_eq!(open(&[changed(2, began(), began())]), [], "the batch with the reservation had it");
        let left = open(&[change(1, began()), changed(2, began(), began())]);
        assert_eq!((left.len(), &*left[0].sequence_number), (1, "1"), "it comes again from there");
        let mut extended = began();
        extended["lease_until"]["N"] = "60000".into();
        let mut damaged = began();
        damaged.as_object_mut().unwrap().remove("attempt");
        for (before, after) in [
            (began(), extended),
            (began(), image("in_progress", "B", 0)),
            (image("between_workers", "A", 0), began()),
            (image("unknown", "A", 0), began()),
            (damaged, began()),
            (Value::Null, began()),
        ] {
            assert_eq!(open(&[changed(2, before.clone(), after)]).len(), 1, "{before}");
        }
    }

    // T41
    #[test]
    fn an_execution_that_ends_between_workers_is_open_again_once_resumed() {
        let (began, waits) = (image("in_progress", "A", 0), image("between_workers", "A", 0));
        let resumed = image("in_progress", "B", 0);
        let changes = [
            change(1, began.clone()),
            changed(2, began.clone(), began.clone()),
            changed(3, began, waits.clone()),
            changed(4, waits, resumed.clone()),
            changed(5, resumed.clone(), resumed),
        ];
        let left = open(&changes);
        assert_eq!((left.len(), &*left[0].attempt, &*left[0].sequence_number), (1, &b"B"[..], "4"));
    }

    // T41
    #[test]
    fn sequence_numbers_of_any_length_are_compared_as_numbers() {
        let larger_than_any = "123456789012345678901234567890123456789012345";
        for (less, more) in
            [("9", "10"), ("099", "100"), ("000001", "2"), ("12", "13"), ("7", larger_than_any)]
        {
            assert!(order(less) < order(more), "{less} {more}");
        }
        assert_eq!(order("0012"), order("12"));
    }

    #[test]
    fn a_heartbeat_moves_the_lease_forward_only() {
        let with_lease = |lease: &str| {
            let mut image = image("in_progress", "A", 0);
            image["lease_until"]["N"] = lease.into();
            change(1, image)
        };
        let left = open(&[with_lease("1000"), with_lease("9000"), with_lease("5000")]);
        assert_eq!(left[0].look_at, Timestamp::from_secs(9));
    }

    #[test]
    fn accepted_work_is_open_until_a_worker_takes_it() {
        let accepted = change(1, image("pending", "A", 10));
        assert_eq!(open(std::slice::from_ref(&accepted))[0].look_at, Timestamp::from_secs(70));
        for taken in [change(2, image("in_progress", "B", 10)), change(2, image("completed", "B", 10))] {
            let left = open(&[accepted.clone(), taken]);
            assert!(left.iter().all(|open| open.look_at == Timestamp::from_secs(30)), "{left:?}");
        }
        // The end belongs to an earlier generation of the key.
        let left = open(&[accepted, change(0, image("completed", "B", 9))]);
        assert_eq!(left.len(), 1);
    }

    // T68: its worker did nothing, in the batch of its claim.
    #[test]
    fn work_that_is_pending_again_is_open_in_any_order() {
        let accepted = change(1, image("pending", "A", 10));
        let claimed = change(2, image("in_progress", "B", 10));
        let returned = change(3, image("pending", "B", 10));
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let all = [&accepted, &claimed, &returned];
            let left = open(&order.map(|place: usize| all[place].clone()));
            assert_eq!((left.len(), &*left[0].sequence_number), (1, "3"), "{order:?}");
            assert_eq!(left[0].look_at, Timestamp::from_secs(70));
        }
        let ended = change(4, image("completed", "C", 10));
        assert_eq!(open(&[returned, ended]), []);
    }

    // T19
    #[test]
    fn other_items_and_deletions_are_neither_open_nor_poison() {
        let mut sibling = change(1, json!({ "body": { "B": "AA==" } }));
        sibling["dynamodb"]["Keys"]["sk"]["S"] = "body#0".into();
        let mut deletion = change(2, Value::Null);
        deletion["eventName"] = "UNKNOWN_TO_SDK_VERSION".into();
        let mut pruned = change(3, Value::Null);
        pruned["userIdentity"] = json!({ "type": "Service", "principalId": "dynamodb.amazonaws.com" });
        let unmatched = unmatched(&[sibling, deletion, pruned]);
        assert_eq!((unmatched.open.len(), unmatched.poison.len()), (0, 0));
        assert_eq!(unmatched.pruned.values().sum::<u64>(), 1);
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
            let unmatched = unmatched(&[poison.clone(), change(6, image("in_progress", "B", 0))]);
            assert_eq!(unmatched.open.len(), 1, "{poison}");
            assert_eq!(unmatched.poison.len(), 1, "{poison}");
            assert_eq!(unmatched.poison[0].sequence_number(), Some("5"), "{poison}");
        }
        let unmatched = unmatched(&[json!("nothing at all")]);
        assert_eq!((unmatched.poison.len(), unmatched.poison[0].sequence_number()), (1, None));
    }
}
