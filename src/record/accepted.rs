//! Work that was accepted, and is executed later by a worker.
//!
//! 1. One transaction accepts: the record is pending, and the request lies beside it.
//! 2. A worker claims it by a swap: pending → in progress. From then on it is an execution as any other. No client's request takes
//!    it over: a client waits.
//! 3. Where another operation is released, so that its client may retry, this one is pending again: no client would retry. After
//!    [`max_attempts`](Accepted::max_attempts) executions it ends instead, with the answer 408.
//! 4. Pending beyond [`claim_by`](Accepted::claim_by), it ends with 408 too.

use super::{BodyId, KeptAnswer, Record, Revision, SettledBy, State, Transition, Verdict};
use crate::time::Timestamp;

/// What was accepted, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepted {
    /// The body item with the request. Each acceptance has another one, so that deleting it late never deletes the next one's.
    pub request: BodyId,
    /// Until when a worker may claim it.
    pub claim_by: Timestamp,
    /// How many executions there are at most, if all of them certainly do nothing.
    pub max_attempts: u32,
}

/// When an operation is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// By the request itself.
    #[default]
    Now,
    /// Later: the request is accepted.
    Later(Accepted),
    /// Now, by the worker that claims what was accepted with this request.
    Claimed(BodyId),
}

impl Record {
    /// The state of accepted work after an execution that did nothing: it waits for the next one, or has ended.
    pub(super) fn returned(
        &self,
        accepted: &Accepted,
        by: SettledBy,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> State {
        if self.attempts < accepted.max_attempts {
            return State::Pending { released_by: Some(by) };
        }
        State::Completed { answer: KeptAnswer::abandoned(), completed_at: now, by, expires_at }
    }

    /// Ends accepted work that no worker has claimed in time: pending → completed, with an answer that says so. Otherwise `None`.
    pub(crate) fn abandon(&self, revision: Revision, now: Timestamp) -> Option<Transition> {
        let State::Pending { .. } = self.state else { return None };
        let is_over = self.accepted.is_none_or(|accepted| accepted.claim_by <= now);
        let verdict = Verdict::Executed(KeptAnswer::abandoned());
        is_over.then(|| Transition::to(self.settled(verdict, SettledBy::Assumption, revision, now)))
    }

    /// Whether a worker needs this request: it was accepted with this record, which is not settled.
    pub fn needs_request(&self, request: BodyId) -> bool {
        let is_its = self.accepted.is_some_and(|accepted| accepted.request == request);
        is_its && !matches!(self.state, State::Completed { .. } | State::FailedRetryable { .. })
    }
}
