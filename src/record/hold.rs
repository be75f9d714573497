//! An operator holds what was released: a deployment released it although it perhaps had its effect.

use super::{Record, Revision, Transition};
use crate::time::Timestamp;

/// Why a record cannot be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// No retry would run it anyway, or one runs it now.
    #[error("the record is {0}, and not released")]
    NotReleased(&'static str),
    /// Its transaction can no longer commit, whatever its worker said.
    #[error(
        "its execution certainly did nothing, because its transaction can no longer commit: a retry is safe"
    )]
    Certain,
    /// It was released because it had begun no phase, whatever its handler said.
    #[error("the operation resumes, and had begun none of its phases: a retry is safe")]
    NoPhaseBegun,
}

impl Record {
    /// Holds what is released, and accepted work that is pending again: → unknown and escalated, with a reported effect. So no
    /// execution begins, and only proof of the effect, or an operator, settles it.
    ///
    /// It overrules what somebody said or assumed, and not what the library itself has seen: that the transaction of an execution
    /// cannot commit any more, or that it had begun no phase.
    pub(crate) fn hold(&self, revision: Revision, now: Timestamp) -> Result<Transition, HoldError> {
        if self.state.released_by().is_none() {
            return Err(HoldError::NotReleased(self.state.name()));
        }
        if self.phases.is_some() {
            return Err(HoldError::NoPhaseBegun);
        }
        // As for an effect that the provider reports: here, an operator reports one that is possible.
        self.claim(revision, Timestamp::MAX, now).ok_or(HoldError::Certain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        operation::Operation,
        record::{
            Evidence, Note, Phases, ReservationRequest, SettledBy, State, UnknownCause, Verdict, Work,
            decide,
            tests::{RETAIN, accepted, answer, reservation},
        },
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const LATER: Timestamp = Timestamp::from_secs(1_010);

    fn fresh() -> Revision {
        Revision::mint()
    }

    fn reserved() -> Record {
        Record::reserve(&reservation("k"), fresh(), NOW)
    }

    fn released(record: &Record, by: SettledBy) -> Record {
        record.settled(Verdict::NotExecuted, by, fresh(), NOW)
    }

    #[test]
    fn a_held_record_begins_no_execution_until_an_operator_settles_it() {
        let operation = Operation::new("pay");
        let begins =
            |record: &Record| decide(Some(record), &reservation("k"), fresh(), LATER, &operation).is_ok();
        let said = [SettledBy::Worker, SettledBy::Provider, SettledBy::Operator, SettledBy::Assumption];
        for by in [&said[..], &[SettledBy::NotBegun]].concat() {
            let released = released(&reserved(), by);
            assert!(begins(&released), "{by:?}");
            let revision = fresh();
            let held = Record::from(released.hold(revision, LATER).unwrap());
            assert!(!begins(&held), "{by:?}");
            let (cause, reported) = (UnknownCause::Contested, Some(Evidence::Effect));
            let (since, reconcile_at) = (LATER, Timestamp::MAX);
            let state = State::Unknown { cause, since, reconcile_at, asked: 0, anew_at: None };
            let last_failure = Some(Note::new("contested"));
            assert_eq!(held, Record { revision, reported, last_failure, state, ..released });
            // It is held once, and its worker's word does not release it.
            assert_eq!(held.hold(fresh(), LATER), Err(HoldError::NotReleased("unknown")));
            assert!(!begins(&held.release(held.attempt, fresh(), LATER).unwrap()));
            let settled = |verdict| held.settle(verdict, SettledBy::Operator, fresh(), LATER).unwrap();
            assert!(begins(&settled(Verdict::NotExecuted)));
            assert_eq!(settled(Verdict::Executed(answer())).state.name(), "completed");
        }
    }

    #[test]
    fn accepted_work_that_is_pending_again_is_held_too() {
        let pending = accepted("k", NOW);
        assert_eq!(pending.hold(fresh(), NOW), Err(HoldError::NotReleased("pending")));
        let request = pending.accepted.unwrap().request;
        let claims = ReservationRequest { work: Work::Claimed(request), ..reservation("k") };
        let operation = Operation::new("pay");
        let claim =
            |record: &Record| decide(Some(record), &claims, fresh(), NOW, &operation).map(Record::from);
        let returned = released(&claim(&pending).unwrap(), SettledBy::Worker);
        assert_eq!(returned.state, State::Pending { released_by: Some(SettledBy::Worker) });
        assert!(claim(&returned).is_ok());
        let held = Record::from(returned.hold(fresh(), NOW).unwrap());
        assert!(claim(&held).is_err() && held.abandon(fresh(), NOW.plus(RETAIN)).is_none());
        assert_eq!(released(&held, SettledBy::Operator).state.name(), "pending");
    }

    #[test]
    fn what_no_word_released_is_not_held() {
        let transactional = ReservationRequest { transactional: true, ..reservation("k") };
        let transactional = Record::reserve(&transactional, fresh(), NOW);
        for by in [SettledBy::Certainty, SettledBy::NotBegun] {
            let certain = released(&transactional, by);
            assert_eq!(certain.hold(fresh(), LATER), Err(HoldError::Certain), "{by:?}");
        }
        let word = released(&transactional, SettledBy::Worker);
        assert!(word.hold(fresh(), LATER).is_ok(), "the declaration itself may be wrong");
        let resumes = Record { phases: Some(Phases::none(RETAIN)), ..reserved() };
        let held = released(&resumes, SettledBy::Worker).hold(fresh(), LATER);
        assert_eq!(held, Err(HoldError::NoPhaseBegun));
    }

    #[test]
    fn only_what_is_released_is_held() {
        let unknown = reserved().expire(fresh(), reservation("k").lease_until).unwrap();
        let completed = reserved().settled(Verdict::Executed(answer()), SettledBy::Worker, fresh(), NOW);
        for record in [reserved(), unknown.into(), completed] {
            assert_eq!(record.hold(fresh(), LATER), Err(HoldError::NotReleased(record.state.name())));
        }
    }
}
