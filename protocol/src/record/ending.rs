//! A worker's report on its way, and what it has led to until now.

use super::{KeptAnswer, Note, Record, Report, Says};

/// The note for an execution whose domain writes are not committed.
const NOT_COMMITTED: &str = "not_committed";

/// A worker's report, as it is at first.
#[derive(Clone, Debug)]
pub struct Ending {
    /// The record as its worker last saw it.
    pub base: Record,
    /// How the execution ended.
    pub report: Report,
    /// What commits with it.
    pub rows: Rows,
    /// Whether the operation may run again if its worker is dead.
    pub may_run_again: bool,
}

/// The domain writes that commit with a report, if it completes its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// None.
    None,
    /// Some, and no condition can refuse them.
    Certain,
    /// Some, and a condition may refuse them: the report's answer is true only once they are committed.
    Conditional,
}

/// What this report has led to until now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SoFar {
    /// What became of the last write of what is reported now.
    pub write: Option<Written>,
    /// What is reported in place of the handler's report, if its domain writes cannot commit.
    pub instead: Instead,
    /// Whether the report is in the queue.
    pub deferred: Deferred,
    /// Whether its answer is another one than the record's, if they were compared.
    pub differs: Option<bool>,
    /// Whether its worker no longer owns the record, by its own clocks.
    pub is_lost: bool,
    /// Whether the handler's answer does not count, because a phase of it failed.
    pub is_overruled: bool,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// It was applied: the record has the report.
    Applied,
    /// It was applied: the record is marked, and has no more of the report.
    Marked,
    /// It was applied: an alarm of the record is about the report, which lies beside it.
    Beside,
    /// It got no answer, or failed: it may be applied, or be later. Its driver asks with the record that was to be written as the
    /// current one; if it could not read any, with the worker's own.
    Perhaps {
        /// Whether the store may recover: nothing contradicts the report.
        passing: bool,
    },
}

/// What is reported in place of the handler's report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Instead {
    /// Nothing: its domain writes were not refused.
    #[default]
    Nothing,
    /// This answer, which its refused domain writes have for that.
    Answer(KeptAnswer),
    /// That they are not committed: they were refused without an answer for that.
    Refused,
    /// The same, because the handler's code did not compute them.
    Uncomputed,
}

/// Whether a report is in the queue of deferred reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Deferred {
    /// It was not sent.
    #[default]
    NotYet,
    /// It is.
    Sent,
    /// It was sent, and the queue has not answered, or refused it.
    Perhaps,
    /// It was sent once more, with the same result.
    PerhapsAgain,
    /// There is no queue.
    NoQueue,
}

impl Ending {
    /// Whether the record takes an answer that is set for refused domain writes. Over what is kept of phases, only the handler itself
    /// answers with a refusal.
    pub fn takes_another_answer(&self) -> bool {
        !self.base.is_resumed()
    }

    /// The report that goes to the queue, and whether its domain writes go with it.
    pub fn letter(&self, so_far: &SoFar) -> (Report, bool) {
        match self.instead(&so_far.instead) {
            // From there, they are tried once more. If they are refused again, that is escalated.
            Some(Report::Uncommitted) if so_far.instead == Instead::Refused => (self.report.clone(), true),
            Some(instead) => (instead, false),
            None => (self.report.clone(), true),
        }
    }

    /// Its name in logs, once it has come to an end.
    pub fn became<A>(&self, so_far: &SoFar, says: &Says<A>) -> &'static str {
        let report = self.instead(&so_far.instead).map_or(self.report.name(), |instead| instead.name());
        match (says, so_far.write, so_far.deferred) {
            (Says::Own { .. } | Says::Released, Some(Written::Applied), _) => report,
            (Says::Own { .. } | Says::Released, _, Deferred::Sent) => "deferred",
            (
                Says::Own { .. } | Says::Released,
                _,
                Deferred::Perhaps | Deferred::PerhapsAgain | Deferred::NoQueue,
            ) => "unwritten",
            (Says::Own { .. } | Says::Released, Some(Written::Perhaps { .. }), _) => "unwritten",
            (Says::Own { .. } | Says::Released, _, Deferred::NotYet) => "fenced",
            (Says::Replay(_), ..) => "superseded",
            (says, ..) => says.name(),
        }
    }

    /// What is reported in place of its report, if its domain writes cannot commit. The execution may have done more than write.
    pub(super) fn instead(&self, instead: &Instead) -> Option<Report> {
        Some(match instead {
            Instead::Nothing => return None,
            Instead::Answer(answer) => Report::Completed(answer.clone()),
            // What the handler did besides is kept. A retry computes its rows again.
            Instead::Refused | Instead::Uncomputed if self.base.contains_its_effects() => {
                Report::NotExecuted(Some(Note::new(NOT_COMMITTED)))
            }
            // The next run of an operation that may run again repairs it.
            Instead::Refused | Instead::Uncomputed
                if self.report.reports_an_effect() && !self.may_run_again =>
            {
                Report::Uncommitted
            }
            Instead::Refused | Instead::Uncomputed => Report::perhaps(NOT_COMMITTED),
        })
    }
}
