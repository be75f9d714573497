//! What the caller of a worker is told, once its report stands somewhere.

use super::{Deferred, Ending, Instead, Record, Report, Rows, Says, SoFar, State};

/// How a worker's report stands to the record at last.
pub(super) enum Stands<'a> {
    /// The record has it.
    Written(&'a Record),
    /// The record has moved on without it.
    Lost(&'a Record),
    /// No record takes it.
    Nowhere,
    /// Its write got no answer.
    Unwritten { passing: bool },
}

impl Ending {
    /// What its caller is told. `report` is what is reported now.
    pub(super) fn says(&self, report: &Report, so_far: &SoFar, stands: &Stands<'_>) -> Says {
        let says = match stands {
            Stands::Written(record) => match record.state {
                State::Unknown { .. } if report.is_certain() => Says::UNKNOWN,
                // Parts of it may be done: no answer may lead its client to a new key (T43).
                State::BetweenWorkers { .. } => Says::Interrupted,
                State::Completed { expires_at, .. } => Says::Own { expires_at: Some(expires_at) },
                State::FailedRetryable { .. } | State::Pending { .. } => Says::Released,
                State::InProgress { .. } | State::Unknown { .. } => Says::Own { expires_at: None },
            },
            Stands::Lost(record) => match record.state {
                State::Completed { expires_at, .. } => Says::Replay(expires_at),
                State::Unknown { .. } => Says::UNKNOWN,
                State::BetweenWorkers { .. } => Says::Interrupted,
                State::InProgress { .. } => Says::AnsweredElsewhere,
                State::FailedRetryable { .. } | State::Pending { .. } => self.unkept(so_far, false),
            },
            Stands::Nowhere => self.unkept(so_far, false),
            Stands::Unwritten { passing } => self.unwritten(report, so_far, *passing),
        };
        let says = match (&so_far.instead, says) {
            (Instead::Answer(_), Says::Own { expires_at: Some(expires_at) }) => Says::Refused(expires_at),
            (Instead::Refused | Instead::Uncomputed, _) if self.base.phases().is_some() => Says::Interrupted,
            (Instead::Refused | Instead::Uncomputed, Says::Own { .. } | Says::Released)
                if self.base.is_transactional() && !matches!(stands, Stands::Unwritten { .. }) =>
            {
                Says::NotCommitted
            }
            (Instead::Nothing, says) => says,
            (_, Says::Own { .. } | Says::Released) => Says::UNKNOWN,
            (_, says) => says,
        };
        if so_far.is_overruled { overruled(report, says, stands) } else { says }
    }

    /// Its write got no answer.
    fn unwritten(&self, report: &Report, so_far: &SoFar, passing: bool) -> Says {
        // Until it is applied, a retry may resume, and may get another answer. Or parts of it are done.
        if self.base.phases().is_some() && (matches!(report, Report::Completed(_)) || self.base.is_resumed())
        {
            return Says::Interrupted;
        }
        // The caller gets the answer as if the report had been written. But an earlier execution, or a later one once the lease is over,
        // may have had the effect that a refusal denies.
        let is_alone = self.base.attempts == 1 && !so_far.is_lost;
        if !report.reports_an_effect() && (self.base.reported.is_some() || (report.is_refusal() && !is_alone))
        {
            return Says::UNKNOWN;
        }
        // Its key is not free yet: a corrected request would be refused as a mismatch.
        if *report == Report::NotBegun {
            return Says::NotCommitted;
        }
        self.unkept(so_far, passing)
    }

    /// The handler's answer, which no record keeps. It is true only once its domain writes commit, which is not certain. If the store may
    /// recover and it is in the queue, nothing but their conditions contradicts it.
    fn unkept(&self, so_far: &SoFar, passing: bool) -> Says {
        let is_uncertain = match self.rows {
            Rows::None => false,
            // They commit no more.
            _ if so_far.instead != Instead::Nothing => false,
            Rows::Certain => !(passing && so_far.deferred == Deferred::Sent),
            Rows::Conditional => true,
        };
        if is_uncertain { Says::UNKNOWN } else { Says::Own { expires_at: None } }
    }
}

/// What the caller is told of an execution whose handler's answer does not count, because a phase of it failed.
fn overruled(report: &Report, says: Says, stands: &Stands<'_>) -> Says {
    match says {
        // Another execution's answer, or what reconciliation finds, counts for every caller.
        Says::Replay(_) | Says::AnsweredElsewhere | Says::Unknown { .. } => says,
        // It is known meanwhile: a retry resumes it.
        Says::Interrupted if !matches!(stands, Stands::Unwritten { .. }) => says,
        _ if matches!(report, Report::PerhapsExecuted(_)) => Says::UNKNOWN,
        _ => Says::Interrupted,
    }
}
