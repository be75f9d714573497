//! What became of a record that was asked about.

use super::AskError;
use crate::{key::OperationName, queue::QueueError, store::StoreError, time::Timestamp};

/// What became of an attempt to reconcile a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// It is settled now, as this state.
    Resolved(&'static str),
    /// It was settled before.
    Settled,
    /// A worker has it until then.
    InFlight(Timestamp),
    /// It is not due yet.
    NotDue,
    /// Nothing is known yet; it is asked about again then.
    Scheduled(Timestamp),
    /// It was asked about often enough: it is for people now, and its dead letter is written.
    Escalated,
    /// There is no such record.
    Gone,
    /// Others changed it each time that we tried.
    Busy,
}

/// Why a record could not be reconciled now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcileError {
    /// The store failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The queue of dead letters failed.
    #[error("the queue of dead letters failed")]
    DeadLetters(#[source] QueueError),
    /// Who told something could not be listened to.
    #[error("what was told could not be taken up")]
    Source(#[source] AskError),
    /// The message says nothing that can be done; no retry helps.
    #[error("the message is malformed: {0}")]
    Malformed(&'static str),
    /// The ending could not be written. A retry may help.
    #[error("the ending could not be written in time")]
    Unwritten,
    /// No reconciler knows the operation.
    #[error("no reconciler knows the operation {0}")]
    Unknown(OperationName),
}
