//! The record of one operation: a compare-and-set register, and every transition of its state.
//!
//! 1. Each transition is a pure function from record to record: no await, no clock, no randomness. It is written only if the
//!    revision that it started from is still current.
//! 2. `decide` says what a caller may do whose key already has a record: replay, wait, take over, or be refused.
//! 3. `own` has the transitions of the execution that owns a record, fenced by its attempt.
//! 4. `settle` has those of everybody else: give up a dead worker, settle an unknown outcome, forget an answer.
//! 5. An [`Answer`] is a head and a body. The head of an HTTP response is a number and pairs of strings.
//!
//! It knows nothing of DynamoDB, Lambda or web frameworks, and writes nothing itself: see [`engine`](crate::engine). For the
//! states and who may change them, see docs/states.md in the repository.

mod answer;
mod decide;
mod id;
mod note;
mod own;
mod settle;
mod state;

use std::time::Duration;

use crate::{
    fingerprint::{Fingerprint, Fingerprints},
    key::RecordKey,
    time::Timestamp,
};

pub use answer::{Answer, BodyId, Head, KeptAnswer, Place};
pub(crate) use answer::{Encoding, KeptBody};
pub(crate) use decide::{Decision, decide};
pub use id::{AttemptId, Revision};
pub use note::Note;
pub(crate) use own::{FencedError, NOT_EXECUTED, Worker};
pub(crate) use settle::{SettleError, Verdict};
pub use state::{SettledBy, State, UnknownCause};

pub use crate::headers::{SAFE_HEADERS, may_be_kept};

/// Everything known about one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Tenant, operation and idempotency key.
    pub key: RecordKey,
    /// The id of the write that produced this record.
    pub revision: Revision,
    /// The execution that owns it, or owned it last.
    pub attempt: AttemptId,
    /// How many executions there were, this one included.
    pub attempts: u32,
    /// What tells a retry from another request.
    pub fingerprint: Fingerprint,
    /// When the key was first seen.
    pub created_at: Timestamp,
    /// When the execution that owns it, or owned it last, began.
    pub began_at: Timestamp,
    /// How long it is kept once it is settled, as its guard configured: whatever settles it keeps it as long.
    pub retention: Duration,
    /// Whether another execution reported, while this one was in progress, that it ran the operation, certainly or possibly.
    /// Then this one's report that it did nothing does not allow a retry.
    pub contested: bool,
    /// Whether an effect was reported: by the provider, or by a worker whose domain writes were refused. Then only proof of it,
    /// or an operator, ends the record: not a worker's refusal, nor an effect that is denied or not found.
    pub claimed: bool,
    /// Whether all effects of its execution are in the transaction that completes it, as its operation said. Then another write
    /// over the same revision proves that it did nothing, and never will.
    pub transactional: bool,
    /// Whether domain writes committed with its completion.
    pub with_writes: bool,
    /// The method and route of the request, as the front reports them; shown to operators.
    pub origin: Option<Note>,
    /// Why this execution, or else the one before it, failed; shown to operators.
    pub last_failure: Option<Note>,
    /// Who settled it, if not its worker, and why; shown to operators.
    pub settled_note: Option<Note>,
    /// Its state.
    pub state: State,
}

/// A caller's request to execute an operation.
#[derive(Clone, Debug)]
pub(crate) struct ReservationRequest {
    /// Tenant, operation and idempotency key.
    pub key: RecordKey,
    /// What tells a retry from another request.
    pub fingerprints: Fingerprints,
    /// The execution that the caller would run.
    pub attempt: AttemptId,
    /// Until when it would own the record.
    pub lease_until: Timestamp,
    /// How long the record is to be kept once it is settled.
    pub retention: Duration,
    /// Whether an execution may begin. A key that is too old gets the current record's answer, and begins nothing.
    pub may_begin: bool,
    /// Whether all effects of the execution are in the transaction that completes it.
    pub transactional: bool,
    /// The method and route of the request.
    pub origin: Option<Note>,
}

impl Record {
    /// How long a client should wait before it retries. In progress: as long again as the attempt has run, at most until its
    /// lease has expired. Unknown: until reconciliation next asks. Zero if the record is settled.
    pub(crate) fn wait(&self, now: Timestamp) -> Duration {
        match &self.state {
            State::Pending => now.since(self.created_at),
            State::InProgress { lease_until } => now.since(self.began_at).min(lease_until.since(now)),
            State::Unknown { reconcile_at, .. } => reconcile_at.since(now),
            State::Completed { .. } | State::FailedRetryable { .. } => Duration::ZERO,
        }
    }

    /// The same record, with a note on why its execution failed; unchanged unless it did.
    pub(crate) fn failed(self, because: Option<Note>) -> Self {
        match self.state {
            State::Unknown { .. } | State::FailedRetryable { .. } if because.is_some() => {
                Self { last_failure: because, ..self }
            }
            _ => self,
        }
    }

    /// The same record, with a note on who settled it, and why; unchanged unless it is settled.
    pub(crate) fn settled_because(self, note: Note) -> Self {
        match self.state.settled_by() {
            Some(_) => Self { settled_note: Some(note), ..self },
            None => self,
        }
    }

    /// Whether its execution certainly did nothing, and never will, once another write has replaced this record.
    pub(crate) const fn is_undone_by_the_next_write(&self) -> bool {
        self.transactional && !self.contested && !self.claimed
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        fingerprint::{Content, FingerprintRule},
        key::{IdempotencyKey, OperationName, Tenant},
        world::{SystemWorld, World},
    };

    pub(crate) const RETAIN: Duration = Duration::from_secs(60);

    impl Revision {
        pub(crate) fn mint() -> Self {
            SystemWorld.nonce().into()
        }
    }

    impl AttemptId {
        pub(crate) fn mint() -> Self {
            SystemWorld.nonce().into()
        }
    }

    pub(crate) fn reservation(key: &str) -> ReservationRequest {
        reservation_for(key, "body")
    }

    pub(crate) fn reservation_for(key: &str, body: &str) -> ReservationRequest {
        let content = Content::new("POST", "/payments", body.as_bytes());
        ReservationRequest {
            key: RecordKey::new(
                Tenant::parse("tenant").unwrap(),
                OperationName::parse("pay").unwrap(),
                IdempotencyKey::parse(key).unwrap(),
            ),
            fingerprints: Fingerprints::of("pay", &content, &FingerprintRule::new(), &[]),
            attempt: AttemptId::mint(),
            lease_until: Timestamp::from_secs(1_030),
            retention: RETAIN,
            may_begin: true,
            transactional: false,
            origin: Some(Note::new("POST /payments")),
        }
    }

    pub(crate) fn answer() -> KeptAnswer {
        let bytes = Bytes::from_static(b"{}");
        let body = KeptBody::Inline { length: bytes.len() as u64, bytes, encoding: Encoding::Identity };
        let headers = vec![("location".into(), "/payments/1".into())];
        KeptAnswer { head: Head::Http { status: 201, headers }, body }
    }
}
