//! What the queue sees of a message, by what became of its function.

use std::{fmt, time::Duration};

use crate::{
    function::RunError,
    time_budget::{HANDED_BACK, HELD, LEASE_OVER, MAX_TURNED_AWAY, MAX_VISIBILITY},
};

/// What the queue sees of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    /// It is done.
    Acknowledged,
    /// It comes again after this time.
    HandedBack(Duration),
    /// Its outcome is unknown: it comes again after this time, without a run until that is settled.
    Held(Duration),
    /// No delivery can help.
    Dead(String),
}

/// How often a message was tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tries {
    /// How often it was received.
    pub(super) receives: u32,
    /// How long ago it was sent.
    pub(super) age: Duration,
    /// How many executions there were, if a record counts them.
    pub(super) attempts: Option<u32>,
    /// How many there may be.
    pub(super) max_attempts: u32,
}

/// A message of which no record counts the executions may be received this many times as often: it is received, too, while another one of
/// its group is tried, or while the store does not answer.
const RECEIVES_OF_AN_ATTEMPT: u32 = 10;

impl Tries {
    /// Whether they are used up.
    fn are_over(self) -> bool {
        match self.attempts {
            Some(attempts) => attempts >= self.max_attempts,
            None => self.receives >= self.max_attempts.saturating_mul(RECEIVES_OF_AN_ATTEMPT),
        }
    }
}

impl fmt::Display for Tries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempts {
            Some(attempts) => write!(f, "it was tried {attempts} times"),
            None => write!(f, "it was received {} times", self.receives),
        }
    }
}

impl Disposition {
    /// What the queue sees of a message whose function ended so. `nonce` is the source of the backoff's jitter.
    pub(super) fn of(ended: &Result<(), RunError>, tries: Tries, nonce: [u8; 16]) -> Self {
        let again = || Self::HandedBack(HANDED_BACK.after(tries.receives, nonce));
        match ended {
            // A queue needs no result, and the log has why there is none.
            Ok(()) | Err(RunError::ResultNotKept(_) | RunError::ResultUnreadable(_)) => Self::Acknowledged,
            Err(RunError::InFlight { lease_left, .. }) if lease_left.is_zero() => again(),
            // One receive more, not one each second (T67).
            Err(RunError::InFlight { lease_left, .. }) => {
                Self::HandedBack(lease_left.saturating_add(LEASE_OVER).min(MAX_VISIBILITY))
            }
            Err(RunError::Unavailable) => again(),
            // Neither is the message's fault: it counts as no try. But a queue deletes what it has kept for too long, without a word.
            Err(ended @ (RunError::OverBound { .. } | RunError::Stopped)) if tries.age >= MAX_TURNED_AWAY => {
                Self::Dead(format!("{ended}, and was for {} days", MAX_TURNED_AWAY.as_secs() / (24 * 3600)))
            }
            // Rarely, so that the queue gives up after weeks, and not in days.
            Err(RunError::OverBound { wait }) => {
                Self::HandedBack(HELD.after(tries.receives, nonce).max((*wait).min(HELD.max)))
            }
            Err(RunError::Stopped) => Self::HandedBack(HELD.after(tries.receives, nonce)),
            Err(RunError::NotExecuted(_) | RunError::Interrupted(_)) if !tries.are_over() => again(),
            Err(ended @ (RunError::NotExecuted(error) | RunError::Interrupted(error))) => {
                let parts = match ended {
                    RunError::Interrupted(_) => ", and parts of it may be done",
                    _ => "",
                };
                let why = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
                Self::Dead(format!("{tries}{parts}{why}"))
            }
            Err(RunError::Unknown { wait, .. }) => {
                Self::Held(HELD.after(tries.receives, nonce).max((*wait).min(HELD.max)))
            }
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
