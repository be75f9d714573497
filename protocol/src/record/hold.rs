//! An operator holds a record from which an execution could begin: its release, or the table itself, is not to be trusted.

use super::{Alarm, AlarmKind, Evidence, Note, Record, Revision, State, Transition, UnknownCause};
use crate::time::Timestamp;

/// Why a record stays escalated whose provider says that the effect which was reported did not happen.
pub const NOT_CONFIRMED: &str = "an effect was reported, and the provider denies it";
/// Why a record stays escalated whose provider does not find the effect that was reported, for long enough, and while it remembers it.
pub const NOT_FOUND: &str = "an effect was reported, and the provider does not find it";

/// Why a record has an alarm that was held after a report of its effect.
const REPORTED_BEFORE: &str = "an effect was reported before the hold";
/// Why a record has an alarm whose effect was reported while it was held.
const REPORTED_SINCE: &str = "an effect was reported since the hold";

/// The alarm of a report about what is held. Operators have the record already, so they get no message about it.
fn of_report(because: &str, now: Timestamp) -> Alarm {
    Alarm { is_told: true, ..Alarm::new(AlarmKind::HeldReport, because, None, now) }
}

/// Why a record cannot be held: it is settled, a worker has it, or it is held already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record is {0}")]
pub struct HoldError(
    /// The state of the record, or that it is held.
    pub &'static str,
);

impl Record {
    /// Holds what is open or released, by whomever: → unknown and escalated, with a reported effect. So no execution begins, and no
    /// worker's report changes it: only the provider's proof of the effect, or an operator, settles it.
    ///
    /// It overrules every word, also one that is certain: a restored table has forgotten what came after it. Nothing is lost by a
    /// hold that was not needed, because an operator can release it.
    pub fn hold(&self, revision: Revision, now: Timestamp) -> Result<Transition, HoldError> {
        match self.state {
            // A denial may be older than the hold: a restored table has it too.
            _ if self.is_held() && !self.is_denied() => return Err(HoldError(UnknownCause::Held.name())),
            State::InProgress { lease_until } if lease_until > now => {
                return Err(HoldError(self.state.name()));
            }
            State::Completed { .. } => return Err(HoldError(self.state.name())),
            State::Pending { .. }
            | State::InProgress { .. }
            | State::BetweenWorkers { .. }
            | State::FailedRetryable { .. }
            | State::Unknown { .. } => {}
        }
        // "Not found" is proof only while the provider remembers the keys of all executions.
        let earliest = Self { began_at: self.created_at, ..self.clone() };
        let cause = UnknownCause::Held;
        let state =
            State::Unknown { cause, since: now, reconcile_at: Timestamp::MAX, asked: 0, anew_at: None };
        let reported = Some(Evidence::Effect);
        let held = Transition::to(Self { reported, state, ..earliest.unknown(revision, cause, now) });
        // From now on, the record itself does not tell a report from the hold, and a denial alone must not overrule it.
        let was_reported = self.reported == Some(Evidence::Effect) && !self.is_held();
        Ok(match was_reported {
            true => held.raises(of_report(REPORTED_BEFORE, now)),
            false => held,
        })
    }

    /// What is held once an effect is reported: an alarm says so, and no denial counts any more. `None` if it is not held, or says so already.
    pub(super) fn reported_since_its_hold(&self, revision: Revision, now: Timestamp) -> Option<Transition> {
        if !self.is_held() {
            return None;
        }
        let next = Transition::to(Self { revision, note: None, ..self.clone() });
        let next = next.raises(of_report(REPORTED_SINCE, now));
        (next.alarms.len() > self.alarms.len() || self.is_denied()).then_some(next)
    }

    /// Whether an operator holds it.
    pub const fn is_held(&self) -> bool {
        matches!(self.state, State::Unknown { cause: UnknownCause::Held, .. })
    }

    /// Whether an operator holds it, and the provider was asked since and has denied the effect, and neither a worker nor the provider has
    /// reported one since. Then it can be released.
    pub fn is_denied(&self) -> bool {
        let because = self.note.as_ref().map(Note::as_str);
        let is_denied = because == Some(NOT_CONFIRMED) || self.is_not_found();
        self.is_held()
            && self.is_escalated()
            && self.alarms.is_empty()
            && self.effect_id.is_none()
            && is_denied
    }

    /// Whether that the provider does not find the effect is all that denies it: which proves nothing during its incident.
    pub fn is_not_found(&self) -> bool {
        self.note.as_ref().is_some_and(|because| because.as_str() == NOT_FOUND)
    }

    /// The same without the note of its hold, which ends.
    pub(super) fn without_hold(&self) -> Self {
        Self { last_failure: self.last_failure.clone().filter(|_| !self.is_held()), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{
        Accepted, Effects, Evidence, Note, ReservationRequest, SettledBy, State, UnknownCause, Verdict, Work,
        decide,
        tests::{RETAIN, accepted, answer, reservation, resuming},
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

    // A restored table has the denial, and not what was executed since.
    #[test]
    fn what_is_held_and_denied_can_be_held_again() {
        let held: Record = released(&reserved(), SettledBy::Worker).hold(fresh(), NOW).unwrap().into();
        assert_eq!(held.hold(fresh(), LATER), Err(HoldError("held")));
        for because in [NOT_CONFIRMED, NOT_FOUND] {
            let denied = Record { note: Some(Note::new(because)), ..held.clone() };
            assert!(denied.is_denied());
            let again: Record = denied.hold(fresh(), LATER).unwrap().into();
            assert!(again.is_held() && !again.is_denied());
            let named = Record { effect_id: Some(Note::new("ch_1")), ..denied };
            assert!(!named.is_denied(), "the provider has named an effect");
        }
    }

    #[test]
    fn a_held_record_begins_no_execution_until_an_operator_settles_it() {
        let begins = |record: &Record| decide(Some(record), &reservation("k"), fresh(), LATER).is_ok();
        for by in [
            SettledBy::Worker,
            SettledBy::Provider,
            SettledBy::Operator,
            SettledBy::Assumption,
            SettledBy::NotBegun,
            SettledBy::Certainty,
        ] {
            let released = released(&reserved(), by);
            assert!(begins(&released), "{by:?}");
            let revision = fresh();
            let held = Record::from(released.hold(revision, LATER).unwrap());
            assert!(!begins(&held), "{by:?}");
            let (cause, reported) = (UnknownCause::Held, Some(Evidence::Effect));
            let (since, reconcile_at) = (LATER, Timestamp::MAX);
            let state = State::Unknown { cause, since, reconcile_at, asked: 0, anew_at: None };
            let last_failure = Some(Note::new("held"));
            assert_eq!(held, Record { revision, reported, last_failure, state, ..released });
            // It is held once, and its worker's word does not release it.
            assert_eq!(held.hold(fresh(), LATER), Err(HoldError("held")));
            assert_eq!(held.release(held.attempt, fresh(), LATER), None);
            let settled = |verdict| held.settle(verdict, SettledBy::Operator, fresh(), LATER).unwrap();
            assert!(begins(&settled(Verdict::NotExecuted)));
            assert_eq!(settled(Verdict::Executed(answer())).state.name(), "completed");
            // What was written about the hold ends with it.
            assert_eq!(settled(Verdict::NotExecuted).last_failure, None);
        }
    }

    #[test]
    fn accepted_work_that_waits_is_held_too() {
        let pending = accepted("k", NOW);
        let request = pending.accepted.unwrap().request;
        let claims = ReservationRequest { work: Work::Claimed(request), ..reservation("k") };
        let claim = |record: &Record| decide(Some(record), &claims, fresh(), NOW).map(Record::from);
        let returned = released(&claim(&pending).unwrap(), SettledBy::Worker);
        assert_eq!(returned.state, State::Pending { released_by: Some(SettledBy::Worker) });
        assert!(claim(&returned).is_ok());
        for waits in [pending, returned] {
            let held = Record::from(waits.hold(fresh(), NOW).unwrap());
            assert!(claim(&held).is_err() && held.abandon(fresh(), NOW.plus(RETAIN)).is_none());
            assert!(!held.waits_for_a_worker());
            assert_eq!(released(&held, SettledBy::Operator).state.name(), "pending");
        }
    }

    // A retry may run again, the provider may deny it, or what it says of one phase would let a retry go on.
    #[test]
    fn what_is_unknown_and_what_a_dead_worker_left_is_held_once() {
        let late = reservation("k").lease_until;
        let resumes = ReservationRequest { effects: resuming(RETAIN), ..reservation("k") };
        let resumes = Record::reserve(&resumes, fresh(), NOW);
        let transactional = Record { effects: Effects::InTransaction, ..reserved() };
        let of = |record: &Record| Record::from(record.mark_unknown(record, fresh(), NOW).unwrap());
        let expired = Record::from(reserved().expire(fresh(), late).unwrap());
        let claimed = Record::from(expired.claim(fresh(), late, late).unwrap());
        // Its end of the lease would complete it with a refusal.
        let last =
            accepted("k", NOW).accepted.map(|accepted| Accepted { max_attempts: 1, ..accepted.claimed() });
        let last = Record { accepted: last, ..transactional.clone() };
        assert_eq!(Record::from(last.expire(fresh(), late).unwrap()).state.name(), "completed");
        let all = [of(&resumes), resumes, of(&reserved()), reserved(), expired, claimed, transactional, last];
        for open in all {
            let held = Record::from(open.hold(fresh(), late).unwrap());
            assert!(held.is_held() && held.reported == Some(Evidence::Effect), "{open:?}");
            assert_eq!(held.hold(fresh(), late), Err(HoldError("held")));
        }
    }

    // T40: an earlier execution did it, whatever it said, and the provider has forgotten its key since.
    #[test]
    fn a_hold_counts_from_the_first_execution_on() {
        let first = released(&reserved(), SettledBy::Worker);
        let again = first.again(&reservation("k"), fresh(), LATER);
        let held = Record::from(released(&again, SettledBy::Worker).hold(fresh(), LATER).unwrap());
        assert_eq!((again.began_at, held.began_at), (LATER, NOW));
    }

    // The next execution asks about its call, instead of making it again.
    #[test]
    fn an_operation_that_resumes_is_held_with_a_call_perhaps_begun() {
        let resumes = ReservationRequest { effects: resuming(RETAIN), ..reservation("k") };
        let resumes = Record::reserve(&resumes, fresh(), NOW);
        let between = Record::from(resumes.expire(fresh(), reservation("k").lease_until).unwrap());
        for record in [released(&resumes, SettledBy::Worker), between] {
            let held = Record::from(record.hold(fresh(), LATER).unwrap());
            assert_eq!(held.phases().unwrap().begun, Some(NOW), "{}", record.state.name());
            let again = ReservationRequest { effects: resuming(RETAIN), ..reservation("k") };
            assert!(decide(Some(&held), &again, fresh(), LATER).is_err());
        }
    }

    #[test]
    fn what_a_worker_has_or_is_completed_is_not_held() {
        let completed = reserved().settled(Verdict::Executed(answer()), SettledBy::Worker, fresh(), NOW);
        for record in [reserved(), completed] {
            assert_eq!(record.hold(fresh(), LATER), Err(HoldError(record.state.name())));
        }
    }
}
