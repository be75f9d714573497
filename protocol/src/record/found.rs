//! What a request finds that begins nothing.

/// What a request found in place of an execution that it may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The operation is completed: return its answer.
    Completed,
    /// It is accepted or in progress.
    InFlight,
    /// The key was used for another request.
    Mismatch,
    /// The record's fingerprint was made by a rule that this deployment does not know.
    Incomparable,
    /// It may have been executed: reconciliation finds out.
    Unknown,
    /// The lease of its worker has expired: that attempt must be ended first.
    DeadWorker,
    /// No worker has claimed it in time: it must be ended first.
    Abandoned,
    /// An execution would have to begin, but may not.
    MayNotBegin,
    /// Likewise, but not for long: an earlier request of this key may be about to begin one.
    PerhapsInFlight,
    /// Too little time is left to begin, or too much has passed since the request was admitted.
    TooLate,
    /// What the worker would claim is settled, and deleted since.
    Gone,
    /// It is open, and a deployment with other phases began it: only one with the same resumes it.
    OtherPhases,
}
