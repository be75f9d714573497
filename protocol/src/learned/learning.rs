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
        let is_new = reason.is_some() && !current.is_left_to_operators();
        Learning::Write {
            outcome: ReconcileOutcome::of(current, &next, is_new),
            ends_lease: current.ends_lease(&next),
            escalated: reason.filter(|_| is_new),
            next: match reason {
                Some(reason) => next.because(Note::new(reason)),
                None => next,
            },
        }
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
        learned::{Asks, NotFound, Schedule, tests::phase},
        record::{
            ReservationRequest, Revision,
            tests::{RETAIN, reservation, resuming},
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
}
