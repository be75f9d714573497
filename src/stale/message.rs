//! The messages of the queues of checks and of sweeps.

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
    /// Go on with the sweep under way.
    Sweep {
        /// How far it is, as earlier versions say here, in the queue of checks. This one keeps it in the store.
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
