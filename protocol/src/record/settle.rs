//! The transitions of all but the owner: end a dead worker's lease, claim an effect, settle an unknown outcome, postpone the next
//! question, forget an answer. None is fenced by an attempt. Each is written only if the revision seen is still current.

use std::time::Duration;

use super::{
    Effects, Evidence, KeptAnswer, KeptBody, Note, Phases, Record, Revision, SettledBy, State, Transition,
    UnknownCause,
};
use crate::time::Timestamp;

/// What the worker, the provider or an operator knows of the effect. A provider that reports it unprompted knows only the status of
/// the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<A = KeptAnswer> {
    /// The effect happened, and this is its answer.
    Executed(A),
    /// The effect certainly did not happen, and will not.
    NotExecuted,
}

/// Why a record cannot be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    /// A worker has it, and its lease has not expired.
    #[error("the record is in progress, and its lease has not expired")]
    InFlight,
    /// All its effects are in its transaction, which has not committed: the write that would settle it proves that.
    #[error(
        "all effects of the operation are in its transaction, which has not committed: settle it as not executed, or let a \
         retry run"
    )]
    NothingCommitted,
    /// Phases of it are kept: what they did would be forgotten.
    #[error(
        "phases of the operation are kept, so it was executed in part: settle it as executed, or let a retry resume it; if it is \
         held, settle the phase that follows first"
    )]
    Kept,
    /// No worker has it, and nothing was done.
    #[error("the record is pending: no worker has it, and nothing was done")]
    Pending,
    /// It is settled.
    #[error("the record is settled as {0}")]
    Settled(&'static str),
}

impl Record {
    /// Ends the lease of a dead worker, if it has expired: in progress → unknown. Otherwise `None`.
    ///
    /// If all effects of the worker are in its completing transaction: → failed, retryable. That transaction needs the revision
    /// that this write replaces. So it has not committed, and never will.
    pub fn expire(&self, revision: Revision, now: Timestamp) -> Option<Transition> {
        match &self.state {
            State::InProgress { lease_until } if *lease_until <= now => {
                if self.phases().is_some() {
                    return Some(
                        self.interrupted(self, revision, now)
                            .failed(Some(Note::new(UnknownCause::LeaseExpired.name()))),
                    );
                }
                if !self.is_undone_by_the_next_write() {
                    return Some(Transition::to(self.unknown(revision, UnknownCause::LeaseExpired, now)));
                }
                let released = self.settled(Verdict::NotExecuted, SettledBy::Certainty, revision, now);
                Some(Transition::to(released).failed(Some(Note::new(UnknownCause::LeaseExpired.name()))))
            }
            _ => None,
        }
    }

    /// Ends a dead worker's lease, or accepted work that no worker has claimed in time. Otherwise `None`.
    pub fn expire_or_abandon(&self, revision: Revision, now: Timestamp) -> Option<Transition> {
        self.abandon(revision, now).or_else(|| self.expire(revision, now))
    }

    /// Settles an unknown outcome: unknown → completed, or failed and retryable.
    ///
    /// The same from in progress, once the lease has expired. Proof of an effect also overturns a release that is not certain:
    /// failed, retryable → completed.
    pub fn settle(
        &self,
        verdict: Verdict,
        by: SettledBy,
        revision: Revision,
        now: Timestamp,
    ) -> Result<Transition, SettleError> {
        let by = match (&self.state, &verdict) {
            (State::Pending { released_by: None }, _) | (State::Pending { .. }, Verdict::NotExecuted) => {
                return Err(SettleError::Pending);
            }
            (State::InProgress { lease_until }, _) if now < *lease_until => {
                return Err(SettleError::InFlight);
            }
            (State::InProgress { .. }, verdict) if self.is_undone_by_the_next_write() => match verdict {
                Verdict::Executed(_) => return Err(SettleError::NothingCommitted),
                Verdict::NotExecuted => SettledBy::Certainty,
            },
            // What is kept was done.
            (
                State::InProgress { .. } | State::Unknown { .. } | State::BetweenWorkers { .. },
                Verdict::NotExecuted,
            ) if self.phases().is_some_and(|phases| !phases.kept.is_empty() || !phases.noted.is_empty()) => {
                return Err(SettleError::Kept);
            }
            (State::InProgress { .. } | State::Unknown { .. } | State::BetweenWorkers { .. }, _) => by,
            (State::Pending { .. } | State::FailedRetryable { .. }, Verdict::Executed(_))
                if !self.certainly_did_nothing() =>
            {
                by
            }
            (settled, _) => return Err(SettleError::Settled(settled.name())),
        };
        // As `expire` says it: nobody may have found its worker dead before.
        let is_dead = matches!(self.state, State::InProgress { .. });
        let because = is_dead.then(|| Note::new(UnknownCause::LeaseExpired.name()));
        Ok(Transition::to(self.without_hold().settled(verdict, by, revision, now)).failed(because))
    }

    /// Postpones the next question about an unknown outcome, or that of a dead worker, until `at`. `asked` is the number of
    /// questions so far, or since `anew` if it is asked anew then. The end of time escalates the record: no question follows, and an
    /// operator has to settle it. If all effects of the dead worker are in its transaction, the record is released instead. `None`
    /// in any other state.
    pub fn postpone(
        &self,
        revision: Revision,
        asked: u32,
        anew: Option<Timestamp>,
        at: Timestamp,
        now: Timestamp,
    ) -> Option<Transition> {
        let expired = self.expire(revision, now);
        let open = expired.as_deref().unwrap_or(self);
        let State::Unknown { cause, since, anew_at, .. } = open.state else { return expired };
        let state = State::Unknown { cause, since, reconcile_at: at, asked, anew_at: anew.or(anew_at) };
        Some(Transition::to(Self { revision, note: None, state, ..open.clone() }))
    }

    /// Claims the record for an effect that is reported before its answer is known, or without its domain writes.
    ///
    /// While a worker has it, it stays in progress. Otherwise it becomes unknown from now on, and the next question comes at `at`.
    /// `None` if it is completed, pending, claimed already, or certainly not executed. Of what is held, an
    /// alarm says so, and a denial that came before ends.
    pub fn claim(&self, revision: Revision, at: Timestamp, now: Timestamp) -> Option<Transition> {
        if self.reported == Some(Evidence::Effect) {
            return self.reported_since_its_hold(revision, now);
        }
        let unknown = |cause| {
            let state = State::Unknown { cause, since: now, reconcile_at: at, asked: 0, anew_at: None };
            Self { state, ..self.unknown(revision, cause, now) }
        };
        let open = match &self.state {
            State::InProgress { lease_until } if *lease_until > now => Self { revision, ..self.clone() },
            State::InProgress { .. } => unknown(UnknownCause::LeaseExpired),
            // Nothing was done: no report can be true.
            State::Pending { .. } | State::FailedRetryable { .. } if self.certainly_did_nothing() => {
                return None;
            }
            State::Pending { released_by: Some(_) } | State::FailedRetryable { .. } => {
                unknown(UnknownCause::Contested)
            }
            State::Unknown { cause, .. } => {
                Self { last_failure: self.last_failure.clone(), ..unknown(*cause) }
            }
            State::Pending { .. } | State::BetweenWorkers { .. } | State::Completed { .. } => return None,
        };
        Some(Transition::to(Self { reported: Some(Evidence::Effect), ..open }))
    }

    /// Names the effect that its provider reports, by the provider's own id: another one is a second effect.
    pub fn name_effect(&self, id: Note, revision: Revision) -> Transition {
        Transition::to(Self { revision, effect_id: Some(id), ..self.clone() })
    }

    /// Drops the headers and the body of a completed record, and the reports that lie beside it. It keeps its status and stays completed, so that nothing runs
    /// again. `None` if the record is not completed.
    pub fn forget_answer(&self, revision: Revision) -> Option<Transition> {
        let mut forgotten = Self { revision, ..self.without_reports() };
        let State::Completed { answer, .. } = &mut forgotten.state else { return None };
        answer.body = KeptBody::Omitted { length: answer.body.length() };
        answer.head = answer.head.without_headers();
        Some(Transition::to(forgotten))
    }

    /// Completes an execution that has only just begun, before any write of it: all its effects commit with this one.
    pub fn completed_at_once(&self, answer: KeptAnswer, revision: Revision, now: Timestamp) -> Transition {
        let completed = self.settled(Verdict::Executed(answer), SettledBy::Worker, revision, now);
        // Nothing of it is left for a worker.
        Transition::to(Self { effects: Effects::InTransaction, accepted: None, ..completed })
    }

    /// The only transition into the two settled states, and back to pending, for the worker, for reconciliation and for an operator.
    pub fn settled(&self, verdict: Verdict, by: SettledBy, revision: Revision, now: Timestamp) -> Self {
        // A record that counts as absent is deleted at once.
        let kept_for = if by == SettledBy::NotBegun { Duration::ZERO } else { self.retention };
        // In whole seconds, as the store's time to live is: so the record reads back as it was written.
        let expires_at = now.plus(kept_for).rounded_up_to_second();
        let state = match verdict {
            Verdict::Executed(answer) => State::Completed { answer, completed_at: now, by, expires_at },
            Verdict::NotExecuted => match self.accepted {
                Some(accepted) => return self.returned(accepted, by, revision, now),
                None => State::FailedRetryable { failed_at: now, by, expires_at },
            },
        };
        let effects = self.effects.clone().map(Phases::digested);
        // What the next execution does is another effect.
        let effect_id = self.effect_id.clone().filter(|_| matches!(state, State::Completed { .. }));
        Self {
            revision,
            reported: None,
            effect_id,
            with_writes: false,
            note: None,
            effects,
            state,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{
        Head, Note, ReservationRequest,
        tests::{RETAIN, accepted, answer, reservation},
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const EACH: [SettledBy; 4] =
        [SettledBy::Worker, SettledBy::Provider, SettledBy::Operator, SettledBy::Assumption];

    fn fresh() -> Revision {
        Revision::mint()
    }

    fn reserved() -> Record {
        Record::reserve(&reservation("k"), fresh(), NOW)
    }

    fn lease_expired() -> Timestamp {
        reservation("k").lease_until
    }

    fn unknown() -> Record {
        reserved().expire(fresh(), lease_expired()).unwrap().into()
    }

    fn settle(record: &Record, verdict: Verdict) -> Result<Record, SettleError> {
        record.settle(verdict, SettledBy::Provider, fresh(), NOW).map(Record::from)
    }

    // Also if its transactional worker refused the request before anything was done.
    #[test]
    fn no_proof_overturns_what_certainly_did_nothing() {
        let transactional = ReservationRequest { effects: Effects::InTransaction, ..reservation("k") };
        let seen = Record::reserve(&transactional, fresh(), NOW);
        for released in [seen.released(fresh(), NOW), seen.not_begun(fresh(), NOW)] {
            let settled = released.settle(Verdict::Executed(answer()), SettledBy::Operator, fresh(), NOW);
            assert!(matches!(settled, Err(SettleError::Settled(_))), "{:?}", released.state);
            assert_eq!(released.claim(fresh(), NOW, NOW), None);
        }
    }

    #[test]
    fn a_worker_is_expired_only_once_its_lease_has_expired() {
        let (record, revision) = (reserved(), fresh());
        let just_before = Timestamp::from_millis(lease_expired().as_millis() - 1);
        assert_eq!(record.expire(fresh(), just_before), None);
        let expired = record.expire(revision, lease_expired()).unwrap();
        let (cause, since) = (UnknownCause::LeaseExpired, lease_expired());
        let state = State::Unknown { cause, since, reconcile_at: since, asked: 0, anew_at: None };
        let last_failure = Some(Note::new("lease_expired"));
        assert_eq!(expired, Transition::to(Record { revision, last_failure, state, ..record }));
        assert_eq!(expired.expire(fresh(), Timestamp::MAX), None);
    }

    #[test]
    fn a_transactional_worker_is_released_by_certainty_and_by_nothing_else() {
        let record = Record { effects: Effects::InTransaction, ..reserved() };
        let just_before = Timestamp::from_millis(lease_expired().as_millis() - 1);
        assert_eq!(record.expire(fresh(), just_before), None);
        let executed = || Verdict::Executed(answer());
        for by in EACH {
            let settled = record.settle(executed(), by, fresh(), lease_expired());
            assert_eq!(settled, Err(SettleError::NothingCommitted), "{by:?}");
            assert_eq!(record.settle(executed(), by, fresh(), NOW), Err(SettleError::InFlight), "{by:?}");
            // This write proves that nothing was done.
            let settled = record.settle(Verdict::NotExecuted, by, fresh(), lease_expired()).unwrap();
            assert_eq!(settled.state.settled_by(), Some(SettledBy::Certainty), "{by:?}");
        }
        let released = record.expire(fresh(), lease_expired()).unwrap();
        assert_eq!(released.state.settled_by(), Some(SettledBy::Certainty));
        for by in EACH {
            let overturned = released.settle(executed(), by, fresh(), lease_expired());
            assert_eq!(overturned, Err(SettleError::Settled("failed_retryable")), "{by:?}");
        }
        assert_eq!(released.claim(fresh(), Timestamp::MAX, lease_expired()), None);
        // An effect of another execution, or a reported one, is not in its transaction.
        for marked in [
            Record { reported: Some(Evidence::Perhaps), ..record.clone() },
            Record { reported: Some(Evidence::Effect), ..record.clone() },
        ] {
            assert_eq!(marked.expire(fresh(), lease_expired()).unwrap().state.name(), "unknown");
            let settled = marked.settle(Verdict::NotExecuted, SettledBy::Operator, fresh(), lease_expired());
            assert_eq!(settled.unwrap().state.settled_by(), Some(SettledBy::Operator));
        }
    }

    // T46
    #[test]
    fn a_claim_is_settled_only_by_proof() {
        const EFFECT: Option<Evidence> = Some(Evidence::Effect);
        let (record, late) = (reserved(), lease_expired());
        let released = |by| unknown().settle(Verdict::NotExecuted, by, fresh(), NOW).unwrap();
        let escalated = unknown().postpone(fresh(), 7, None, Timestamp::MAX, NOW).unwrap();
        for open in [
            unknown(),
            escalated.into(),
            record.clone(),
            released(SettledBy::Worker).into(),
            released(SettledBy::Operator).into(),
        ] {
            let claimed = open.claim(fresh(), Timestamp::MAX, late).unwrap();
            let State::Unknown { since, reconcile_at, asked, .. } = claimed.state else {
                panic!("{claimed:?}")
            };
            assert_eq!((since, reconcile_at, asked, claimed.reported), (late, Timestamp::MAX, 0, EFFECT));
            assert_eq!(claimed.claim(fresh(), late, late), None, "once is enough");
            // Its worker comes back.
            let worker = &claimed;
            assert_eq!(claimed.release(claimed.attempt, fresh(), late).unwrap().state.name(), "unknown");
            let unknown = claimed.mark_unknown(worker, fresh(), late).unwrap();
            let refusal = KeptAnswer { head: Head::Http { status: 402, headers: [].into() }, ..answer() };
            let refused = claimed.complete(worker, fresh(), refusal, late).unwrap();
            assert_eq!(
                (refused.state.name(), refused.reported, unknown.reported),
                ("unknown", EFFECT, EFFECT)
            );
            let completed = claimed.complete(worker, fresh(), answer(), late).unwrap();
            assert_eq!((completed.state.name(), completed.reported), ("completed", None));
        }
        let completed = record.settled(Verdict::Executed(answer()), SettledBy::Worker, fresh(), NOW);
        assert_eq!(completed.claim(fresh(), late, late), None);
        let revision = fresh();
        let live = record.claim(revision, late, NOW).unwrap();
        assert_eq!(live, Transition::to(Record { revision, reported: Some(Evidence::Effect), ..record }));
        assert_eq!(live.extend(live.attempt, fresh(), late).unwrap().reported, EFFECT);
        assert_eq!(live.expire(fresh(), late).unwrap().reported, EFFECT);
    }

    #[test]
    fn accepted_work_is_abandoned_after_its_bound_and_not_before() {
        let (pending, revision) = (accepted("k", NOW), fresh());
        let abandon = |at| pending.expire_or_abandon(revision, at);
        assert_eq!(abandon(Timestamp::from_millis(NOW.plus(RETAIN).as_millis() - 1)), None);
        let abandoned = abandon(NOW.plus(RETAIN)).unwrap();
        let state = State::Completed {
            answer: KeptAnswer::abandoned(),
            completed_at: NOW.plus(RETAIN),
            by: SettledBy::Assumption,
            expires_at: NOW.plus(RETAIN * 2),
        };
        assert_eq!(abandoned, Transition::to(Record { revision, state, ..pending }));
        assert_eq!(reserved().expire_or_abandon(fresh(), NOW), None);
    }

    // T42
    #[test]
    fn anyone_can_settle_an_unknown_outcome_for_its_records_own_retention() {
        let unknown = Record { retention: RETAIN * 7, ..unknown() };
        let expires_at = NOW.plus(RETAIN * 7);
        for by in EACH {
            let revision = fresh();
            let completed = unknown.settle(Verdict::Executed(answer()), by, revision, NOW).unwrap();
            let state = State::Completed { answer: answer(), completed_at: NOW, by, expires_at };
            assert_eq!(completed, Transition::to(Record { revision, state, ..unknown.clone() }));
            let released = unknown.settle(Verdict::NotExecuted, by, revision, NOW).unwrap();
            let state = State::FailedRetryable { failed_at: NOW, by, expires_at };
            assert_eq!(released, Transition::to(Record { revision, state, ..unknown.clone() }));
        }
    }

    #[test]
    fn a_settled_record_stays_settled() {
        let completed = settle(&unknown(), Verdict::Executed(answer())).unwrap();
        for verdict in [Verdict::Executed(answer()), Verdict::NotExecuted] {
            assert_eq!(settle(&completed, verdict), Err(SettleError::Settled("completed")));
        }
        let released = settle(&unknown(), Verdict::NotExecuted).unwrap();
        assert_eq!(settle(&released, Verdict::NotExecuted), Err(SettleError::Settled("failed_retryable")));
    }

    // T5
    #[test]
    fn proof_of_the_effect_is_stronger_than_every_release() {
        for by in EACH {
            let released = unknown().settle(Verdict::NotExecuted, by, fresh(), NOW).unwrap();
            let completed = settle(&released, Verdict::Executed(answer()));
            assert_eq!(completed.unwrap().state.name(), "completed", "{by:?}");
        }
    }

    // T7
    #[test]
    fn a_dead_workers_record_can_be_settled_and_a_live_ones_cannot() {
        let at = |now| reserved().settle(Verdict::NotExecuted, SettledBy::Operator, fresh(), now);
        assert_eq!(at(NOW), Err(SettleError::InFlight));
        assert_eq!(at(Timestamp::from_millis(lease_expired().as_millis() - 1)), Err(SettleError::InFlight));
        assert!(at(lease_expired()).is_ok());
        let pending = accepted("k", NOW);
        assert_eq!(settle(&pending, Verdict::NotExecuted), Err(SettleError::Pending));
    }

    #[test]
    fn a_question_put_off_changes_nothing_but_when_to_ask() {
        let (before, revision) = (unknown(), fresh());
        let later = before.postpone(revision, 3, None, NOW.plus(RETAIN), NOW).unwrap();
        let (cause, since, reconcile_at) = (UnknownCause::LeaseExpired, lease_expired(), NOW.plus(RETAIN));
        let state = State::Unknown { cause, since, reconcile_at, asked: 3, anew_at: None };
        assert_eq!(later, Transition::to(Record { revision, state, ..before }));
        assert_eq!(reserved().postpone(fresh(), 1, None, NOW, NOW), None);
    }

    #[test]
    fn a_forgotten_answer_leaves_the_operation_completed() {
        let (completed, revision) = (settle(&unknown(), Verdict::Executed(answer())).unwrap(), fresh());
        let forgotten = completed.forget_answer(revision).unwrap();
        let head = Head::Http { status: 201, headers: [].into() };
        let state = State::Completed {
            answer: KeptAnswer { head, body: KeptBody::Omitted { length: 2 } },
            completed_at: NOW,
            by: SettledBy::Provider,
            expires_at: NOW.plus(RETAIN),
        };
        assert_eq!(forgotten, Transition::to(Record { revision, state, ..completed }));
        assert_eq!(unknown().forget_answer(fresh()), None);
    }
}
