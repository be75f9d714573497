//! What is done about what was learned, and who is told: pure, as in `record::step`.

use super::{answer::Learned, asked::Asked, outcome::ReconcileOutcome};
use crate::record::{AlarmKind, Moment, Record, State, Transition, Verdict};

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
        /// Why operators are told of it, if they have not been.
        dead_letter: Option<&'static str>,
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
        let is_new = next.is_escalated() && !current.is_left_to_operators();
        Learning::Write {
            outcome: ReconcileOutcome::of(&next, is_new),
            ends_lease: current.ends_lease(&next),
            dead_letter: is_new.then(|| self.reason(current, learned)),
            next,
        }
    }
}

impl ReconcileOutcome {
    /// What becomes of a question by the write of this record, which `is_new` to operators.
    fn of(record: &Record, is_new: bool) -> Self {
        match &record.state {
            State::Unknown { .. } if record.is_escalated() => Self::Escalated,
            State::BetweenWorkers { .. } if is_new => Self::Escalated,
            State::Unknown { reconcile_at, .. } => Self::Scheduled(*reconcile_at),
            State::InProgress { lease_until } => Self::InFlight(*lease_until),
            state => Self::Resolved(state.name()),
        }
    }
}
