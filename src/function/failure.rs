//! How a function fails, and what its caller gets.

use std::{
    any::{Any, type_name},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{json::JsonError, key::KeyError};

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
    /// JSON cannot carry the input, so another input could look the same. Nothing was run.
    #[error("JSON cannot carry the input")]
    Input(#[source] JsonError),
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
    /// Its tenant has too many new keys, or open records: see [`Bounds`](crate::bounds::Bounds). This call did nothing; an earlier
    /// one with the same key may have. Call again with the same key and input.
    #[error("its tenant has too many new operations, or too many are open")]
    OverBound {
        /// After this time.
        wait: Duration,
    },
    /// Operators have stopped its tenant. This call did nothing; an earlier one with the same key may have. Call again with the same key and input, once it is allowed again.
    #[error("operators have stopped its tenant")]
    Stopped,
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
    /// It was executed now, and JSON cannot carry its result: a mistake in the program. The record is completed without it, and with it commit the
    /// function's domain writes and messages. Each later call gets [`ResultUnreadable`](Self::ResultUnreadable).
    #[error("it was executed, but {0}")]
    ResultNotKept(#[source] UnkeptResult),
    /// It was executed, but its result cannot be returned: it was not kept, because it was too large or [JSON cannot carry
    /// it](Self::ResultNotKept); or it is gone, or of another type. Nothing was run now.
    #[error("it was executed, but its result cannot be read: {0}")]
    ResultUnreadable(String),
    /// It may have been executed, but this version cannot read the record. Nothing was run now.
    #[error("the record cannot be read")]
    RecordUnreadable,
}

impl RunError {
    /// Its name in one stable word, for callers that get no Rust: [`invocation`](crate::event::invocation) reports it as the type of the error.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Key(_) | Self::Input(_) => "Invalid",
            Self::Refused(_) => "Refused",
            Self::NotExecuted(_) => "NotExecuted",
            Self::OverBound { .. } => "OverBound",
            Self::Stopped => "Stopped",
            Self::Unavailable => "Unavailable",
            Self::InFlight { .. } => "InFlight",
            Self::Interrupted(_) => "Interrupted",
            Self::Unknown { .. } => "Unknown",
            Self::Mismatch => "Mismatch",
            Self::MayNotBegin(_) => "MayNotBegin",
            Self::ResultNotKept(_) => "ResultNotKept",
            Self::ResultUnreadable(_) => "ResultUnreadable",
            Self::RecordUnreadable => "RecordUnreadable",
        }
    }
}

/// A result that JSON cannot carry, for the caller of the function that returned it. No other caller gets it.
#[derive(derive_more::Debug, thiserror::Error)]
#[error("its result, of type {type_name}, cannot be kept: {why}")]
#[debug("UnkeptResult({type_name}, {why:?})")]
pub struct UnkeptResult {
    type_name: &'static str,
    #[source]
    why: JsonError,
    // In a mutex, which is never locked, so that the error is `Sync`, as `?` needs it.
    value: Mutex<Box<dyn Any + Send>>,
}

impl UnkeptResult {
    pub(super) fn new<T: Send + 'static>(value: T, why: JsonError) -> Self {
        Self { type_name: type_name::<T>(), why, value: Mutex::new(Box::new(value)) }
    }

    /// The name of its type.
    pub const fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// Why it is not kept.
    pub const fn why(&self) -> &JsonError {
        &self.why
    }

    /// The result.
    ///
    /// # Errors
    /// If it is not of this type: returns itself.
    pub fn downcast<T: 'static>(self) -> Result<T, Self> {
        let Self { type_name, why, value } = self;
        let value = value.into_inner().unwrap_or_else(PoisonError::into_inner);
        value.downcast().map(|value| *value).map_err(|value| Self {
            type_name,
            why,
            value: Mutex::new(value),
        })
    }
}
