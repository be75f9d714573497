//! The transitions of accepted work, besides those of an execution: it waits again, it ends, it is accepted again.

use super::{
    Accepted, BodyId, Head, KeptAnswer, Note, Phases, Record, Revision, SettledBy, State, Transition,
    UnknownCause, Verdict,
};
use crate::time::Timestamp;

impl Record {
    /// Whether it was accepted, and no more executions may begin from its beginning.
    pub fn attempts_are_over(&self) -> bool {
        self.accepted.is_some_and(|accepted| accepted.tries >= accepted.max_attempts)
    }

    /// The record of accepted work after an execution that did nothing, as far as `by` knows.
    pub(super) fn returned(
        &self,
        accepted: Accepted,
        by: SettledBy,
        revision: Revision,
        now: Timestamp,
    ) -> Self {
        let accepted = Some(accepted.without(by));
        let returned = Self { accepted, ..self.clone() };
        if returned.attempts_are_over() {
            return returned.ended_undone(by, revision, now);
        }
        returned.waiting(Some(by), revision)
    }

    /// It waits for a worker; `released_by` found that its last execution did nothing, if there was one.
    pub(super) fn waiting(&self, released_by: Option<SettledBy>, revision: Revision) -> Self {
        let state = State::Pending { released_by };
        let effects = self.effects.clone().map(Phases::digested);
        Self { revision, reported: None, note: None, effects, state, ..self.clone() }
    }

    /// Ends accepted work that no worker has claimed in time. Otherwise `None`.
    pub(crate) fn abandon(&self, revision: Revision, now: Timestamp) -> Option<Transition> {
        let State::Pending { .. } = self.state else { return None };
        let is_over = self.accepted.is_none_or(|accepted| accepted.claim_by <= now);
        is_over.then(|| Transition::to(self.ended_undone(SettledBy::Assumption, revision, now)))
    }

    /// Ends work that is executed no more: with 408 if certainly nothing was done, else with operators.
    fn ended_undone(&self, by: SettledBy, revision: Revision, now: Timestamp) -> Self {
        if self.accepted.is_none_or(|accepted| accepted.perhaps == 0) {
            let verdict = Verdict::Executed(KeptAnswer::abandoned());
            return self.settled(verdict, by, revision, now);
        }
        let state = State::Unknown {
            cause: UnknownCause::PerhapsExecuted,
            since: now,
            reconcile_at: Timestamp::MAX,
            asked: 0,
            anew_at: None,
        };
        let note = Some(Note::new("it is executed no more, and an earlier execution perhaps did something"));
        Self { note, state, ..self.unknown(revision, UnknownCause::PerhapsExecuted, now) }
    }

    /// The released record of a request that is accepted now: its operation was not asynchronous before. `None` if it is not released.
    ///
    /// It keeps its fingerprint, even if that is by a former rule, and so the downstream keys of its earlier executions.
    pub(super) fn accept_again(
        &self,
        claim_by: Timestamp,
        max_attempts: u32,
        revision: Revision,
    ) -> Option<Transition> {
        let State::FailedRetryable { by, .. } = self.state else { return None };
        // Of earlier executions, only the last word is known.
        let perhaps = self.attempts;
        let accepted =
            Some(Accepted { perhaps, ..Accepted::by(revision, claim_by, max_attempts) }.without(by));
        let state = State::Pending { released_by: Some(by) };
        Some(Transition::to(Self { revision, accepted, note: None, state, ..self.clone() }))
    }

    /// Whether it ended with 408, because certainly nothing was done.
    pub fn is_abandoned(&self) -> bool {
        matches!(&self.state, State::Completed { answer, .. } if answer.head == Head::Abandoned)
    }

    /// Whether it was accepted, and no worker has claimed it yet.
    pub(super) fn is_unclaimed(&self) -> bool {
        matches!(self.state, State::Pending { released_by: None })
    }

    /// Whether a worker needs this request: it was accepted with this record, which is not settled.
    pub fn needs_request(&self, request: BodyId) -> bool {
        let is_its = self.accepted.is_some_and(|accepted| accepted.request == request);
        is_its && self.state.expires_at().is_none()
    }

    /// Whether it waits for a worker, and no client's retry would bring one. What is escalated waits for an operator.
    pub fn waits_for_a_worker(&self) -> bool {
        let waits = match self.state {
            State::Pending { .. } => true,
            State::BetweenWorkers { reconcile_at, .. } => reconcile_at != Timestamp::MAX,
            _ => false,
        };
        waits && self.accepted.is_some()
    }
}
