//! What is done about what was learned: pure, as in `record::step`.

use super::{answer::Learned, asked::Asked, outcome::ReconcileOutcome};
use crate::record::{AlarmKind, Moment, Note, Record, State, Transition, Verdict};

/// What is done about what was learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learning {
    /// Write this record.
    Write {
        /// The record.
        next: Transition,
        /// What becomes of the question by that.
        outcome: ReconcileOutcome,
        /// Whether this is the first to see that its worker is dead.
        ends_lease: bool,
        /// Why it is escalated now, which the record says too: no question follows any more, or one that an operator asked for found nothing.
        /// If the provider had reported an effect, the record has an alarm of that, so that no denial overrules it.
        escalated: Option<&'static str>,
    },
    /// The record contradicts it: operators are told.
    Contradicts {
        /// What was learned.
        effect: Verdict<u16>,
        /// The alarm that the record gets, if it is of the same request.
        alarm: Option<AlarmKind>,
        /// Why.
        reason: &'static str,
    },
    /// Nothing.
    Ends(ReconcileOutcome),
}

impl Asked<'_> {
    /// What is done about what was learned.
    pub fn step(
        &self,
        current: Option<&Record>,
        learned: &Learned,
        Moment { revision, now }: Moment,
    ) -> Learning {
        let Some(current) = current else { return Learning::Ends(ReconcileOutcome::Gone) };
        let next = match self.next(current, learned, revision, now) {
            Ok(next) => next,
            Err(outcome) => {
                return match learned.contradicted_by(self.seen, current, now) {
                    Some((effect, alarm, reason)) => Learning::Contradicts { effect, alarm, reason },
                    None => Learning::Ends(outcome),
                };
            }
        };
        let reason = next.is_escalated().then(|| self.reason(current, learned));
        let escalated = reason.filter(|_| !current.is_left_to_operators());
        let outcome = ReconcileOutcome::of(current, &next, escalated.is_some());
        let ends_lease = current.ends_lease(&next);
        let next = match reason {
            Some(reason) => next.because(Note::new(reason)),
            None => next,
        };
        let next = match escalated.zip(self.reported) {
            Some((reason, reported)) => next.raises(reported.alarm(AlarmKind::Contradicted, reason, now)),
            None => next,
        };
        Learning::Write { next, outcome, ends_lease, escalated }
    }
}

impl ReconcileOutcome {
    /// What becomes of a question by this write. If it escalates the record, that `is_new` to operators, or not.
    fn of(current: &Record, next: &Record, is_new: bool) -> Self {
        match &next.state {
            State::Unknown { .. } if next.is_escalated() => Self::Escalated,
            State::BetweenWorkers { .. } if is_new => Self::Escalated,
            // A dead worker's.
            State::BetweenWorkers { .. } | State::Pending { .. }
                if !matches!(current.state, State::Unknown { .. }) =>
            {
                Self::Waits
            }
            State::Unknown { reconcile_at, .. } => Self::Scheduled(*reconcile_at),
            State::InProgress { lease_until } => Self::InFlight(*lease_until),
            state => Self::Resolved(state.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backoff::Backoff,
        learned::{Asks, NotFound, Reported, Schedule, tests::phase},
        record::{
            Alarm, MAX_ALARMS, NOT_CONFIRMED, ReservationRequest, Revision, SettledBy,
            tests::{RETAIN, answer, reservation, resuming},
        },
        time::Timestamp,
    };

    const LATE: Timestamp = Timestamp::from_secs(2_000);

    // T50: its operation is not over, and nothing was asked.
    #[test]
    fn a_dead_workers_operation_that_waits_is_not_settled() {
        let resumes = ReservationRequest { effects: resuming(RETAIN), ..reservation("k") };
        let reserved = Record::reserve(&resumes, Revision::mint(), Timestamp::from_secs(1_000));
        let charged = reserved.note(&phase("charge", "1", LATE), Revision::mint(), LATE).unwrap();
        let backoff = Backoff { first: RETAIN, factor: 2, max: RETAIN };
        let schedule = Schedule { backoff, max_questions: 5, max_unknown_age: RETAIN };
        let asked = Asked {
            seen: &charged,
            why: Asks::IfDue,
            reported: None,
            at: LATE,
            not_found: NotFound { grace: RETAIN, window: RETAIN, releases: true },
            schedule: &schedule,
        };
        let at = Moment { revision: Revision::mint(), now: LATE };
        let Learning::Write { next, outcome, ends_lease, escalated } =
            asked.step(Some(&charged), &Learned::NotResumed, at)
        else {
            panic!("its lease is over")
        };
        assert_eq!((next.state.name(), outcome), ("between_workers", ReconcileOutcome::Waits));
        assert_eq!((ends_lease, escalated), (true, None));
        assert_eq!(asked.step(None, &Learned::NotResumed, at), Learning::Ends(ReconcileOutcome::Gone));
    }

    // T54: what is held, or was escalated for another reason, has no other trace of the report.
    #[test]
    fn a_report_that_is_denied_is_an_alarm_by_the_same_write() {
        let reserved = Record::reserve(&reservation("k"), Revision::mint(), Timestamp::from_secs(1_000));
        let held: Record = reserved.hold(Revision::mint(), Timestamp::MAX).expect("its lease is over").into();
        let unknown: Record = reserved.expire(Revision::mint(), LATE).expect("its lease is over").into();
        let escalated: Record =
            unknown.claim(Revision::mint(), Timestamp::MAX, LATE).expect("it is open").into();
        let backoff = Backoff { first: RETAIN, factor: 2, max: RETAIN };
        let schedule = Schedule { backoff, max_questions: 5, max_unknown_age: RETAIN };
        let reported = Reported {
            effect: Verdict::Executed(201),
            under: None,
            result: None,
            made_at: None,
            id: Some("ch_1"),
        };
        let asked = |seen: &Record, learned| {
            let asked = Asked {
                seen,
                why: Asks::ProviderReported,
                reported: Some(&reported),
                at: LATE,
                not_found: NotFound { grace: RETAIN, window: RETAIN, releases: true },
                schedule: &schedule,
            };
            asked.step(Some(seen), &learned, Moment { revision: Revision::mint(), now: LATE })
        };
        for seen in [&held, &escalated, &unknown] {
            let seen: Record = seen.claim(Revision::mint(), LATE, LATE).map_or(seen.clone(), Record::from);
            let Learning::Write {
                next, outcome: ReconcileOutcome::Escalated, escalated: Some(reason), ..
            } = asked(&seen, Learned::NotExecuted)
            else {
                panic!("{seen:?}")
            };
            let alarmed = Record::from(next);
            assert!(reported.stands_in(&alarmed, AlarmKind::Contradicted, reason));
            assert!(!alarmed.is_denied());
            let once = Learning::Ends(ReconcileOutcome::Escalated);
            assert_eq!(asked(&alarmed, Learned::NotExecuted), once);
            // With too many alarms, its note is all that says so.
            let mut full = alarmed.clone();
            full.alarms = (0..MAX_ALARMS)
                .map(|number| Alarm::new(AlarmKind::SecondAnswer, &number.to_string(), None, LATE))
                .collect();
            assert_eq!(asked(&full, Learned::NotExecuted), once);
        }
        // The provider must say it again: its proof may only be late.
        let waits = Learning::Ends(ReconcileOutcome::Scheduled(Timestamp::MAX));
        for seen in [&held, &escalated] {
            assert_eq!(asked(seen, Learned::Later(RETAIN)), waits);
        }
    }

    // T54: a denial proves nothing if it came before the report, or while its proof is late.
    #[test]
    fn a_report_about_what_is_held_ends_any_denial() {
        let reserved = Record::reserve(&reservation("k"), Revision::mint(), Timestamp::from_secs(1_000));
        let held: Record = reserved.hold(Revision::mint(), Timestamp::MAX).expect("its lease is over").into();
        let denied = |record: &Record| Record { note: Some(Note::new(NOT_CONFIRMED)), ..record.clone() };
        assert!(denied(&held).is_denied());
        for before in [held.clone(), denied(&held)] {
            let claimed: Record = before.claim(Revision::mint(), LATE, LATE).expect("it is held").into();
            assert!(claimed.is_held() && claimed.note.is_none() && claimed.untold().is_none());
            assert!(!denied(&claimed).is_denied());
            assert_eq!(claimed.claim(Revision::mint(), LATE, LATE), None, "once");
            // It stands until an operator clears it.
            let verdict = Verdict::Executed(answer());
            let settled = claimed.settle(verdict, SettledBy::Provider, Revision::mint(), LATE).unwrap();
            assert_eq!((settled.state.name(), settled.alarms.len()), ("completed", 1));
        }
    }

    // T54: a hold does not hide what the provider has reported before it.
    #[test]
    fn what_is_held_after_a_report_is_never_denied() {
        let reserved = Record::reserve(&reservation("k"), Revision::mint(), Timestamp::from_secs(1_000));
        let unknown: Record = reserved.expire(Revision::mint(), LATE).expect("its lease is over").into();
        let reported: Record = unknown.claim(Revision::mint(), LATE, LATE).expect("it is open").into();
        for (record, alarms) in [(unknown, 0), (reported, 1)] {
            let held: Record = record.hold(Revision::mint(), LATE).expect("it is open").into();
            let denied = Record { note: Some(Note::new(NOT_CONFIRMED)), ..held };
            assert_eq!((denied.alarms.len(), denied.is_denied()), (alarms, alarms == 0));
        }
    }
}
