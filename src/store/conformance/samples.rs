//! Makes records in each of their states, for tests of stores and of code that uses the library.
//!
//! 1. [`pending`] and [`in_progress`] make a record of a key and fingerprints.
//! 2. [`completed`], [`released`], [`unknown`] and [`between_workers`] put a record in that state, under a fresh revision.
//!
//! It does not enforce the rules by which one state follows another.

use std::time::Duration;

use crate::{
    fingerprint::Fingerprints,
    key::RecordKey,
    record::{
        Answer, Effects, Encoding, KeptAnswer, KeptBody, Note, Phases, Record, ReservationRequest, SettledBy,
        State, UnknownCause, Verdict, phase_of,
    },
    time::Timestamp,
    time_budget::DEFAULT_RETENTION,
    world::{SystemWorld, World},
};

/// For how long the sample of accepted work waits for a worker.
pub const CLAIM_WITHIN: Duration = Duration::from_secs(3600);

/// A record that was accepted at this time, and that no worker has claimed. It waits for [`CLAIM_WITHIN`].
pub fn pending(key: RecordKey, fingerprints: Fingerprints, at: Timestamp) -> Record {
    Record::accept(&reservation(key, fingerprints, at), at.plus(CLAIM_WITHIN), 2, fresh(), at)
}

/// A record whose execution began at this time, with a lease until `lease_until`.
pub fn in_progress(
    key: RecordKey,
    fingerprints: Fingerprints,
    at: Timestamp,
    lease_until: Timestamp,
) -> Record {
    Record::reserve(&reservation(key, fingerprints, lease_until), fresh(), at)
}

/// The same record, completed. The answer's body is in the record, unencoded.
pub fn completed(record: &Record, answer: Answer, at: Timestamp, retain: Duration) -> Record {
    let Answer { head, body } = answer;
    let length = body.len() as u64;
    let body = KeptBody::Inline { bytes: body, encoding: Encoding::Identity, length };
    settled(record, Verdict::Executed(KeptAnswer { head, body }), at, retain)
}

/// The same record, released: a retry may run.
pub fn released(record: &Record, at: Timestamp, retain: Duration) -> Record {
    settled(record, Verdict::NotExecuted, at, retain)
}

/// The same record, unknown since this time and due for a question at once.
pub fn unknown(record: &Record, cause: UnknownCause, at: Timestamp) -> Record {
    let state = State::Unknown { cause, since: at, reconcile_at: at, asked: 0, anew_at: None };
    Record { revision: fresh(), state, ..record.clone() }
}

/// For how long the sample of an operation between workers waits for a retry.
pub const RESUME_WITHIN: Duration = Duration::from_secs(3600);

/// The same record, between workers since this time, for [`RESUME_WITHIN`]. The phases of these names are kept, with these results
/// as JSON.
pub fn between_workers(record: &Record, kept: &[(&str, &str)], at: Timestamp) -> Record {
    let state = State::BetweenWorkers { since: at, reconcile_at: at.plus(RESUME_WITHIN) };
    Record { revision: fresh(), effects: Effects::InPhases(phases(kept, at)), state, ..record.clone() }
}

/// Phases of these names and results, kept at this time.
pub(crate) fn phases(kept: &[(&str, &str)], at: Timestamp) -> Phases {
    let phase = |(name, result): &(&str, &str)| phase_of((*name).into(), Some((*result).into()), at);
    Phases { kept: kept.iter().map(phase).collect(), ..Phases::none(RESUME_WITHIN) }
}

pub(super) fn reservation(
    key: RecordKey,
    fingerprints: Fingerprints,
    lease_until: Timestamp,
) -> ReservationRequest {
    let request = ReservationRequest::new(key, fingerprints, fresh(), lease_until, DEFAULT_RETENTION);
    ReservationRequest { origin: Some(Note::new("POST /payments")), ..request }
}

pub(super) fn settled(record: &Record, verdict: Verdict, at: Timestamp, retain: Duration) -> Record {
    let record = Record { retention: retain, ..record.clone() };
    record.settled(verdict, SettledBy::Provider, fresh(), at)
}

/// A fresh id.
pub(super) fn fresh<T: From<[u8; 16]>>() -> T {
    SystemWorld.nonce().into()
}
