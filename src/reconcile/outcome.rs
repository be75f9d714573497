//! What became of a record that was asked about.

use crate::time::Timestamp;

/// What became of an attempt to reconcile a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReconcileOutcome {
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
    /// Asking no longer helps: an operator has to settle it.
    Escalated,
    /// There is no such record.
    Gone,
    /// Others are changing it at this moment.
    Busy,
}
