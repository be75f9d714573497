//! The record of one operation: a compare-and-set register, and every transition of its state.
//!
//! 1. Each transition is a pure function from record to record: no await, no clock, no randomness. It is written only if the
//!    revision that it started from is still current.
//! 2. `decide` says what a caller may do if its key already has a record: replay, wait, take over, or be refused. `admission` says whether
//!    an execution may begin at all.
//! 3. `own` has the transitions of the execution that owns a record, fenced by its attempt.
//! 4. `report` says how an execution ended, and which record that makes. `fate` says who wins if the record has moved on: the one place
//!    that decides it. `step` puts the writes, messages and alarms of a report, an `ending`, in their order. `told` decides what its
//!    caller is told, by the names of `says`.
//! 5. `effects` says where the effects of an operation are. `phase` has the recovery points of one that resumes, and `resume` their
//!    transitions.
//! 6. `settle` has the transitions of all others: end a dead worker's lease, settle an unknown outcome, forget an answer. `hold` has
//!    an operator's hold on what was released. `alarm` has what operators must look at, whatever the state, and `raise`
//!    how a record gets it.
//! 7. `accepted` has what is executed later, by a worker, and `work` its transitions.
//! 8. A [`KeptAnswer`] is a head and a body, or the body's place. The head of an HTTP response is a number and pairs of strings.
//!
//! It knows nothing of DynamoDB, Lambda or web frameworks, and writes nothing. The states, and who may change them, are in docs/states.md
//! in the repository.

mod accepted;
mod admission;
mod alarm;
mod answer;
mod decide;
mod effects;
mod ending;
mod fate;
mod found;
mod hold;
mod id;
mod keep;
mod named_enum;
mod note;
mod own;
mod phase;
mod raise;
mod reference;
mod report;
mod resume;
mod says;
mod settle;
mod standing;
mod state;
mod step;
mod told;
mod transition;
mod work;

use std::time::Duration;

use crate::{fingerprint::Fingerprint, key::RecordKey, time::Timestamp};

pub use accepted::{Accepted, Work};
pub use admission::{Admission, Refusal};
pub use alarm::{Alarm, AlarmKind, MAX_ALARMS};
pub(crate) use answer::is_effect;
pub use answer::{AnswerKind, BodyId, Encoding, Head, KeptAnswer, KeptBody, Place};
pub use decide::{ReservationRequest, decide};
pub use effects::Effects;
pub use ending::{Deferred, Ending, Instead, Rows, SoFar, Written};
pub use found::Found;
pub use hold::{HoldError, NOT_CONFIRMED, NOT_FOUND};
pub use id::{AttemptId, Moment, Revision};
pub use keep::{Keeping, Kept, Made};
pub use note::{Note, is_hidden};
pub use own::{HANDLER_FAILED, NOT_EXECUTED};
pub use phase::{MAX_PHASE_RESULTS, MAX_PHASES, Next, Phase, PhaseList, PhaseResult, Phases, Resumes};
pub use reference::Reference;
pub use report::Report;
pub use resume::{NOT_RESUMED, NotTaken};
pub use says::Says;
pub use settle::{SettleError, Verdict};
pub use standing::Standing;
pub use state::{Evidence, SettledBy, State, StateName, UnknownCause};
pub use step::{Counts, MessageNext, Step, WorkerNext};
pub use transition::Transition;

/// Everything known about one operation.
#[derive(Clone, derive_more::Debug, PartialEq, Eq)]
pub struct Record {
    /// Tenant, operation and idempotency key.
    pub key: RecordKey,
    /// The id of the write that produced this record.
    pub revision: Revision,
    /// The execution that owns it, or owned it last.
    pub attempt: AttemptId,
    /// How many executions there were, this one included. A reservation that was taken back is none.
    pub attempts: u32,
    /// What tells a retry from another request.
    pub fingerprint: Fingerprint,
    /// The kind of answer that its callers read.
    pub answer_kind: AnswerKind,
    /// When the key was first seen.
    pub created_at: Timestamp,
    /// When the execution that owns it, or owned it last, began.
    pub began_at: Timestamp,
    /// How long it is kept once it is settled, as its guard configured. It is the same for all that can settle it.
    pub retention: Duration,
    /// What was reported of it, besides what its present execution reports. If there is anything, only proof of the effect or
    /// an operator settles the record. A release, a refusal, a denial or "not found" does not.
    pub reported: Option<Evidence>,
    /// Where all effects of its executions are, and what is known of its phases if they are there.
    pub effects: Effects,
    /// Whether domain writes committed with its completion.
    pub with_writes: bool,
    /// How many messages were committed with it, which is the number of the next one.
    pub messages: u32,
    /// What was accepted, if its operation is executed later.
    pub accepted: Option<Accepted>,
    /// Where its request came from, shown to operators: its method and route, or its queue, and what its key is made of if that is a hash.
    #[debug(skip)]
    pub origin: Option<Note>,
    /// Why the last execution that failed did so, shown to operators.
    pub last_failure: Option<Note>,
    /// Who settled it, if not its worker, and why; or why it is escalated. Shown to operators.
    pub note: Option<Note>,
    /// The provider's own id of its effect, if it was reported.
    pub effect_id: Option<Note>,
    /// What operators must look at.
    pub alarms: Vec<Alarm>,
    /// Its state.
    pub state: State,
}

impl Record {
    /// How long a client should wait before it retries.
    ///
    /// In progress: as long as the execution has run so far, at most until its lease has expired. Unknown: until reconciliation next
    /// asks. Zero if the record is settled.
    pub fn wait(&self, now: Timestamp) -> Duration {
        match &self.state {
            State::Pending { .. } => now.since(self.created_at),
            State::InProgress { lease_until } => now.since(self.began_at).min(lease_until.since(now)),
            State::Unknown { reconcile_at, .. } => reconcile_at.since(now),
            State::BetweenWorkers { .. } | State::Completed { .. } | State::FailedRetryable { .. } => {
                Duration::ZERO
            }
        }
    }

    /// How long its lease still lasts; zero if there is none.
    pub(crate) fn lease_left(&self, now: Timestamp) -> Duration {
        match self.state {
            State::InProgress { lease_until } => lease_until.since(now),
            _ => Duration::ZERO,
        }
    }

    /// Whether `next`, which replaces it, ends a lease: it is the first to see that the worker is dead.
    pub const fn ends_lease(&self, next: &Self) -> bool {
        matches!(self.state, State::InProgress { .. }) && !matches!(next.state, State::InProgress { .. })
    }

    /// What is known of its phases, if its operation resumes.
    pub const fn phases(&self) -> Option<&Phases> {
        self.effects.phases()
    }

    /// Whether all effects of its execution are in the transaction that completes it.
    pub const fn is_transactional(&self) -> bool {
        matches!(self.effects, Effects::InTransaction)
    }

    /// Whether another write to this record proves that its execution, which is in progress, did nothing, and never will.
    pub const fn is_undone_by_the_next_write(&self) -> bool {
        let in_progress = matches!(self.state, State::InProgress { .. });
        in_progress && self.is_transactional() && self.may_end_without_effect()
    }

    /// Whether it is released, and its execution certainly did nothing, and never will: its transaction can no longer commit.
    pub fn certainly_did_nothing(&self) -> bool {
        match self.state.released_by() {
            Some(SettledBy::Certainty) => true,
            Some(SettledBy::NotBegun) => self.is_transactional(),
            _ => false,
        }
    }

    /// When reconciliation looks at it, to ask, to escalate it, or to tell of an alarm; the end of time if it only waits for an operator.
    /// `None` if nobody has to.
    pub fn due_at(&self) -> Option<Timestamp> {
        let asked = match self.state {
            State::Unknown { reconcile_at, .. } | State::BetweenWorkers { reconcile_at, .. } => {
                Some(reconcile_at)
            }
            _ => None,
        };
        let told = |alarm: &Alarm| if alarm.is_told { Timestamp::MAX } else { alarm.raised_at };
        asked.into_iter().chain(self.alarms.iter().map(told)).min()
    }

    /// Whether an operator has to settle it.
    pub const fn is_escalated(&self) -> bool {
        matches!(
            self.state,
            State::Unknown { reconcile_at: Timestamp::MAX, .. }
                | State::BetweenWorkers { reconcile_at: Timestamp::MAX, .. }
        )
    }

    /// Whether it can be settled as if nothing was done. A worker's release and refusal, the provider's denial and "not found"
    /// all ask this.
    pub(crate) const fn may_end_without_effect(&self) -> bool {
        self.reported.is_none()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        fingerprint::{Fingerprint, Fingerprints},
        key::{IdempotencyKey, OperationName, Tenant},
    };

    pub(crate) const RETAIN: Duration = Duration::from_secs(60);

    impl Revision {
        pub(crate) fn mint() -> Self {
            uuid::Uuid::new_v4().into_bytes().into()
        }
    }

    impl AttemptId {
        pub(crate) fn mint() -> Self {
            uuid::Uuid::new_v4().into_bytes().into()
        }
    }

    pub(crate) fn reservation(key: &str) -> ReservationRequest {
        reservation_for(key, "body")
    }

    pub(crate) fn reservation_for(key: &str, body: &str) -> ReservationRequest {
        let mut digest = [0; 32];
        digest[..body.len()].copy_from_slice(body.as_bytes());
        let fingerprints = Fingerprints::new(Fingerprint::new(1, digest), Vec::new());
        let (tenant, operation) = (Tenant::parse("tenant").unwrap(), OperationName::parse("pay").unwrap());
        let key = RecordKey::new(tenant, operation, IdempotencyKey::parse(key).unwrap());
        let (attempt, lease_until) = (AttemptId::mint(), Timestamp::from_secs(1_030));
        let origin = Some(Note::new("POST /payments"));
        ReservationRequest {
            origin,
            ..ReservationRequest::new(key, fingerprints, attempt, lease_until, RETAIN)
        }
    }

    /// With one phase, `charge`.
    pub(crate) fn resuming(within: Duration) -> Effects<Resumes> {
        Effects::InPhases(Resumes { within, list: PhaseList::of(&["charge".to_owned()]) })
    }

    /// A record that was accepted, for a minute.
    pub(crate) fn accepted(key: &str, now: Timestamp) -> Record {
        Record::accept(&reservation(key), now.plus(RETAIN), 2, Revision::mint(), now)
    }

    pub(crate) fn answer() -> KeptAnswer {
        let bytes = Bytes::from_static(b"{}");
        let body = KeptBody::Inline { length: bytes.len() as u64, bytes, encoding: Encoding::Identity };
        let headers = [("location".into(), "/payments/1".into())].into();
        KeptAnswer { head: Head::Http { status: 201, headers }, body }
    }
}
