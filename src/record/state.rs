//! The states of a record, each with its one name.

use super::KeptAnswer;
use crate::time::Timestamp;

/// The state of an operation. Being expired is not a state: see [`Record::expired`](super::Record::expired).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Accepted; no worker has it yet.
    Pending,
    /// A worker has it.
    InProgress {
        /// From then on, others may give up the worker.
        lease_until: Timestamp,
    },
    /// The effect and the answer are known.
    Completed {
        /// The answer, for replays.
        answer: KeptAnswer,
        /// When it was completed.
        completed_at: Timestamp,
        /// By whose word.
        by: SettledBy,
        /// Until when the record is kept. It counts as absent [`CLOCK_SKEW`](crate::time_budget::CLOCK_SKEW) later.
        expires_at: Timestamp,
    },
    /// Not executed, as far as `by` can know: a retry may run.
    FailedRetryable {
        /// When it failed.
        failed_at: Timestamp,
        /// By whose word.
        by: SettledBy,
        /// Until when the record is kept. It counts as absent [`CLOCK_SKEW`](crate::time_budget::CLOCK_SKEW) later.
        expires_at: Timestamp,
    },
    /// Perhaps executed: nobody may run it until reconciliation has found out.
    Unknown {
        /// Why the outcome is unknown.
        cause: UnknownCause,
        /// Since when: its worker was given up then, or last reported.
        since: Timestamp,
        /// When to ask next; the end of time if nobody asks any more, and an operator has to settle it.
        reconcile_at: Timestamp,
        /// How often reconciliation has asked.
        asked: u32,
    },
}

impl State {
    /// The name of [`Pending`](Self::Pending).
    pub const PENDING: &'static str = "pending";
    /// The name of [`InProgress`](Self::InProgress).
    pub const IN_PROGRESS: &'static str = "in_progress";
    /// The name of [`Completed`](Self::Completed).
    pub const COMPLETED: &'static str = "completed";
    /// The name of [`FailedRetryable`](Self::FailedRetryable).
    pub const FAILED_RETRYABLE: &'static str = "failed_retryable";
    /// The name of [`Unknown`](Self::Unknown).
    pub const UNKNOWN: &'static str = "unknown";

    /// The state's one name, in items, logs and answers.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending => Self::PENDING,
            Self::InProgress { .. } => Self::IN_PROGRESS,
            Self::Completed { .. } => Self::COMPLETED,
            Self::FailedRetryable { .. } => Self::FAILED_RETRYABLE,
            Self::Unknown { .. } => Self::UNKNOWN,
        }
    }

    /// By whose word it is settled, if it is.
    pub const fn settled_by(&self) -> Option<SettledBy> {
        match self {
            Self::Completed { by, .. } | Self::FailedRetryable { by, .. } => Some(*by),
            Self::Pending | Self::InProgress { .. } | Self::Unknown { .. } => None,
        }
    }

    /// When the record may be deleted; `None` unless it is settled.
    pub const fn expires_at(&self) -> Option<Timestamp> {
        match self {
            Self::Completed { expires_at, .. } | Self::FailedRetryable { expires_at, .. } => {
                Some(*expires_at)
            }
            Self::Pending | Self::InProgress { .. } | Self::Unknown { .. } => None,
        }
    }
}

/// By whose word a record was settled. Who knows more wins: proof of the effect overturns every release but a certain one; a worker's doubt
/// overturns an assumption, or another execution's own word, but never the provider's or an operator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettledBy {
    /// The worker said so.
    Worker,
    /// The provider said so, when asked or unprompted.
    Provider,
    /// An operator said so.
    Operator,
    /// Nobody had to say so: its transaction can commit no more.
    Certainty,
    /// Nobody said so: the effect was not found in time, or nobody began the work.
    Assumption,
}

impl SettledBy {
    /// The name in items.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Provider => "provider",
            Self::Operator => "operator",
            Self::Certainty => "certainty",
            Self::Assumption => "assumption",
        }
    }

    /// Reads a [`name`](Self::name).
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Worker, Self::Provider, Self::Operator, Self::Certainty, Self::Assumption]
            .into_iter()
            .find(|by| by.name() == name)
    }
}

/// Why the outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownCause {
    /// The worker's lease had expired, and it had not reported.
    LeaseExpired,
    /// The handler said so, or returned an answer that proves nothing (a 5xx, an error without a class).
    HandlerFailed,
    /// The handler panicked.
    Panicked,
    /// The handler's response could not be read to its end.
    ResponseLost,
    /// This execution did nothing, but another one, or the provider, says otherwise.
    Contested,
}

impl UnknownCause {
    pub(super) const EACH: [Self; 5] =
        [Self::LeaseExpired, Self::HandlerFailed, Self::Panicked, Self::ResponseLost, Self::Contested];

    /// The cause's name in items and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeaseExpired => "lease_expired",
            Self::HandlerFailed => "handler_failed",
            Self::Panicked => "panicked",
            Self::ResponseLost => "response_lost",
            Self::Contested => "contested",
        }
    }

    /// Reads a [`name`](Self::name).
    pub fn parse(name: &str) -> Option<Self> {
        Self::EACH.into_iter().find(|cause| cause.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // T36: records written today are read for as long as they can live.
    #[test]
    fn the_names_in_items_never_change() {
        let causes = ["lease_expired", "handler_failed", "panicked", "response_lost", "contested"];
        assert_eq!(UnknownCause::EACH.map(UnknownCause::name), causes);
        assert!(
            causes
                .iter()
                .zip(UnknownCause::EACH)
                .all(|(name, cause)| UnknownCause::parse(name) == Some(cause))
        );
        let each = [
            SettledBy::Worker,
            SettledBy::Provider,
            SettledBy::Operator,
            SettledBy::Certainty,
            SettledBy::Assumption,
        ];
        let names = ["worker", "provider", "operator", "certainty", "assumption"];
        assert_eq!(each.map(SettledBy::name), names);
        assert!(names.iter().zip(each).all(|(name, by)| SettledBy::parse(name) == Some(by)));
        assert_eq!((UnknownCause::parse("nobody"), SettledBy::parse("nobody")), (None, None));
    }
}
