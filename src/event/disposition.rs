//! What the queue sees of a message, by what became of its function.

use std::time::Duration;

use crate::{
    function::RunError,
    time_budget::{HANDED_BACK, HELD, LEASE_OVER, MAX_VISIBILITY},
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
    /// How many executions there were, as far as is known, and how many there may be.
    pub(super) attempts: u32,
    pub(super) max_attempts: u32,
}

impl Disposition {
    /// What the queue sees of a message whose function ended so. `nonce` is the source of the backoff's jitter.
    pub(super) fn of(ended: &Result<(), RunError>, tries: Tries, nonce: [u8; 16]) -> Self {
        let again = || Self::HandedBack(HANDED_BACK.after(tries.receives, nonce));
        match ended {
            // A queue needs no result.
            Ok(()) | Err(RunError::ResultUnreadable(_)) => Self::Acknowledged,
            Err(RunError::InFlight { lease_left, .. }) if lease_left.is_zero() => again(),
            // One receive more, not one each second (T67).
            Err(RunError::InFlight { lease_left, .. }) => {
                Self::HandedBack(lease_left.saturating_add(LEASE_OVER).min(MAX_VISIBILITY))
            }
            Err(RunError::Unavailable) => again(),
            Err(RunError::NotExecuted(_) | RunError::Interrupted(_))
                if tries.attempts < tries.max_attempts =>
            {
                again()
            }
            Err(ended @ (RunError::NotExecuted(error) | RunError::Interrupted(error))) => {
                let parts = match ended {
                    RunError::Interrupted(_) => ", and parts of it may be done",
                    _ => "",
                };
                let why = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
                Self::Dead(format!("it was tried {} times{parts}{why}", tries.attempts))
            }
            Err(RunError::Unknown { wait, .. }) => {
                Self::Held(HELD.after(tries.receives, nonce).max((*wait).min(HELD.max)))
            }
            Err(RunError::Refused(reason)) => Self::Dead(reason.clone()),
            Err(error) => Self::Dead(error.to_string()),
        }
    }
}
