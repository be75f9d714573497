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

#[cfg(test)]
mod tests {
    use super::*;

    // R29: what is for people must be readable by their tools, and by this function when they send it back.
    #[test]
    fn an_ending_that_goes_to_people_can_be_read_again() {
        let handed_over = r#"{"kind":"ending","key":"t#pay#k","revision":"","attempt":"","attempts":1,"fingerprint":"",
            "fingerprint_rule":1,"created_at":0,"lease_until":0,"ending":"not_executed"}"#;
        let message: Message = serde_json::from_str(handed_over).unwrap();
        let again = message.to_json();
        assert!(serde_json::from_str::<Message>(&again).is_ok(), "{again}");
    }
}
