//! Who is at a job that one does at a time.

use std::fmt;

use crate::{record::Revision, time::Timestamp};

/// Who is at a job over the whole store that one does at a time, such as the sweep, and how far it is.
///
/// It stands beside the records, under a key that no record can have, and is written by compare-and-set as they are: whoever
/// loses the race, or its lease, has lost the job.
#[derive(Clone, PartialEq, Eq)]
pub struct Mark {
    /// The job's name. No `#` is in it, so that no record has its key.
    pub name: String,
    /// The mark of the last write.
    pub revision: Revision,
    /// Until when somebody is at it.
    pub lease_until: Timestamp,
    /// How far it is, in the job's own words; `None` if it is done.
    pub progress: Option<String>,
}

impl fmt::Debug for Mark {
    /// Without the progress, which may name keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, revision, lease_until, progress } = self;
        f.debug_struct("Mark")
            .field("name", name)
            .field("revision", revision)
            .field("lease_until", lease_until)
            .field("done", &progress.is_none())
            .finish()
    }
}
