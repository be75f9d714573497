//! The suite that every store must pass. Each check panics where the store breaks a promise of [`Store`].
//!
//! Checks make keys of their own, so that all of them, at once and again, can run against one store.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use lambda_idempotency::store::{conformance, memory::MemoryStore};
//!
//! conformance::all(&MemoryStore::new()).await;
//! # }
//! ```

use std::{collections::HashSet, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use uuid::Uuid;

use super::{Put, Store};
use crate::{
    fingerprint::{Content, FingerprintRule, Fingerprints},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    record::{
        AttemptId, Bid, BodyId, Encoding, KeptBody, KeptResponse, Place, Record, Revision, UnknownCause,
    },
    time::Timestamp,
};

/// How many writers race.
const RACERS: usize = 100;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_123);
const RETAIN: Duration = Duration::from_secs(3600);

/// Every check, one after the other.
pub async fn all<S: Store>(store: &S) {
    an_insert_writes_where_nothing_is_and_gives_back_what_is_there(store).await;
    a_swap_writes_where_the_revision_still_stands_and_gives_back_what_is_there(store).await;
    a_swap_where_nothing_is_writes_nothing(store).await;
    a_write_sent_twice_meets_its_own_revision(store).await;
    every_state_comes_back_as_it_was_written(store).await;
    of_a_hundred_racing_inserts_one_is_applied(store).await;
    of_a_hundred_racing_swaps_one_is_applied(store).await;
    keys_that_look_alike_are_apart(store).await;
    a_body_is_kept_as_it_was_and_never_changed(store).await;
    a_body_of_any_size_has_a_place_or_none(store).await;
}

/// [`Store::insert`] writes where nothing is, or gives back what is there.
pub async fn an_insert_writes_where_nothing_is_and_gives_back_what_is_there<S: Store>(store: &S) {
    let (first, second) = (reserved("key"), reserved("key"));
    let second = Record { key: first.key.clone(), ..second };
    assert_eq!(load(store, &first.key).await, None);
    assert_eq!(insert(store, &first).await, Put::Written);
    assert_eq!(insert(store, &second).await, refused(&first));
    assert_eq!(load(store, &first.key).await, Some(first));
}

/// [`Store::swap`] writes where the revision is the one seen, or gives back what is there.
pub async fn a_swap_writes_where_the_revision_still_stands_and_gives_back_what_is_there<S: Store>(store: &S) {
    let first = reserved("key");
    let second = released(&first);
    let late = released(&first);
    insert(store, &first).await;
    assert_eq!(swap(store, first.revision, &second).await, Put::Written);
    assert_eq!(swap(store, first.revision, &late).await, refused(&second));
    assert_eq!(load(store, &first.key).await, Some(second));
}

/// A swap needs something to swap.
pub async fn a_swap_where_nothing_is_writes_nothing<S: Store>(store: &S) {
    let record = reserved("key");
    assert_eq!(swap(store, record.revision, &released(&record)).await, Put::Refused(None));
    assert_eq!(load(store, &record.key).await, None);
}

/// What makes a lost answer harmless: a write that is sent again is refused by what it wrote.
pub async fn a_write_sent_twice_meets_its_own_revision<S: Store>(store: &S) {
    let first = reserved("key");
    insert(store, &first).await;
    assert_eq!(insert(store, &first).await, refused(&first));
    let second = released(&first);
    swap(store, first.revision, &second).await;
    assert_eq!(swap(store, first.revision, &second).await, refused(&second));
}

/// Nothing of a record is lost or changed on the way.
pub async fn every_state_comes_back_as_it_was_written<S: Store>(store: &S) {
    let bytes = Bytes::from_static(b"\x00\xff{}");
    let bodies = [
        KeptBody::Inline { bytes: Bytes::new(), encoding: Encoding::Identity, length: 0 },
        KeptBody::Inline { bytes, encoding: Encoding::Zlib, length: 1_000_000 },
        KeptBody::Outside { id: BodyId::mint(), place: Place::Beside, encoding: Encoding::Zlib, length: 7 },
        KeptBody::Outside { id: BodyId::mint(), place: Place::S3, encoding: Encoding::Identity, length: 8 },
        KeptBody::Omitted { length: 9 },
    ];
    let mut records: Vec<_> = bodies.into_iter().map(|body| completed(&reserved("key"), body)).collect();
    records.push(Record::accept(&bid("key"), Revision::mint(), NOW));
    records.push(reserved("key"));
    records.push(released(&reserved("key")));
    for cause in [
        UnknownCause::LeaseOver,
        UnknownCause::HandlerFailed,
        UnknownCause::Panicked,
        UnknownCause::ResponseLost,
    ] {
        let record = reserved("key");
        records.push(record.doubt(record.attempt, Revision::mint(), cause, NOW).expect("in progress"));
    }
    for record in records {
        insert(store, &record).await;
        let there = load(store, &record.key).await;
        assert_eq!(there.as_ref(), Some(&record), "{}", record.state.name());
    }
}

/// One insert of many is applied, and all the others are told which.
pub async fn of_a_hundred_racing_inserts_one_is_applied<S: Store>(store: &S) {
    let key = reserved("key").key;
    let records: Vec<_> = (0..RACERS).map(|_| Record { key: key.clone(), ..reserved("key") }).collect();
    let answers = join_all(records.iter().map(|record| insert(store, record))).await;
    one_won(&records, &answers, load(store, &key).await);
}

/// One swap of many is applied, and all the others are told which.
pub async fn of_a_hundred_racing_swaps_one_is_applied<S: Store>(store: &S) {
    let first = reserved("key");
    insert(store, &first).await;
    let records: Vec<_> = (0..RACERS).map(|_| released(&first)).collect();
    let answers = join_all(records.iter().map(|record| swap(store, first.revision, record))).await;
    one_won(&records, &answers, load(store, &first.key).await);
}

/// Tenant, operation and key are kept apart, whatever characters they hold.
pub async fn keys_that_look_alike_are_apart<S: Store>(store: &S) {
    let unique = Uuid::new_v4();
    let tenants =
        [format!("{unique}a"), format!("{unique}a#b"), format!("{unique}a%23b"), format!("{unique}A")];
    let mut revisions = HashSet::new();
    for tenant in &tenants {
        for operation in ["b", "c"] {
            for key in ["c", "b#c", "C", "\u{e9}", "e\u{301}"] {
                let record = Record { key: record_key(tenant, operation, key), ..reserved("key") };
                assert_eq!(insert(store, &record).await, Put::Written, "{tenant} {operation} {key}");
                revisions.insert(record.revision);
            }
        }
    }
    assert_eq!(revisions.len(), tenants.len() * 10);
}

/// A body comes back as it was, and a second one under its id changes nothing.
pub async fn a_body_is_kept_as_it_was_and_never_changed<S: Store>(store: &S) {
    let (key, id) = (reserved("key").key, BodyId::mint());
    let body = Bytes::from_static(b"\x00\xffbody");
    assert_eq!(store.load_body(&key, id, Place::Beside).await.expect("read"), None);
    for body in [body.clone(), Bytes::from_static(b"another")] {
        assert_eq!(store.keep_body(&key, id, body, NOW).await.expect("kept"), Some(Place::Beside));
    }
    assert_eq!(store.load_body(&key, id, Place::Beside).await.expect("read"), Some(body));
    let other = BodyId::mint();
    assert_eq!(store.load_body(&key, other, Place::Beside).await.expect("read"), None);
}

/// A large body is kept whole or not at all, and never an error.
pub async fn a_body_of_any_size_has_a_place_or_none<S: Store>(store: &S) {
    for size in [0, 1, 300_000, 399_000, 410_000, 2_000_000] {
        let (key, id) = (reserved("key").key, BodyId::mint());
        let body = Bytes::from(vec![b'x'; size]);
        let place = store.keep_body(&key, id, body.clone(), NOW).await.expect("a place, or none");
        assert!(place.is_some() || size > 399_000, "{size} bytes have no place");
        if let Some(place) = place {
            assert_eq!(store.load_body(&key, id, place).await.expect("read"), Some(body), "{size}");
        }
    }
}

fn one_won(records: &[Record], answers: &[Put], there: Option<Record>) {
    let winners: Vec<_> =
        records.iter().zip(answers).filter(|(_, answer)| **answer == Put::Written).collect();
    let [(winner, _)] = winners[..] else { panic!("{} writes were applied", winners.len()) };
    assert_eq!(there.as_ref(), Some(winner));
    for answer in answers.iter().filter(|answer| **answer != Put::Written) {
        assert_eq!(answer, &refused(winner));
    }
}

fn refused(there: &Record) -> Put {
    Put::Refused(Some(Box::new(there.clone())))
}

async fn insert<S: Store>(store: &S, record: &Record) -> Put {
    store.insert(record).await.expect("an answer to an insert")
}

async fn swap<S: Store>(store: &S, seen: Revision, record: &Record) -> Put {
    store.swap(seen, record).await.expect("an answer to a swap")
}

async fn load<S: Store>(store: &S, key: &RecordKey) -> Option<Record> {
    store.load(key).await.expect("an answer to a load")
}

fn record_key(tenant: &str, operation: &str, key: &str) -> RecordKey {
    RecordKey::new(
        Tenant::parse(tenant).expect("a tenant"),
        OperationName::parse(operation).expect("an operation"),
        IdempotencyKey::parse(key).expect("a key"),
    )
}

fn bid(key: &str) -> Bid {
    let content = Content { target: "", json: false, body: key.as_bytes() };
    Bid {
        key: record_key(&Uuid::new_v4().to_string(), "conformance", key),
        fingerprints: Fingerprints::of("conformance", &content, &FingerprintRule::new(), &[]),
        attempt: AttemptId::mint(),
        lease_until: NOW.plus(Duration::from_secs(60)),
    }
}

fn reserved(key: &str) -> Record {
    Record::reserve(&bid(key), Revision::mint(), NOW)
}

fn released(record: &Record) -> Record {
    record.release(record.attempt, Revision::mint(), NOW, RETAIN).expect("in progress")
}

fn completed(record: &Record, body: KeptBody) -> Record {
    let headers = vec![("link".to_owned(), "<a>".to_owned()), ("link".to_owned(), "<ü>".to_owned())];
    let response = KeptResponse { status: 201, headers, body };
    record.complete(record.attempt, Revision::mint(), response, NOW, RETAIN).expect("in progress")
}
