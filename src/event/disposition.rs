//! What becomes of a message, by what became of its function.

use std::{fmt, time::Duration};

use crate::function::RunError;

/// What becomes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    /// It is done.
    Done,
    /// It must come again.
    Again(Again),
    /// No delivery can help.
    Dead(String),
}

/// Why a message must come again. Its source decides when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// Another execution is in flight, for so long at most.
    InFlight { lease_left: Duration },
    /// It did nothing, or was interrupted, and may be tried again. Its record counts that.
    Failed,
    /// The same, but no record counts it.
    FailedUncounted,
    /// The store does not answer, or there was too little time.
    Unavailable,
    /// There was no time to run it.
    NoTime,
    /// The data of its batch is too long, once it is unpacked.
    NoRoom,
    /// Its outcome is unknown, and is asked about after this time.
    Unknown { wait: Duration },
    /// Its tenant is over a bound, for so long.
    OverBound { wait: Duration },
    /// Operators have stopped its tenant.
    Stopped,
}

impl Again {
    /// In words, behind "it is handed back, because".
    pub(super) const fn why(self) -> &'static str {
        match self {
            Self::InFlight { .. } => "another execution is in flight",
            Self::Failed | Self::FailedUncounted => "nothing was done, or it was interrupted",
            Self::NoTime => "too little time is left for it",
            Self::NoRoom => "the data of its batch is too long, once it is unpacked",
            Self::Unavailable => "the store does not answer, or too little time is left",
            Self::Unknown { .. } => "its outcome is unknown",
            Self::OverBound { .. } => "its tenant has too many new operations, or too many are open",
            Self::Stopped => "operators have stopped its tenant",
        }
    }
}

/// A message of which no record counts the executions may be received this many times as often: it is received, too, while another one of
/// its group is tried, or while the store does not answer.
const RECEIVES_OF_AN_ATTEMPT: u32 = 10;

/// How often a message was tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tries {
    /// How many executions there were, if a record counts them.
    pub(super) attempts: Option<u32>,
    /// How many there may be.
    pub(super) max_attempts: u32,
    /// How often it was received, if its source counts that.
    pub(super) receives: Option<u32>,
}

impl Tries {
    /// Whether they are used up.
    fn are_over(self) -> bool {
        match self.attempts {
            Some(attempts) => attempts >= self.max_attempts,
            None => self
                .receives
                .is_some_and(|receives| receives >= self.max_attempts.saturating_mul(RECEIVES_OF_AN_ATTEMPT)),
        }
    }
}

impl fmt::Display for Tries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempts {
            Some(attempts) => write!(f, "it was tried {attempts} times"),
            None => write!(f, "it was received {} times", self.receives.unwrap_or_default()),
        }
    }
}

impl Disposition {
    /// What becomes of a message whose function ended so.
    pub(super) fn of(ended: &Result<(), RunError>, tries: Tries) -> Self {
        match ended {
            // A queue needs no result, and the log has why there is none.
            Ok(()) | Err(RunError::ResultNotKept(_) | RunError::ResultUnreadable(_)) => Self::Done,
            Err(RunError::InFlight { lease_left, .. }) => {
                Self::Again(Again::InFlight { lease_left: *lease_left })
            }
            Err(RunError::Unavailable) => Self::Again(Again::Unavailable),
            // Neither is the message's fault: it counts as no try.
            Err(RunError::OverBound { wait }) => Self::Again(Again::OverBound { wait: *wait }),
            Err(RunError::Stopped) => Self::Again(Again::Stopped),
            Err(RunError::NotExecuted(_) | RunError::Interrupted(_)) if !tries.are_over() => {
                Self::Again(if tries.attempts.is_some() { Again::Failed } else { Again::FailedUncounted })
            }
            Err(ended @ (RunError::NotExecuted(error) | RunError::Interrupted(error))) => {
                let parts = match ended {
                    RunError::Interrupted(_) => ", and parts of it may be done",
                    _ => "",
                };
                let why = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
                Self::Dead(format!("{tries}{parts}{why}"))
            }
            Err(RunError::Unknown { wait, .. }) => Self::Again(Again::Unknown { wait: *wait }),
            Err(RunError::Refused(reason)) => Self::Dead(reason.clone()),
            Err(
                error @ (RunError::Key(_)
                | RunError::Input(_)
                | RunError::Mismatch
                | RunError::MayNotBegin(_)
                | RunError::RecordUnreadable),
            ) => Self::Dead(error.to_string()),
        }
    }
}
