//! How an execution ended, and which record that makes of the one that its worker may change.

#[cfg(test)]
use super::AttemptId;
use super::{Evidence, KeptAnswer, Note, Record, Revision, SettledBy, State, Transition, UnknownCause};
use crate::time::Timestamp;

/// How an execution ended, as its worker reports it. With the handler's answer as an `A`: the answer itself, or the
/// [kept](KeptAnswer) one, whose body is stored.
///
/// Some have a note for the record, if the reason is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report<A = KeptAnswer> {
    /// The effect and its answer are known, or its refusal.
    Completed(A),
    /// Certainly nothing was done: the request may be retried.
    NotExecuted(Option<Note>),
    /// The request was refused before anything was done: its key is free for any request.
    NotBegun,
    /// Its handler did not start, because the reservation was answered too late, or not at all.
    NotStarted,
    /// It ended within a phase's call, which was perhaps made: a retry resumes.
    Interrupted(Option<Note>),
    /// Something may have been done.
    PerhapsExecuted(Option<Note>),
    /// There was an effect, and its domain writes are not committed.
    Uncommitted,
}

impl<A> Report<A> {
    /// Its one name, in messages and logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Completed(_) => Report::COMPLETED,
            Self::NotExecuted(_) => "not_executed",
            Self::NotBegun => "not_begun",
            Self::NotStarted => "not_started",
            Self::Interrupted(_) => "interrupted",
            Self::PerhapsExecuted(_) => "perhaps_executed",
            Self::Uncommitted => "uncommitted",
        }
    }

    /// Something may have been done, for this reason.
    pub fn perhaps(why: &str) -> Self {
        Self::PerhapsExecuted(Some(Note::new(why)))
    }

    /// The report of this name, if it has no answer.
    pub fn named(name: &str, because: Option<Note>) -> Option<Self> {
        let all = [
            Self::NotExecuted(because.clone()),
            Self::NotBegun,
            Self::NotStarted,
            Self::Interrupted(because.clone()),
            Self::PerhapsExecuted(because),
            Self::Uncommitted,
        ];
        all.into_iter().find(|report| report.name() == name)
    }

    /// Why it has no answer, if it has none and that is known.
    pub const fn because(&self) -> Option<&Note> {
        match self {
            Self::NotExecuted(because) | Self::Interrupted(because) | Self::PerhapsExecuted(because) => {
                because.as_ref()
            }
            Self::Completed(_) | Self::NotBegun | Self::NotStarted | Self::Uncommitted => None,
        }
    }

    /// The same, for answers of another form.
    ///
    /// # Errors
    /// If it has an answer: that one.
    pub fn without_answer<B>(&self) -> Result<Report<B>, &A> {
        Ok(match self {
            Self::Completed(answer) => return Err(answer),
            Self::NotExecuted(because) => Report::NotExecuted(because.clone()),
            Self::NotBegun => Report::NotBegun,
            Self::NotStarted => Report::NotStarted,
            Self::Interrupted(because) => Report::Interrupted(because.clone()),
            Self::PerhapsExecuted(because) => Report::PerhapsExecuted(because.clone()),
            Self::Uncommitted => Report::Uncommitted,
        })
    }
}

impl Report {
    /// The name of [`Completed`](Self::Completed).
    pub const COMPLETED: &'static str = "completed";

    /// Whether nothing was done.
    pub(crate) const fn did_nothing(&self) -> bool {
        matches!(self, Self::NotExecuted(_) | Self::NotBegun | Self::NotStarted)
    }

    /// Whether its worker knows what it did.
    pub(crate) const fn is_certain(&self) -> bool {
        !matches!(self, Self::PerhapsExecuted(..) | Self::Interrupted(_) | Self::Uncommitted)
    }

    /// Whether its worker knows of an effect.
    pub(crate) fn reports_an_effect(&self) -> bool {
        matches!(self, Self::Completed(answer) if answer.head.is_effect())
            || matches!(self, Self::Uncommitted)
    }

    /// Whether its caller is refused.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Completed(answer) if !answer.head.is_effect())
    }

    /// What this is evidence of; `None` if its execution had no effect.
    pub(super) fn evidence(&self) -> Option<Evidence> {
        match self {
            Self::PerhapsExecuted(..) => Some(Evidence::Perhaps),
            _ => self.reports_an_effect().then_some(Evidence::Effect),
        }
    }

    /// The record that this turns `seen` into; `worker` is the record as its worker last saw it. `None` if that worker may not change
    /// it: who knows more, wins. docs/states.md has the same table.
    pub fn of(
        &self,
        seen: &Record,
        worker: &Record,
        revision: Revision,
        now: Timestamp,
    ) -> Option<Transition> {
        let own = seen.attempt == worker.attempt;
        // All effects of a transactional worker are in its transaction. Any later write proved that it did nothing.
        // Those of a worker with phases are in the record.
        let knows_more = !worker.contains_its_effects() && worker.shares_generation(seen, now);
        let takes = match (&seen.state, self) {
            (State::Completed { .. }, _) => false,
            // A restored table: the rows of that phase may be gone with it.
            _ if seen.has_forgotten_a_phase_of(worker) => false,
            // Who holds it settles it.
            (State::Unknown { cause: UnknownCause::Held, .. }, _) => false,
            (State::InProgress { .. }, _) => own,
            // Only late, and no retry has resumed it. Otherwise it says all that this worker knows.
            (State::BetweenWorkers { .. }, Self::Completed(_)) => own,
            (State::BetweenWorkers { .. }, _) => false,
            // Only late: its lease has expired.
            (State::Unknown { .. }, Self::Completed(_)) if own => !worker.is_transactional(),
            // Once, so that it gives one attempt back. Any other cause says what came after it.
            (State::Unknown { cause, .. }, Self::NotStarted) => own && *cause == UnknownCause::LeaseExpired,
            // It counts once, also if its report comes again: accepted work that it left to operators stays theirs.
            (
                State::Unknown { cause: UnknownCause::PerhapsExecuted, .. },
                Self::NotExecuted(_) | Self::NotBegun,
            ) if own && seen.accepted.is_some() => false,
            (State::Unknown { .. }, _) if own => true,
            // Another execution's. A refusal says how this one ended, and no other.
            (State::Unknown { .. }, Self::Completed(answer)) => answer.head.is_effect() && knows_more,
            (State::Unknown { .. }, Self::PerhapsExecuted(..) | Self::Uncommitted) => knows_more,
            (State::Unknown { .. }, Self::NotExecuted(_) | Self::NotBegun | Self::Interrupted(_)) => false,
            // Released: the next execution would repeat its effect.
            (released, Self::Completed(_) | Self::Uncommitted) => {
                released.released_by().is_some() && knows_more
            }
            // The provider and operators know more; another worker reports its own execution alone.
            (released, Self::PerhapsExecuted(..)) => match released.released_by() {
                None | Some(SettledBy::Provider | SettledBy::Operator) => false,
                Some(SettledBy::Assumption) => knows_more,
                Some(SettledBy::Worker | SettledBy::Certainty | SettledBy::NotBegun) => !own && knows_more,
            },
            (
                State::Pending { .. } | State::FailedRetryable { .. },
                Self::NotExecuted(_) | Self::NotBegun | Self::NotStarted | Self::Interrupted(_),
            ) => false,
        };
        if !takes {
            return None;
        }
        let next = match self {
            Self::Completed(answer) => seen.completed(worker, revision, answer.clone(), now),
            Self::NotExecuted(because) => {
                let released = seen.released(revision, now);
                match released.state {
                    // It says why it was left to operators.
                    State::Unknown { .. } if seen.accepted.is_some() => released,
                    _ => released.failed(because.clone()),
                }
            }
            Self::NotBegun => seen.not_begun(revision, now),
            Self::NotStarted => seen.not_started(revision, now),
            Self::Interrupted(because) => seen.interrupted(worker, revision, now).failed(because.clone()),
            Self::PerhapsExecuted(because) => {
                seen.marked_unknown(worker, revision, now).failed(because.clone())
            }
            Self::Uncommitted => return seen.uncommitted(worker, revision, now),
        };
        Some(next)
    }
}

/// For tests: what a worker's report makes of the record.
#[cfg(test)]
impl Record {
    pub(crate) fn complete(
        &self,
        worker: &Self,
        revision: Revision,
        answer: KeptAnswer,
        now: Timestamp,
    ) -> Option<Transition> {
        Report::Completed(answer).of(self, worker, revision, now)
    }

    pub(crate) fn release(
        &self,
        attempt: AttemptId,
        revision: Revision,
        now: Timestamp,
    ) -> Option<Transition> {
        Report::NotExecuted(None).of(self, &Self { attempt, ..self.clone() }, revision, now)
    }

    pub(crate) fn mark_unknown(
        &self,
        worker: &Self,
        revision: Revision,
        now: Timestamp,
    ) -> Option<Transition> {
        Report::PerhapsExecuted(None).of(self, worker, revision, now)
    }
}
