//! What became of a record that was asked about.

use crate::time::Timestamp;

/// What became of asking about a record, or of a report about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileOutcome {
    /// It is settled now, as this state.
    Resolved(&'static str),
    /// It waits for a retry, or for a worker: nothing is settled.
    Waits,
    /// Its record has the phase now that was reported. The next handler that gets there uses it.
    Noted,
    /// It was settled before.
    Settled,
    /// A worker owns it until then.
    InFlight(Timestamp),
    /// Its question is not due yet; or an effect that the provider reports could not be written, and must be reported again.
    NotDue,
    /// Nothing is known yet. The next question is due then.
    Scheduled(Timestamp),
    /// It needs an operator.
    Escalated,
    /// There is no such record.
    Gone,
    /// Others are changing it.
    Busy,
}
