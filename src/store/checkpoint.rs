//! The lease of a job that only one invocation may run at a time.

use crate::{record::Revision, time::Timestamp};

/// The lease and progress of a job over the whole store that only one invocation may run at a time, such as the sweep.
///
/// It is kept in the table of records, under a key that no record can have. As records are, it is written by compare-and-set: an
/// invocation that loses the race, or the lease, stops.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
// Without the progress, which may name keys.
#[debug("Checkpoint {{ name: {name:?}, .. }}")]
pub struct Checkpoint {
    /// The job's name. It has no `#`, so that no record has its key.
    pub name: String,
    /// The id of the last write.
    pub revision: Revision,
    /// Until when an invocation runs the job.
    pub lease_until: Timestamp,
    /// The job's progress, in its own form; `None` if it is done.
    pub progress: Option<String>,
}
