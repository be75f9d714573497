//! The states of a record, each with its one name.

use super::{KeptAnswer, named_enum::names};
use crate::time::Timestamp;

/// The state of an operation. Being expired is not a state: see [`Record::expired`](super::Record::expired).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Accepted; no worker has it.
    Pending {
        /// Who found that its last execution did nothing; `None` before the first one.
        released_by: Option<SettledBy>,
    },
    /// A worker has it.
    InProgress {
        /// Once it has passed, others may count the worker as dead.
        lease_until: Timestamp,
    },
    /// No worker has it. What is known of its phases is in its record, and the next retry resumes it behind that.
    BetweenWorkers {
        /// When its last worker ended, or was found dead.
        since: Timestamp,
        /// When it is escalated if no retry comes; the end of time if it is escalated.
        reconcile_at: Timestamp,
    },
    /// The effect and the answer are known.
    Completed {
        /// The answer, for replays.
        answer: KeptAnswer,
        /// When it was completed.
        completed_at: Timestamp,
        /// Who settled it.
        by: SettledBy,
        /// Until when the record is kept. It counts as absent [`CLOCK_SKEW`](crate::time::CLOCK_SKEW) later.
        expires_at: Timestamp,
    },
    /// Not executed, as far as `by` can know: a retry may run.
    FailedRetryable {
        /// When it failed.
        failed_at: Timestamp,
        /// Who settled it.
        by: SettledBy,
        /// Until when the record is kept. It counts as absent [`CLOCK_SKEW`](crate::time::CLOCK_SKEW) later.
        expires_at: Timestamp,
    },
    /// Perhaps executed: no retry runs until reconciliation has found out.
    Unknown {
        /// Why the outcome is unknown.
        cause: UnknownCause,
        /// When its worker was found dead, or last reported.
        since: Timestamp,
        /// When to ask next; the end of time if it is escalated, and an operator has to settle it.
        reconcile_at: Timestamp,
        /// How often reconciliation has asked.
        asked: u32,
        /// When it was last asked anew, for an operator; `None` if it was not. Its questions, and the time for them, count from then on.
        anew_at: Option<Timestamp>,
    },
}

/// Which [`State`] it is, without what belongs to it: for what reads a state by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateName {
    /// [`State::Pending`].
    Pending,
    /// [`State::InProgress`].
    InProgress,
    /// [`State::BetweenWorkers`].
    BetweenWorkers,
    /// [`State::Completed`].
    Completed,
    /// [`State::FailedRetryable`].
    FailedRetryable,
    /// [`State::Unknown`].
    Unknown,
}

names! {
    pub StateName {
        Pending: "pending",
        InProgress: "in_progress",
        BetweenWorkers: "between_workers",
        Completed: "completed",
        FailedRetryable: "failed_retryable",
        Unknown: "unknown",
    }
}

impl StateName {
    /// Whether no worker owns the record and it is not settled: reconciliation asks about it, or escalates it.
    pub const fn is_open(self) -> bool {
        match self {
            Self::BetweenWorkers | Self::Unknown => true,
            Self::Pending | Self::InProgress | Self::Completed | Self::FailedRetryable => false,
        }
    }
}

impl State {
    /// Which state it is.
    pub const fn which(&self) -> StateName {
        match self {
            Self::Pending { .. } => StateName::Pending,
            Self::InProgress { .. } => StateName::InProgress,
            Self::BetweenWorkers { .. } => StateName::BetweenWorkers,
            Self::Completed { .. } => StateName::Completed,
            Self::FailedRetryable { .. } => StateName::FailedRetryable,
            Self::Unknown { .. } => StateName::Unknown,
        }
    }

    /// The state's one name, in items, logs and answers.
    pub const fn name(&self) -> &'static str {
        self.which().name()
    }

    /// Whether the effect and the answer are known, so that nothing of it is open any more.
    pub const fn is_completed(&self) -> bool {
        match self {
            Self::Completed { .. } => true,
            Self::Pending { .. }
            | Self::InProgress { .. }
            | Self::BetweenWorkers { .. }
            | Self::FailedRetryable { .. }
            | Self::Unknown { .. } => false,
        }
    }

    /// Who settled it; `None` unless it is settled.
    pub const fn settled_by(&self) -> Option<SettledBy> {
        match self {
            Self::Completed { by, .. } | Self::FailedRetryable { by, .. } => Some(*by),
            Self::Pending { .. }
            | Self::InProgress { .. }
            | Self::BetweenWorkers { .. }
            | Self::Unknown { .. } => None,
        }
    }

    /// Who found that its last execution did nothing, so that another one may run; `None` if that is not so.
    pub const fn released_by(&self) -> Option<SettledBy> {
        match self {
            Self::FailedRetryable { by, .. } => Some(*by),
            Self::Pending { released_by } => *released_by,
            Self::InProgress { .. }
            | Self::BetweenWorkers { .. }
            | Self::Completed { .. }
            | Self::Unknown { .. } => None,
        }
    }

    /// When the record may be deleted; `None` unless it is settled.
    pub const fn expires_at(&self) -> Option<Timestamp> {
        match self {
            Self::Completed { expires_at, .. } | Self::FailedRetryable { expires_at, .. } => {
                Some(*expires_at)
            }
            Self::Pending { .. }
            | Self::InProgress { .. }
            | Self::BetweenWorkers { .. }
            | Self::Unknown { .. } => None,
        }
    }
}

/// Who settled a record. Who knows more wins.
///
/// 1. Proof of the effect overturns every release but a certain one.
/// 2. A worker that reports "perhaps executed" overturns an assumption, or another worker's report of another execution. It
///    never overturns the provider or an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettledBy {
    /// The worker, by its report.
    Worker,
    /// The provider, when asked or unprompted.
    Provider,
    /// An operator.
    Operator,
    /// A write that proves it: the worker's transaction can no longer commit.
    Certainty,
    /// An assumption: the effect was not found in time, or no worker began the work.
    Assumption,
    /// The worker, by its report that the request was refused before anything was done. The record counts as absent.
    NotBegun,
}

names! {
    pub SettledBy {
        Worker: "worker", Provider: "provider", Operator: "operator", Certainty: "certainty", Assumption: "assumption",
        NotBegun: "not_begun",
    }
}

/// What was reported of an operation, besides what its present execution reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// Another execution possibly ran it.
    Perhaps,
    /// Another execution ran it, the provider reports its effect, or its worker reports an effect without its domain writes.
    Effect,
}

names! { pub Evidence { Perhaps: "perhaps", Effect: "effect" } }

/// Why the outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownCause {
    /// The worker's lease had expired, and it had not reported.
    LeaseExpired,
    /// The worker reported that it possibly had an effect, or one without its domain writes. The record's note says why.
    PerhapsExecuted,
    /// This execution did nothing, but another one or the provider contradicts it.
    Contested,
    /// An operator holds it: its release, or the table itself, is not to be trusted. No worker's report changes it.
    Held,
}

names! {
    pub UnknownCause {
        LeaseExpired: "lease_expired",
        PerhapsExecuted: "perhaps_executed",
        Contested: "contested",
        Held: "held",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // T36: records written today are read for as long as they can live.
    #[test]
    fn the_names_in_items_never_change() {
        let causes = ["lease_expired", "perhaps_executed", "contested", "held"];
        assert!(UnknownCause::EACH.iter().map(|cause| cause.name()).eq(causes));
        assert!(causes.map(UnknownCause::parse).into_iter().flatten().eq(UnknownCause::EACH.iter().copied()));
        let names = ["worker", "provider", "operator", "certainty", "assumption", "not_begun"];
        assert!(SettledBy::EACH.iter().map(|by| by.name()).eq(names));
        assert!(names.map(SettledBy::parse).into_iter().flatten().eq(SettledBy::EACH.iter().copied()));
        assert!(Evidence::EACH.iter().map(|evidence| evidence.name()).eq(["perhaps", "effect"]));
        assert_eq!((UnknownCause::parse("other"), SettledBy::parse("other")), (None, None));
        let states =
            ["pending", "in_progress", "between_workers", "completed", "failed_retryable", "unknown"];
        assert!(StateName::EACH.iter().map(|state| state.name()).eq(states));
        assert!(states.map(StateName::parse).into_iter().flatten().eq(StateName::EACH.iter().copied()));
    }
}
