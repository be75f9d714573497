//! Work that was accepted, and is executed later by a worker.
//!
//! 1. One transaction accepts: the record is pending, and the request lies beside it, under an id of its own.
//! 2. A worker claims it by a swap: pending → in progress. From then on it is an execution as any other. No client's request takes
//!    it over: a client waits.
//! 3. Where another operation is released, so that its client may retry, this one is pending again: no client would retry.
//! 4. It ends with the answer 408, which says that nothing was done, only if each of its executions certainly did nothing: pending beyond
//!    [`claim_by`](Accepted::claim_by), or after [`max_attempts`](Accepted::max_attempts) executions. Otherwise it is escalated.

use super::{
    BodyId, KeptAnswer, Note, Phases, Record, Revision, SettledBy, State, Transition, UnknownCause, Verdict,
};
use crate::time::Timestamp;

/// What was accepted, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepted {
    /// The body item with the request. Each acceptance has another one, so that deleting it late never deletes the next one's.
    pub request: BodyId,
    /// Until when a worker may claim it.
    pub claim_by: Timestamp,
    /// How many executions there are at most, unless they resume behind what is kept.
    pub max_attempts: u32,
    /// How many of its executions certainly did nothing.
    pub did_nothing: u32,
}

/// When an operation is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// By the request itself.
    #[default]
    Now,
    /// Later: the request is accepted.
    Later {
        /// Until when a worker may claim it.
        claim_by: Timestamp,
        /// How many executions there are at most.
        max_attempts: u32,
    },
    /// Now, by the worker that claims what was accepted with this request.
    Claimed(BodyId),
}

impl Accepted {
    /// Accepted by the write of this revision, after executions of which so many certainly did nothing.
    pub(super) fn by(revision: Revision, claim_by: Timestamp, max_attempts: u32, did_nothing: u32) -> Self {
        Self { request: BodyId::from(*revision.as_bytes()), claim_by, max_attempts, did_nothing }
    }

    /// One more execution is known to have done nothing. The provider and an operator speak of all of them, because they have one
    /// downstream key. An assumption is not certain.
    pub(super) fn without(self, by: SettledBy, attempts: u32) -> Self {
        let did_nothing = match by {
            SettledBy::Provider | SettledBy::Operator => attempts,
            SettledBy::Worker | SettledBy::Certainty | SettledBy::NotBegun => {
                self.did_nothing.saturating_add(1)
            }
            SettledBy::Assumption => self.did_nothing,
        };
        Self { did_nothing: did_nothing.min(attempts), ..self }
    }
}

impl Record {
    /// Whether it was accepted, and no more executions may begin from its beginning.
    pub(super) fn attempts_are_over(&self) -> bool {
        self.accepted.is_some_and(|accepted| self.attempts >= accepted.max_attempts)
    }

    /// The record of accepted work after an execution that did nothing, as far as `by` knows.
    pub(super) fn returned(
        &self,
        accepted: Accepted,
        by: SettledBy,
        revision: Revision,
        now: Timestamp,
    ) -> Self {
        let accepted = Some(accepted.without(by, self.attempts));
        let returned = Self { revision, accepted, ..self.clone() };
        if returned.attempts_are_over() {
            return returned.ended_undone(by, revision, now);
        }
        let state = State::Pending { released_by: Some(by) };
        let phases = self.phases.as_ref().map(Phases::digested);
        Self { reported: None, settled_note: None, phases, state, ..returned }
    }

    /// Ends accepted work that no worker has claimed in time. Otherwise `None`.
    pub(crate) fn abandon(&self, revision: Revision, now: Timestamp) -> Option<Transition> {
        let State::Pending { .. } = self.state else { return None };
        let is_over = self.accepted.is_none_or(|accepted| accepted.claim_by <= now);
        is_over.then(|| Transition::to(self.ended_undone(SettledBy::Assumption, revision, now)))
    }

    /// Ends work that is executed no more: with 408 if certainly nothing was done, else with operators.
    fn ended_undone(&self, by: SettledBy, revision: Revision, now: Timestamp) -> Self {
        if self.accepted.is_none_or(|accepted| accepted.did_nothing >= self.attempts) {
            let verdict = Verdict::Executed(KeptAnswer::abandoned());
            return self.settled(verdict, by, revision, now);
        }
        let state = State::Unknown {
            cause: UnknownCause::PerhapsExecuted,
            since: now,
            reconcile_at: Timestamp::MAX,
            asked: 0,
        };
        let last_failure =
            Some(Note::new("executed no more, and an earlier execution perhaps did something"));
        Self { last_failure, state, ..self.unknown(revision, UnknownCause::PerhapsExecuted, now) }
    }

    /// The released record of a request that is accepted now: its operation was not asynchronous before. `None` if it is not released.
    pub(super) fn accept_again(
        &self,
        claim_by: Timestamp,
        max_attempts: u32,
        revision: Revision,
    ) -> Option<Transition> {
        let State::FailedRetryable { by, .. } = self.state else { return None };
        let earlier = self.attempts.saturating_sub(u32::from(by == SettledBy::Assumption));
        let max_attempts = self.attempts.saturating_add(max_attempts);
        let accepted = Some(Accepted::by(revision, claim_by, max_attempts, earlier));
        let state = State::Pending { released_by: Some(by) };
        Some(Transition::to(Self { revision, accepted, settled_note: None, state, ..self.clone() }))
    }

    /// Whether a worker needs this request: it was accepted with this record, which is not settled.
    pub fn needs_request(&self, request: BodyId) -> bool {
        let is_its = self.accepted.is_some_and(|accepted| accepted.request == request);
        is_its && !matches!(self.state, State::Completed { .. } | State::FailedRetryable { .. })
    }

    /// Whether it waits for a worker, and no client's retry would bring one.
    pub(crate) fn waits_for_a_worker(&self) -> bool {
        self.accepted.is_some() && matches!(self.state, State::Pending { .. } | State::BetweenWorkers { .. })
    }
}
