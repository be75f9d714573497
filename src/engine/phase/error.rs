//! Why a call, or its phase, failed.

use crate::{JsonError, domain::DomainWriteError, engine::BoxError};

/// Why an external call has no result. `?` on any error makes [`Perhaps`](Self::Perhaps) of it.
#[derive(Debug)]
pub enum CallError {
    /// The call was certainly not made, such as a refused connection. A retry makes it.
    NotExecuted(BoxError),
    /// The call was perhaps made, such as after a time-out.
    Perhaps(BoxError),
}

impl CallError {
    /// The call was certainly not made.
    pub fn not_executed(error: impl Into<BoxError>) -> Self {
        Self::NotExecuted(error.into())
    }

    pub(super) fn into_source(self) -> BoxError {
        match self {
            Self::NotExecuted(source) | Self::Perhaps(source) => source,
        }
    }
}

impl<E: Into<BoxError>> From<E> for CallError {
    fn from(error: E) -> Self {
        Self::Perhaps(error.into())
    }
}

/// Why a phase has no result in this execution. Return it: the guard answers for it, whatever the handler's answer is.
///
/// Unless it is [`Unknown`](Self::Unknown), the client gets `interrupted` (503), and a retry with the same key resumes behind what is
/// kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PhaseError {
    /// The call was certainly not made.
    #[error("the call of the phase was not made")]
    NotExecuted(#[source] BoxError),
    /// The call was perhaps made.
    #[error("the call of the phase was perhaps made")]
    Perhaps(#[source] BoxError),
    /// The call was perhaps made by an earlier execution, and the provider may have forgotten its key. The outcome is unknown, and
    /// reconciled.
    #[error(
        "the call of the phase was perhaps made by an earlier execution, and the provider cannot be asked"
    )]
    Unknown,
    /// Its result could not be kept. It is deferred, if there is a queue for that.
    #[error("the result of the phase could not be kept")]
    NotKept,
    /// This execution has lost its record, or is too late.
    #[error("the execution has lost its record")]
    Lost,
    /// The record was written by another version of the handler: another phase is kept in this one's place.
    #[error("another phase is kept in the place of this one")]
    Mismatch,
    /// This version cannot read the result that is kept.
    #[error("the result of the phase is not the JSON of its type")]
    Format(#[source] serde_json::Error),
    /// The phase was kept without its result, which was too long, or nothing that JSON carries. Deploy a program that
    /// [asks](super::Phase::ask) for it, or let an operator give it; then the next retry goes on.
    #[error("the phase is kept without its result, and this program does not ask for it")]
    ResultMissing,
    /// The call was made, and JSON cannot carry its result: a mistake in the program. The phase is kept without it, so an execution that resumes has
    /// to [ask](super::Phase::ask) for it, and its program must have a type that can be kept.
    #[error("the call of the phase was made, but its result, of type {type_name}, cannot be kept: {why}")]
    ResultNotKept {
        /// The name of its type.
        type_name: &'static str,
        /// Why.
        #[source]
        why: JsonError,
    },
    /// A write would be refused by DynamoDB.
    #[error("a domain write of the phase is wrong")]
    Write(#[from] DomainWriteError),
    /// Phases are used wrongly.
    #[error("{0}")]
    Misused(&'static str),
}
