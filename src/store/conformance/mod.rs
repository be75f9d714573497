//! The suite that every store must pass.
//!
//! 1. [`all`] checks the promises of [`Store`]; [`unsettled()`] checks those of [`Unsettled`](super::Unsettled).
//! 2. [`domain_writes`] checks that domain writes commit with their record or not at all. It needs a table.
//! 3. [`references`] checks that a provider's id leads to one record.
//! 4. [`outbox()`] checks that messages stay until they are removed: see [`Outbox`](super::Outbox).
//! 5. Each check panics if the store breaks its promise.
//! 6. Each check makes fresh keys, so that checks can run against one store concurrently and repeatedly.
//!
//! It does not check that records expire, or how a store behaves while it fails.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use lambda_idempotency::{domain::Table, store::{conformance, memory::MemoryStore}};
//!
//! let store = MemoryStore::new();
//! conformance::all(&store).await;
//! conformance::unsettled(&store).await;
//! conformance::references(&store).await;
//! conformance::outbox(&store).await;
//! conformance::domain_writes(&store, &Table::new("accounts", "id")).await;
//! # }
//! ```

mod checkpoints;
mod domain_writes;
mod not_found;
mod outbox;
pub mod samples;
mod unsettled;

use std::{collections::HashSet, time::Duration};

use super::{AuditLine, Companion, Store, WriteOutcome};
use crate::{
    fingerprint::{Content, FingerprintRule, Fingerprints},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    record::{
        BodyId, Effects, Encoding, Evidence, Head, KeptAnswer, KeptBody, Place, Record, Reference, Revision,
        UnknownCause, Verdict,
    },
    time::Timestamp,
};
use bytes::Bytes;
use futures_util::future::join_all;
use samples::fresh;

pub use domain_writes::domain_writes;
pub use outbox::outbox;
pub use unsettled::unsettled;

/// How many writers race.
const RACERS: usize = 100;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_123);
const LEASE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs every check, one after the other.
pub async fn all(store: &dyn Store) {
    an_insert_writes_only_if_there_is_no_record(store).await;
    a_swap_writes_only_over_the_revision_that_was_seen(store).await;
    a_swap_without_a_record_writes_nothing(store).await;
    a_write_sent_twice_finds_its_own_revision(store).await;
    every_state_comes_back_as_it_was_written(store).await;
    of_a_hundred_racing_inserts_one_is_applied(store).await;
    of_a_hundred_racing_swaps_one_is_applied(store).await;
    similar_keys_have_different_records(store).await;
    a_body_is_kept_as_it_was_and_never_changed(store).await;
    a_body_of_any_size_is_kept_whole_or_not_at_all(store).await;
    companions_are_written_with_their_record_or_not_at_all(store).await;
    a_report_is_written_over_the_one_that_lies_there(store).await;
    audit_lines_come_back_in_the_order_of_their_time(store).await;
}

/// Runs the check of references, for a store that keeps them: [`Store::refer`] may be called again, and never leads to another
/// record.
pub async fn references(store: &dyn Store) {
    let (ours, theirs) = (reserved("key").key, reserved("another").key);
    let reference = |provider: &str| {
        let id = fresh::<Revision>().to_string();
        Reference::new(provider, id).expect("it is a reference")
    };
    let reference = reference("provider");
    assert_eq!(store.referred(&reference).await.expect("it answers"), None);
    for _ in 0..2 {
        store.refer(&reference, &ours, NOW.plus(HOUR)).await.expect("it is written");
    }
    assert!(store.refer(&reference, &theirs, NOW.plus(HOUR)).await.is_err());
    assert_eq!(store.referred(&reference).await.expect("it answers"), Some(ours));
    let of_another = Reference::new("another", reference.id()).expect("it is a reference");
    assert_eq!(store.referred(&of_another).await.expect("it answers"), None);
}

/// [`Store::put`] over no record writes if there is none, and otherwise returns the current one.
async fn an_insert_writes_only_if_there_is_no_record(store: &dyn Store) {
    let (first, second) = (reserved("key"), reserved("key"));
    let second = Record { key: first.key.clone(), ..second };
    assert_eq!(load(store, &first.key).await, None);
    assert_eq!(put(store, None, &first).await, WriteOutcome::Written);
    assert_eq!(put(store, None, &second).await, refused(&first));
    assert_eq!(load(store, &first.key).await, Some(first));
}

/// [`Store::put`] over a record writes if the revision is still the one seen, and otherwise returns the current record.
async fn a_swap_writes_only_over_the_revision_that_was_seen(store: &dyn Store) {
    let first = reserved("key");
    let second = released(&first);
    let late = released(&first);
    put(store, None, &first).await;
    assert_eq!(put(store, Some(first.revision), &second).await, WriteOutcome::Written);
    assert_eq!(put(store, Some(first.revision), &late).await, refused(&second));
    assert_eq!(load(store, &first.key).await, Some(second));
}

/// A swap needs a current record.
async fn a_swap_without_a_record_writes_nothing(store: &dyn Store) {
    let record = reserved("key");
    assert_eq!(put(store, Some(record.revision), &released(&record)).await, WriteOutcome::Refused(None));
    assert_eq!(load(store, &record.key).await, None);
}

/// A write that is sent again is refused, and returns the record that it wrote. This makes a lost answer harmless.
async fn a_write_sent_twice_finds_its_own_revision(store: &dyn Store) {
    let first = reserved("key");
    put(store, None, &first).await;
    assert_eq!(put(store, None, &first).await, refused(&first));
    let second = released(&first);
    put(store, Some(first.revision), &second).await;
    assert_eq!(put(store, Some(first.revision), &second).await, refused(&second));
}

/// No part of a record is lost or changed in storage.
async fn every_state_comes_back_as_it_was_written(store: &dyn Store) {
    let headers = [("link".to_owned(), "<a>".to_owned()), ("link".to_owned(), "<ü>".to_owned())].into();
    let response = Head::Http { status: 201, headers };
    let bytes = Bytes::from_static(b"\x00\xff{}");
    let answers = [
        (response.clone(), KeptBody::Inline { bytes: Bytes::new(), encoding: Encoding::Identity, length: 0 }),
        (response.clone(), KeptBody::Inline { bytes, encoding: Encoding::Zlib, length: 1_000_000 }),
        (response.clone(), outside(Place::BodyItem, Encoding::Zlib)),
        (response.clone(), outside(Place::S3, Encoding::Identity)),
        (response, KeptBody::Omitted { length: 9 }),
        (Head::Payload, KeptBody::Omitted { length: 0 }),
        (Head::Abandoned, KeptBody::Omitted { length: 0 }),
    ];
    let causes = [
        UnknownCause::LeaseExpired,
        UnknownCause::PerhapsExecuted,
        UnknownCause::Contested,
        UnknownCause::Held,
    ];
    let transactional = Record { effects: Effects::InTransaction, ..reserved("key") };
    let with_phases = |phases| Record { effects: Effects::InPhases(phases), ..reserved("key") };
    let kept = [("charge", r#"{"id":"ü","amount":1.10}"#), ("stock", "[]")];
    let mut phases = samples::phases(&kept, NOW);
    let mut records = vec![
        pending(&unique(), "key"),
        reserved("key"),
        released(&reserved("key")),
        Record { reported: Some(Evidence::Perhaps), ..reserved("key") },
        Record { reported: Some(Evidence::Effect), ..reserved("key") },
        Record {
            with_writes: true,
            ..answered(&reserved("key"), Head::Payload, KeptBody::Omitted { length: 0 })
        },
        Record { messages: 3, ..reserved("key") },
        Record { effects: Effects::InTransaction, ..reserved("key") },
        transactional.expire(fresh(), NOW.plus(LEASE)).expect("its lease has expired").into(),
    ];
    records.extend(answers.map(|(head, body)| answered(&reserved("key"), head, body)));
    records.extend(causes.map(|cause| samples::unknown(&reserved("key"), cause, NOW)));
    records.extend([
        with_phases(samples::phases(&[], NOW)),
        with_phases(phases.clone()),
        samples::between_workers(&reserved("key"), &[], NOW),
        samples::between_workers(&reserved("key"), &kept, NOW),
    ]);
    // One result that is too long, another that is reported, and a call that may have been made.
    phases.kept[1].result = None;
    phases.noted = samples::phases(&[("shipment", "null")], NOW.plus(HOUR)).kept;
    phases.begun = Some(NOW);
    let open = with_phases(phases);
    let body = || KeptBody::Omitted { length: 0 };
    let completed = answered(&open, Head::Payload, body());
    assert_eq!(completed.phases().map(|phases| phases.kept.len()), Some(2), "it keeps their names");
    records.extend([samples::unknown(&Record { key: reserved("key").key, ..open.clone() }, causes[0], NOW)]);
    records.extend([Record { key: reserved("key").key, ..completed }, open]);
    for record in records {
        put(store, None, &record).await;
        let current = load(store, &record.key).await;
        assert_eq!(current.as_ref(), Some(&record), "{}", record.state.name());
    }
}

/// Of many inserts one is applied, and all others return its record.
async fn of_a_hundred_racing_inserts_one_is_applied(store: &dyn Store) {
    let key = reserved("key").key;
    let records: Vec<_> = (0..RACERS).map(|_| Record { key: key.clone(), ..reserved("key") }).collect();
    let answers = join_all(records.iter().map(|record| put(store, None, record))).await;
    one_won(&records, &answers, load(store, &key).await);
}

/// Of many swaps one is applied, and all the others return its record.
async fn of_a_hundred_racing_swaps_one_is_applied(store: &dyn Store) {
    let first = reserved("key");
    put(store, None, &first).await;
    let records: Vec<_> = (0..RACERS).map(|_| released(&first)).collect();
    let answers = join_all(records.iter().map(|record| put(store, Some(first.revision), record))).await;
    one_won(&records, &answers, load(store, &first.key).await);
}

/// Tenant, operation and key are kept apart, whatever characters they hold.
async fn similar_keys_have_different_records(store: &dyn Store) {
    let unique = unique();
    let tenants =
        [format!("{unique}a"), format!("{unique}a#b"), format!("{unique}a%23b"), format!("{unique}A")];
    let mut revisions = HashSet::new();
    for tenant in &tenants {
        for operation in ["b", "c"] {
            for key in ["c", "b#c", "C", "\u{e9}", "e\u{301}"] {
                let record = Record { key: record_key(tenant, operation, key), ..reserved("key") };
                assert_eq!(
                    put(store, None, &record).await,
                    WriteOutcome::Written,
                    "{tenant} {operation} {key}"
                );
                revisions.insert(record.revision);
            }
        }
    }
    assert_eq!(revisions.len(), tenants.len() * 10);
}

/// A body is returned as it was kept, and a second one under its id changes nothing.
async fn a_body_is_kept_as_it_was_and_never_changed(store: &dyn Store) {
    let (key, id): (_, BodyId) = (reserved("key").key, fresh());
    let body = Bytes::from_static(b"\x00\xffbody");
    assert_eq!(store.load_body(&key, id, Place::BodyItem).await.expect("read"), None);
    for body in [body.clone(), Bytes::from_static(b"another")] {
        assert_eq!(store.keep_body(&key, id, body, NOW).await.expect("kept"), Some(Place::BodyItem));
    }
    assert_eq!(store.load_body(&key, id, Place::BodyItem).await.expect("read"), Some(body));
    let other: BodyId = fresh();
    assert_eq!(store.load_body(&key, other, Place::BodyItem).await.expect("read"), None);
}

/// A body of any size is kept whole or not at all; its size never causes an error.
async fn a_body_of_any_size_is_kept_whole_or_not_at_all(store: &dyn Store) {
    for size in [0, 1, 300_000, 399_000, 410_000, 2_000_000] {
        let (key, id): (_, BodyId) = (reserved("key").key, fresh());
        let body = Bytes::from(vec![b'x'; size]);
        let place = store.keep_body(&key, id, body.clone(), NOW).await.expect("a place, or none");
        assert!(place.is_some() || size > 399_000, "{size} bytes have no place");
        if let Some(place) = place {
            assert_eq!(store.load_body(&key, id, place).await.expect("read"), Some(body), "{size}");
        }
    }
}

/// Several alarms of a record may be about one report.
async fn a_report_is_written_over_the_one_that_lies_there(store: &dyn Store) {
    let (mut record, id): (_, BodyId) = (reserved("key"), fresh());
    put(store, None, &record).await;
    for report in [&b"first"[..], b"second"] {
        let next = Record { revision: fresh(), ..record.clone() };
        let with = [Companion::KeepReport(id, Bytes::copy_from_slice(report), NOW)];
        // Not over another record.
        assert_eq!(store.put(Some(fresh()), &next, &with).await.expect("an answer"), refused(&record));
        let outcome = store.put(Some(record.revision), &next, &with).await.expect("an answer to a write");
        assert_eq!(outcome, WriteOutcome::Written);
        assert_eq!(load(store, &record.key).await, Some(next.clone()));
        let kept = store.load_body(&record.key, id, Place::BodyItem).await.expect("read");
        assert_eq!(kept.as_deref(), Some(report));
        record = next;
    }
}

/// Companions are applied with their record's write, and not if it is refused.
async fn companions_are_written_with_their_record_or_not_at_all(store: &dyn Store) {
    let first = reserved("key");
    put(store, None, &first).await;
    let (key, id): (_, BodyId) = (&first.key, fresh());
    store.keep_body(key, id, Bytes::from_static(b"body"), NOW).await.expect("kept");
    let next = released(&first);
    let with = [Companion::Audit(line(1, &first, &next)), Companion::DeleteBody(id)];

    let outcome = store.put(Some(fresh()), &next, &with).await.expect("an answer to a write");
    assert_eq!(outcome, refused(&first));
    assert_eq!(store.audit_lines(key).await.expect("read"), []);
    assert!(store.load_body(key, id, Place::BodyItem).await.expect("read").is_some());

    let outcome = store.put(Some(first.revision), &next, &with).await.expect("an answer to a write");
    assert_eq!(outcome, WriteOutcome::Written);
    assert_eq!(load(store, key).await, Some(next.clone()));
    assert_eq!(store.audit_lines(key).await.expect("read"), [line(1, &first, &next)]);
    assert_eq!(store.load_body(key, id, Place::BodyItem).await.expect("read"), None);

    // It is sent again, as if its answer were lost. It finds its own record, and nothing is written twice.
    let again = store.put(Some(first.revision), &next, &with).await.expect("an answer to a write");
    assert!(again == WriteOutcome::Written || again == refused(&next), "{again:?}");
    assert_eq!(store.audit_lines(key).await.expect("read").len(), 1);
}

/// Audit lines are returned in the order of their time.
async fn audit_lines_come_back_in_the_order_of_their_time(store: &dyn Store) {
    let record = reserved("key");
    for at in [2, 1, 3] {
        store.audit(&record.key, fresh(), &line(at, &record, &record)).await.expect("written");
    }
    let lines = store.audit_lines(&record.key).await.expect("read");
    assert_eq!(lines.iter().map(|line| line.at).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(store.audit_lines(&reserved("key").key).await.expect("read"), []);
}

fn line(at: u64, before: &Record, after: &Record) -> AuditLine {
    AuditLine::new(["who", "what", "why"], Timestamp::from_millis(at), Some(before), Some(after))
}

fn one_won(records: &[Record], answers: &[WriteOutcome], current: Option<Record>) {
    let winners: Vec<_> =
        records.iter().zip(answers).filter(|(_, answer)| **answer == WriteOutcome::Written).collect();
    let [(winner, _)] = winners[..] else { panic!("{} writes were applied", winners.len()) };
    assert_eq!(current.as_ref(), Some(winner));
    for answer in answers.iter().filter(|answer| **answer != WriteOutcome::Written) {
        assert_eq!(answer, &refused(winner));
    }
}

fn refused(current: &Record) -> WriteOutcome {
    WriteOutcome::Refused(Some(Box::new(current.clone())))
}

async fn put(store: &dyn Store, seen: Option<Revision>, record: &Record) -> WriteOutcome {
    store.put(seen, record, &[]).await.expect("an answer to a write")
}

async fn load(store: &dyn Store, key: &RecordKey) -> Option<Record> {
    store.load(key).await.expect("an answer to a load")
}

fn record_key(tenant: &str, operation: &str, key: &str) -> RecordKey {
    RecordKey::new(
        Tenant::parse(tenant).expect("a tenant"),
        OperationName::parse(operation).expect("an operation"),
        IdempotencyKey::parse(key).expect("a key"),
    )
}

fn fingerprints(key: &str) -> Fingerprints {
    let content = Content::new("POST", "/", key.as_bytes());
    content.fingerprints("conformance", &FingerprintRule::new(), &[])
}

fn pending(tenant: &str, key: &str) -> Record {
    samples::pending(record_key(tenant, "conformance", key), fingerprints(key), NOW)
}

fn in_progress(tenant: &str, key: &str, lease_until: Timestamp) -> Record {
    samples::in_progress(record_key(tenant, "conformance", key), fingerprints(key), NOW, lease_until)
}

fn reserved(key: &str) -> Record {
    in_progress(&unique(), key, NOW.plus(LEASE))
}

fn released(record: &Record) -> Record {
    samples::released(record, NOW, record.retention)
}

fn answered(record: &Record, head: Head, body: KeptBody) -> Record {
    samples::settled(record, Verdict::Executed(KeptAnswer { head, body }), NOW, record.retention)
}

fn outside(place: Place, encoding: Encoding) -> KeptBody {
    KeptBody::Outside { id: fresh(), place, encoding, length: 7 }
}

fn unique() -> String {
    fresh::<Revision>().to_string()
}
