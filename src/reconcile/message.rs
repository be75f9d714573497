//! The messages of the reconcile function's queue.

use serde::{Deserialize, Serialize};

use super::provider_report::{QueuedReport, ReportedEffect};
use crate::{
    engine::{DeferredReport, DoubleExecution},
    key::RecordKey,
    record::Record,
};

/// What the reconcile function is asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Message {
    /// Ask about this record now, and restart its count of questions.
    Ask {
        /// Its partition key.
        key: String,
        /// Why it is escalated, if it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Check what the provider reported by itself, while a worker had the record, against what became of it. A kind of its
    /// own: an earlier version refuses it, rather than drop it.
    ProviderReport {
        /// The record's partition key.
        key: String,
        /// What was said.
        queued: QueuedReport,
    },
    /// Write how an execution ended.
    Report(Box<DeferredReport>),
    /// The same with domain writes, in one transaction. A kind of its own: a version before it refuses what it would apply
    /// without its writes.
    ReportWithWrites(Box<DeferredReport>),
    /// Escalate a report whose record has been gone for so long that nobody knows whether it was settled.
    Forgotten(Box<DeferredReport>),
    /// Escalate an operation that was executed twice.
    DoubleExecution(Box<DoubleExecution>),
    /// Escalate a provider's report, or a worker's, that the record contradicts.
    Contradiction(Box<Contradiction>),
}

/// A provider's report, or a worker's, and the record that contradicts it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Contradiction {
    /// The record's partition key, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// What is wrong.
    pub(super) reason: String,
    /// What was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reported: Option<ReportedEffect>,
    /// The key that was passed to the provider, by which the effect is found there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) downstream_key: Option<String>,
    /// What a worker would have written, if the worker reports the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) report: Option<Box<DeferredReport>>,
    /// The record's state; none if there is no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
}

impl Contradiction {
    /// A contradiction with this record; `None` if there is no record.
    pub(super) fn about(key: &RecordKey, current: Option<&Record>, reason: &str) -> Self {
        Self {
            key: Some(key.partition_key()),
            reason: reason.to_owned(),
            state: current.map(|current| current.state.name().to_owned()),
            ..Self::default()
        }
    }
}

impl Message {
    /// The message as it goes through the queue.
    pub(crate) fn to_json(&self) -> String {
        // Strings and numbers: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R29: what is escalated must be readable by operators' tools, and by this function when they send it back.
    #[test]
    fn a_report_that_is_escalated_can_be_read_again() {
        let earlier = r#"{"kind":"report","key":"t#pay#k","revision":"","attempt":"","attempts":1,"fingerprint":"",
            "fingerprint_rule":1,"created_at":0,"lease_until":0,"report":"not_executed"}"#;
        let item = r#"{"kind":"report","key":"t#pay#k","item":{"pk":{"S":"t#pay#k"},"schema":{"N":"1"}}}"#;
        for deferred in [earlier, item] {
            let message: Message = serde_json::from_str(deferred).unwrap();
            let again = message.to_json();
            assert_eq!(again.matches("kind").count(), 1, "{again}");
            assert!(matches!(serde_json::from_str(&again), Ok(Message::Report(_))), "{again}");
        }
    }
}
