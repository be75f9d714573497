//! Why a record was not corrected.

use crate::{
    domain::DomainWriteError,
    record::{AnswerKind, HoldError, SettleError},
    store::StoreError,
};

/// Why a record was not corrected. Nothing was changed, unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorrectionError {
    /// Its state does not allow that.
    #[error(transparent)]
    Unsettled(#[from] SettleError),
    /// It cannot be held.
    #[error(transparent)]
    NotHeld(#[from] HoldError),
    /// The record does not take that of a phase.
    #[error(transparent)]
    Phase(#[from] PhaseCorrectionError),
    /// The record keeps no answer.
    #[error("the record is {0}: it keeps no response")]
    NoAnswer(&'static str),
    /// The record keeps only a status.
    #[error("the record keeps neither headers nor a body")]
    NothingKept,
    /// The lease has not expired.
    #[error("the lease of the record's worker, or its time to wait for one, has not expired")]
    NotDead,
    /// It has no alarm.
    #[error("the record has no alarm")]
    NoAlarm,
    /// The record was changed since it was seen.
    #[error("the record was changed meanwhile, and is {0} now")]
    Changed(&'static str),
    /// The record was deleted since it was seen.
    #[error("the record was deleted meanwhile")]
    Deleted,
    /// The retention is shorter than the record's, or than the difference of clocks: its key would run again too early.
    #[error("that is shorter than the operation keeps the record, or than 5 minutes")]
    ShortRetention,
    /// The answer's status is not that of a final response.
    #[error("the status is not that of a final response: 200 to 599")]
    NoStatus,
    /// The callers of the record cannot read such an answer: they need one of this kind.
    #[error("the callers of this operation get {}, and this answer is of another kind", .0.described())]
    WrongKind(AnswerKind),
    /// The body is too large to be kept.
    #[error("the body is too large to be kept")]
    BodyTooLarge,
    /// A message cannot be published.
    #[error(transparent)]
    Message(#[from] DomainWriteError),
    /// The body could not be kept.
    #[error("the body cannot be kept")]
    Body(#[source] StoreError),
    /// The store failed. Whether the record was changed is not known, unless the error's kind says so.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

/// Why a record did not take what an operator says of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PhaseCorrectionError {
    /// Its operation has no phases.
    #[error("the operation does not resume: its record has no phases")]
    NoPhases,
    /// The name cannot be that of a phase.
    #[error("the name of a phase is 1 to 64 letters, digits, `-`, `_` or `.`")]
    Name,
    /// The result is not JSON.
    #[error("the result is not one JSON value")]
    NotJson,
    /// The record has no room for the result.
    #[error("the result is too long to be kept")]
    TooLong,
    /// The phase is known to be executed.
    #[error("the record has this phase already: it was executed")]
    Known,
    /// The record has another result.
    #[error("the record has another result of this phase")]
    Differs,
    /// Nothing says that the call which follows may have been made.
    #[error("no call of the operation is open: the next retry makes the call that follows")]
    NothingOpen,
    /// Only what is between workers can be resumed.
    #[error("the record is {0}, and not between workers")]
    NotBetweenWorkers(&'static str),
}
