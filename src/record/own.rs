//! What the execution that owns a record may do.
//!
//! A transition takes the record that was seen and returns the one to write in its place; the store writes it only if
//! the seen revision still stands. What an owner does ([`complete`](Record::complete), [`release`](Record::release),
//! [`doubt`](Record::doubt), [`extend`](Record::extend)) is fenced by the attempt: a worker that lost its record to
//! another execution, or to reconciliation, can change nothing.

use std::time::Duration;

use super::{AttemptId, Bid, KeptAnswer, Record, Revision, State, UnknownCause, Verdict};
use crate::{time::Timestamp, time_budget::CLOCK_SKEW};

/// Why a worker may not change a record any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FencedError {
    /// Another execution owns it.
    #[error("another execution owns the record")]
    OwnedByAnother,
    /// It is settled: by reconciliation, or by an earlier write of this execution.
    #[error("the record is settled as {0}")]
    Settled(&'static str),
    /// It is not in progress.
    #[error("the record is {0}, not in progress")]
    NotInProgress(&'static str),
}

impl Record {
    /// The record of a first execution: absent → in progress.
    pub(crate) fn reserve(bid: &Bid, revision: Revision, now: Timestamp) -> Self {
        Self {
            key: bid.key.clone(),
            revision,
            attempt: bid.attempt,
            attempts: 1,
            fingerprint: bid.fingerprints.current(),
            created_at: now,
            state: State::InProgress { lease_until: bid.lease_until },
        }
    }

    /// The record of work to be done later: absent → pending. Nobody accepts work yet.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn accept(bid: &Bid, revision: Revision, now: Timestamp) -> Self {
        Self { attempts: 0, state: State::Pending, ..Self::reserve(bid, revision, now) }
    }

    /// One more execution of the same operation. Which records allow it is for [`decide`](super::decide) to say.
    pub(crate) fn again(&self, attempt: AttemptId, revision: Revision, lease_until: Timestamp) -> Self {
        Self {
            revision,
            attempt,
            attempts: self.attempts.saturating_add(1),
            state: State::InProgress { lease_until },
            ..self.clone()
        }
    }

    /// Longer ownership while the handler runs: a heartbeat.
    pub(crate) fn extend(
        &self,
        attempt: AttemptId,
        revision: Revision,
        lease_until: Timestamp,
    ) -> Result<Self, FencedError> {
        self.owned_by(attempt)?;
        match &self.state {
            State::InProgress { lease_until: before } => {
                // A heartbeat never shortens a lease: one from the Lambda deadline may reach further.
                let lease_until = lease_until.max(*before);
                Ok(Self { revision, state: State::InProgress { lease_until }, ..self.clone() })
            }
            other => Err(FencedError::NotInProgress(other.name())),
        }
    }

    /// The effect and its answer are known: in progress → completed.
    ///
    /// Also from `unknown`, where this very execution was given up for dead and was only late: what it says is
    /// the truth that reconciliation would look for.
    pub(crate) fn complete(
        &self,
        attempt: AttemptId,
        revision: Revision,
        answer: KeptAnswer,
        now: Timestamp,
        retain: Duration,
    ) -> Result<Self, FencedError> {
        self.open_for(attempt)?;
        Ok(self.settled(Verdict::Executed(answer), revision, now, retain))
    }

    /// Certainly not executed: in progress (or unknown, as with [`complete`](Self::complete)) → failed, retryable.
    pub(crate) fn release(
        &self,
        attempt: AttemptId,
        revision: Revision,
        now: Timestamp,
        retain: Duration,
    ) -> Result<Self, FencedError> {
        self.open_for(attempt)?;
        Ok(self.settled(Verdict::NotExecuted, revision, now, retain))
    }

    /// Perhaps executed: in progress → unknown. Where somebody has given this execution up
    /// meanwhile, the cause that it knows takes the place of the guess.
    pub(crate) fn doubt(
        &self,
        attempt: AttemptId,
        revision: Revision,
        cause: UnknownCause,
        now: Timestamp,
    ) -> Result<Self, FencedError> {
        self.owned_by(attempt)?;
        match &self.state {
            State::InProgress { .. } => Ok(self.unknown(revision, cause, now)),
            State::Unknown { since, reconcile_at, asked, .. } => {
                let (since, reconcile_at, asked) = (*since, *reconcile_at, *asked);
                let state = State::Unknown { cause, since, reconcile_at, asked };
                Ok(Self { revision, state, ..self.clone() })
            }
            other => Err(FencedError::NotInProgress(other.name())),
        }
    }

    pub(super) fn unknown(&self, revision: Revision, cause: UnknownCause, now: Timestamp) -> Self {
        let state = State::Unknown { cause, since: now, reconcile_at: now, asked: 0 };
        Self { revision, state, ..self.clone() }
    }

    /// Whether the record is past its time, for a clock that is up to [`CLOCK_SKEW`] ahead too: to be read as absent,
    /// deleted or not.
    pub fn expired(&self, now: Timestamp) -> bool {
        self.state.expires_at().is_some_and(|expires_at| expires_at.plus(CLOCK_SKEW) <= now)
    }

    fn owned_by(&self, attempt: AttemptId) -> Result<(), FencedError> {
        if self.attempt == attempt { Ok(()) } else { Err(FencedError::OwnedByAnother) }
    }

    fn open_for(&self, attempt: AttemptId) -> Result<(), FencedError> {
        self.owned_by(attempt)?;
        match &self.state {
            State::InProgress { .. } | State::Unknown { .. } => Ok(()),
            State::Pending => Err(FencedError::NotInProgress(self.state.name())),
            State::Completed { .. } | State::FailedRetryable { .. } => {
                Err(FencedError::Settled(self.state.name()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{answer, bid};

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const RETAIN: Duration = Duration::from_secs(60);

    fn reserved() -> Record {
        Record::reserve(&bid("k"), Revision::mint(), NOW)
    }

    // R12, T6
    #[test]
    fn a_worker_that_lost_its_record_to_another_execution_can_change_nothing() {
        let record = reserved();
        let (mine, fresh) = (record.attempt, Revision::mint());
        let theirs = record.again(AttemptId::mint(), Revision::mint(), NOW);
        assert_eq!(theirs.complete(mine, fresh, answer(), NOW, RETAIN), Err(FencedError::OwnedByAnother));
        assert_eq!(theirs.release(mine, fresh, NOW, RETAIN), Err(FencedError::OwnedByAnother));
        assert_eq!(theirs.doubt(mine, fresh, UnknownCause::Panicked, NOW), Err(FencedError::OwnedByAnother));
        assert_eq!(theirs.extend(mine, fresh, NOW), Err(FencedError::OwnedByAnother));
    }

    // T5
    #[test]
    fn a_late_completion_ends_an_unknown_of_the_same_attempt_and_of_no_other() {
        let unknown = reserved().unknown(Revision::mint(), UnknownCause::LeaseOver, NOW);
        let completed = unknown.complete(unknown.attempt, Revision::mint(), answer(), NOW, RETAIN).unwrap();
        assert_eq!(completed.state.name(), "completed");
        let other = unknown.complete(AttemptId::mint(), Revision::mint(), answer(), NOW, RETAIN);
        assert_eq!(other, Err(FencedError::OwnedByAnother));
    }

    // T5, T32
    #[test]
    fn what_is_settled_is_changed_by_no_worker() {
        let record = reserved();
        let released = record.release(record.attempt, Revision::mint(), NOW, RETAIN).unwrap();
        let late = released.complete(record.attempt, Revision::mint(), answer(), NOW, RETAIN);
        assert_eq!(late, Err(FencedError::Settled("failed_retryable")));
    }

    // R17, T13, T22
    #[test]
    fn only_settled_records_expire_and_they_count_from_their_settling() {
        let record = reserved();
        let late = NOW.plus(RETAIN * 10);
        assert_eq!(record.state.expires_at(), None);
        assert_eq!(record.unknown(Revision::mint(), UnknownCause::Panicked, NOW).state.expires_at(), None);
        assert_eq!(Record::accept(&bid("k"), Revision::mint(), NOW).state.expires_at(), None);
        let completed = record.complete(record.attempt, Revision::mint(), answer(), late, RETAIN).unwrap();
        assert_eq!(completed.state.expires_at(), Some(late.plus(RETAIN)));
        assert!(!record.expired(Timestamp::from_secs(u64::MAX)), "a lease is no expiry");
        let told = late.plus(RETAIN);
        assert!(
            !completed.expired(told)
                && !completed.expired(Timestamp::from_millis(told.plus(CLOCK_SKEW).as_millis() - 1))
        );
        assert!(completed.expired(told.plus(CLOCK_SKEW)));
    }

    // R18
    #[test]
    fn a_heartbeat_never_shortens_a_lease() {
        let record = reserved();
        let extended = record.extend(record.attempt, Revision::mint(), NOW.plus(RETAIN * 9)).unwrap();
        let again = extended.extend(record.attempt, Revision::mint(), NOW).unwrap();
        assert_eq!(again.state, extended.state);
    }
}
