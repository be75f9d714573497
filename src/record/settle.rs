//! What others than its owner may do with a record: give its worker up, settle what is unknown, put off the next
//! question, forget an answer. None of these is fenced by an attempt; each is written only where the revision that was seen still
//! stands.

use std::time::Duration;

use super::{KeptAnswer, KeptBody, Record, Revision, State, UnknownCause};
use crate::time::Timestamp;

/// What somebody has found out who knows: the provider, or a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The effect happened, and this is its answer.
    Executed(KeptAnswer),
    /// The effect certainly did not happen, and will not.
    NotExecuted,
}

/// Why a record is not to be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettleError {
    /// A worker has it, and its lease is not over.
    InFlight,
    /// No worker has taken it yet.
    NotBegun,
    /// It is settled.
    Settled(&'static str),
}

impl Record {
    /// Gives a worker up whose lease is over: in progress → unknown. `None` where there is none to give up.
    pub(crate) fn expire(&self, revision: Revision, now: Timestamp) -> Option<Self> {
        match &self.state {
            State::InProgress { lease_until } if *lease_until <= now => {
                Some(self.unknown(revision, UnknownCause::LeaseOver, now))
            }
            _ => None,
        }
    }

    /// Ends accepted work that no worker has taken within `bound`: pending → completed, with an answer that says so.
    /// `None` if there is none.
    pub(crate) fn abandon(
        &self,
        revision: Revision,
        now: Timestamp,
        bound: Duration,
        retain: Duration,
    ) -> Option<Self> {
        match &self.state {
            State::Pending if self.created_at.plus(bound) <= now => {
                Some(self.settled(Verdict::Executed(KeptAnswer::abandoned()), revision, now, retain))
            }
            _ => None,
        }
    }

    /// What is unknown becomes known: unknown → completed, or failed and retryable.
    ///
    /// So does what is in progress and has a lease that is over. And where a record says that nothing was executed, the
    /// proof that something was is the stronger one: failed, retryable → completed.
    pub(crate) fn settle(
        &self,
        verdict: Verdict,
        revision: Revision,
        now: Timestamp,
        retain: Duration,
    ) -> Result<Self, SettleError> {
        match (&self.state, &verdict) {
            (State::Unknown { .. }, _) | (State::FailedRetryable { .. }, Verdict::Executed(_)) => {}
            (State::InProgress { lease_until }, _) if *lease_until <= now => {}
            (State::InProgress { .. }, _) => return Err(SettleError::InFlight),
            (State::Pending, _) => return Err(SettleError::NotBegun),
            (State::Completed { .. } | State::FailedRetryable { .. }, _) => {
                return Err(SettleError::Settled(self.state.name()));
            }
        }
        Ok(self.settled(verdict, revision, now, retain))
    }

    /// Puts the next question about an unknown outcome off until `at`; `asked` is how many questions there were. The end
    /// of time means that nobody asks any more: it is for people. `None` where the outcome is not unknown.
    pub(crate) fn ask_again(&self, revision: Revision, asked: u32, at: Timestamp) -> Option<Self> {
        match self.state {
            State::Unknown { cause, since, .. } => {
                let state = State::Unknown { cause, since, reconcile_at: at, asked };
                Some(Self { revision, state, ..self.clone() })
            }
            _ => None,
        }
    }

    /// Drops the headers and the body that a completed record keeps; its status stays, and it stays completed, so that
    /// nothing runs again. `None` where the record is not completed.
    pub(crate) fn forget_answer(&self, revision: Revision) -> Option<Self> {
        match &self.state {
            State::Completed { answer, completed_at, expires_at } => {
                let body = KeptBody::Omitted { length: answer.body.length() };
                let answer = KeptAnswer { head: answer.head.without_headers(), body };
                let (completed_at, expires_at) = (*completed_at, *expires_at);
                let state = State::Completed { answer, completed_at, expires_at };
                Some(Self { revision, state, ..self.clone() })
            }
            _ => None,
        }
    }

    /// The one way into the two states that end: by the worker, by reconciliation, by a person.
    pub(crate) fn settled(
        &self,
        verdict: Verdict,
        revision: Revision,
        now: Timestamp,
        retain: Duration,
    ) -> Self {
        let expires_at = expiry(now, retain);
        let state = match verdict {
            Verdict::Executed(answer) => State::Completed { answer, completed_at: now, expires_at },
            Verdict::NotExecuted => State::FailedRetryable { failed_at: now, expires_at },
        };
        Self { revision, state, ..self.clone() }
    }
}

/// In whole seconds, because that is what the store's time to live keeps: a record is the same before and after.
fn expiry(now: Timestamp, retain: Duration) -> Timestamp {
    now.plus(retain).rounded_up_to_second()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{
        Head,
        tests::{answer, bid},
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const RETAIN: Duration = Duration::from_secs(60);

    fn reserved() -> Record {
        Record::reserve(&bid("k"), Revision::mint(), NOW)
    }

    fn lease_over() -> Timestamp {
        bid("k").lease_until
    }

    fn unknown() -> Record {
        reserved().expire(Revision::mint(), lease_over()).unwrap()
    }

    // R19
    #[test]
    fn a_worker_is_given_up_when_its_lease_is_over_and_not_before() {
        let just_before = Timestamp::from_millis(lease_over().as_millis() - 1);
        assert_eq!(reserved().expire(Revision::mint(), just_before), None);
        let given_up = reserved().expire(Revision::mint(), lease_over()).unwrap();
        assert!(matches!(given_up.state, State::Unknown { cause: UnknownCause::LeaseOver, asked: 0, .. }));
        assert_eq!(given_up.expire(Revision::mint(), Timestamp::MAX), None);
    }

    // R20
    #[test]
    fn accepted_work_is_abandoned_after_its_bound_and_not_before() {
        let pending = Record::accept(&bid("k"), Revision::mint(), NOW);
        let abandon = |at| pending.abandon(Revision::mint(), at, RETAIN, RETAIN);
        assert_eq!(abandon(Timestamp::from_millis(NOW.plus(RETAIN).as_millis() - 1)), None);
        let abandoned = abandon(NOW.plus(RETAIN)).unwrap();
        assert_eq!(abandoned.state.expires_at(), Some(NOW.plus(RETAIN * 2)));
        assert!(
            matches!(&abandoned.state, State::Completed { answer, .. } if answer.head == Head::Abandoned)
        );
        assert_eq!(reserved().abandon(Revision::mint(), Timestamp::MAX, RETAIN, RETAIN), None);
    }

    // R28
    #[test]
    fn what_is_unknown_is_settled_either_way_and_what_is_settled_stays() {
        let (fresh, executed) = (Revision::mint(), Verdict::Executed(answer()));
        let completed = unknown().settle(executed.clone(), fresh, NOW, RETAIN).unwrap();
        let released = unknown().settle(Verdict::NotExecuted, fresh, NOW, RETAIN).unwrap();
        assert_eq!((completed.state.name(), released.state.name()), ("completed", "failed_retryable"));
        for verdict in [executed, Verdict::NotExecuted] {
            let again = completed.settle(verdict, fresh, NOW, RETAIN);
            assert_eq!(again, Err(SettleError::Settled("completed")));
        }
        let again = released.settle(Verdict::NotExecuted, fresh, NOW, RETAIN);
        assert_eq!(again, Err(SettleError::Settled("failed_retryable")));
    }

    // R29
    #[test]
    fn proof_of_the_effect_is_stronger_than_a_release() {
        let released = unknown().settle(Verdict::NotExecuted, Revision::mint(), NOW, RETAIN).unwrap();
        let completed = released.settle(Verdict::Executed(answer()), Revision::mint(), NOW, RETAIN);
        assert_eq!(completed.unwrap().state.name(), "completed");
    }

    // T7
    #[test]
    fn a_live_worker_is_not_settled_over_and_a_dead_one_is() {
        let settle = |at| reserved().settle(Verdict::NotExecuted, Revision::mint(), at, RETAIN);
        assert_eq!(settle(NOW), Err(SettleError::InFlight));
        assert!(settle(lease_over()).is_ok());
        let pending = Record::accept(&bid("k"), Revision::mint(), NOW);
        let settled = pending.settle(Verdict::NotExecuted, Revision::mint(), NOW, RETAIN);
        assert_eq!(settled, Err(SettleError::NotBegun));
    }

    #[test]
    fn a_question_put_off_changes_nothing_but_when_to_ask() {
        let later = unknown().ask_again(Revision::mint(), 3, NOW.plus(RETAIN)).unwrap();
        let State::Unknown { cause, since, reconcile_at, asked } = later.state else { panic!("{later:?}") };
        assert_eq!((cause, since), (UnknownCause::LeaseOver, lease_over()));
        assert_eq!((reconcile_at, asked), (NOW.plus(RETAIN), 3));
        assert_eq!(reserved().ask_again(Revision::mint(), 1, NOW), None);
    }

    // R31
    #[test]
    fn a_forgotten_answer_leaves_the_operation_completed() {
        let completed = unknown().settle(Verdict::Executed(answer()), Revision::mint(), NOW, RETAIN).unwrap();
        let forgotten = completed.forget_answer(Revision::mint()).unwrap();
        let State::Completed { answer, expires_at, .. } = &forgotten.state else { panic!("{forgotten:?}") };
        assert_eq!(answer.head, Head::Http { status: 201, headers: Vec::new() });
        assert_eq!((&answer.body, *expires_at), (&KeptBody::Omitted { length: 2 }, NOW.plus(RETAIN)));
        assert_eq!(unknown().forget_answer(Revision::mint()), None);
    }
}
