//! How a function fails, and what its caller gets.

use std::time::Duration;

use crate::key::KeyError;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a function has no result. `?` on any error makes [`Perhaps`](Self::Perhaps) of it.
#[derive(derive_more::Debug)]
pub enum Failure {
    /// Certainly nothing was done, such as after a refused connection: the key is released, and a retry runs.
    NotExecuted(BoxError),
    /// Perhaps something was done, such as after a time-out: the outcome is unknown until it is reconciled.
    Perhaps(BoxError),
    /// The input is refused for good, for this reason, and nothing else will ever come of it. The reason is kept: each retry gets it as
    /// [`RunError::Refused`]. Domain writes commit with it.
    // It may be about the input, which does not belong in logs.
    #[debug("Permanent(..)")]
    Permanent(String),
}

impl Failure {
    /// Certainly nothing was done.
    pub fn not_executed(error: impl Into<BoxError>) -> Self {
        Self::NotExecuted(error.into())
    }

    /// The input is refused for good.
    pub fn permanent(reason: impl Into<String>) -> Self {
        Self::Permanent(reason.into())
    }
}

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Perhaps(error.into())
    }
}

/// Why [`Guard::run`](super::Guard::run) has no result.
#[derive(derive_more::Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The key is invalid. Nothing was run.
    #[error("the key is invalid")]
    Key(#[source] KeyError),
    /// The input cannot be written as JSON. Nothing was run.
    #[error("the input cannot be written as JSON")]
    Input(#[source] serde_json::Error),
    /// The function refused the input for good, now or before.
    #[error("refused: {0}")]
    // The reason may be about the input, which does not belong in logs.
    #[debug("Refused(..)")]
    Refused(String),
    /// Certainly nothing was done, now or before. Call again with the same key and input.
    #[error("nothing was done")]
    NotExecuted(#[source] Option<BoxError>),
    /// The store of records does not answer, or too little time is left. This call did nothing; an earlier one with the same key may have.
    /// Call again with the same key and input.
    #[error("the store of records does not answer, or too little time is left: this call did nothing")]
    Unavailable,
    /// Another execution has the key. Call again with the same key and input.
    #[error("another execution is in flight")]
    InFlight {
        /// After this time.
        wait: Duration,
        /// For so long at most, if its worker is dead, as far as is known.
        lease_left: Duration,
    },
    /// The execution ended between two phases. Call again with the same key and input: it resumes.
    #[error("interrupted: the next call resumes it")]
    Interrupted(#[source] Option<BoxError>),
    /// Perhaps something was done. Call again with the same key and input, to get what reconciliation finds out.
    #[error("perhaps executed: the outcome is unknown")]
    Unknown {
        /// After this time.
        wait: Duration,
        /// The function's error, if it ran now.
        #[source]
        source: Option<BoxError>,
    },
    /// The key was used for another input. Nothing was run.
    #[error("the key was used for another input")]
    Mismatch,
    /// The key is too old, or too short, to begin an execution, and there is no result. Nothing was run.
    #[error("the key may not begin an execution: {0}")]
    MayNotBegin(String),
    /// It was executed, but its result cannot be returned: it was too large to be kept, is gone, or is of another type. Nothing was run now.
    #[error("it was executed, but its result cannot be read: {0}")]
    ResultUnreadable(String),
    /// It may have been executed, but this version cannot read the record. Nothing was run now.
    #[error("the record cannot be read")]
    RecordUnreadable,
}
