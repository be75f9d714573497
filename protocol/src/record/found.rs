//! What a request finds that begins nothing.

use super::{Says, Transition};

/// What a request found in place of an execution that it may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its caller is told this.
    Says(Says),
    /// This is to be written first: a dead worker's lease ends, or work that no worker has claimed in time. Then it asks again.
    Ends(Transition),
}

impl From<Says> for Found {
    fn from(says: Says) -> Self {
        Self::Says(says)
    }
}
