//! The messages of the queues of checks and of sweeps.

use serde::{Deserialize, Serialize};

use super::SweepProgress;

/// What is to be checked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Check {
    /// Check this record, once this time has come.
    Check {
        /// Its partition key.
        key: String,
        /// When, in milliseconds since 1970.
        look_at: u64,
    },
    /// Continue the sweep under way.
    Sweep {
        /// Its progress, which earlier versions sent here, in the queue of checks. This version keeps it in the store.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        progress: Option<SweepProgress>,
    },
}

impl Check {
    /// The message as it goes through the queue.
    pub(super) fn to_json(&self) -> String {
        // Strings and numbers: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}
