//! The messages of the queue of checks.

use serde::{Deserialize, Serialize};

use super::SweepProgress;

/// What is to be looked at.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Check {
    /// Look at this record, from this time on.
    Check {
        /// Its partition key.
        key: String,
        /// When, in milliseconds since 1970.
        look_at: u64,
    },
    /// Go on with a sweep that ran out of time.
    Sweep {
        /// How far it is.
        progress: SweepProgress,
    },
}

impl Check {
    /// The message as it goes through the queue.
    pub(super) fn to_json(&self) -> String {
        // Strings and numbers: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}
