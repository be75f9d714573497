//! The messages of the reconcile function's queue.

use serde::{Deserialize, Serialize};

use crate::executor::LostEnding;

/// What the reconcile function is asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    /// Ask about this record now, and count its questions anew.
    Ask {
        /// Its partition key.
        key: String,
    },
    /// Write down how an execution ended.
    Ending(Box<LostEnding>),
}

impl Message {
    /// The message as it goes through the queue.
    pub fn to_json(&self) -> String {
        // Strings and numbers: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}
