//! The messages that go through the queues: one enum, one sender, one reader.
//!
//! 1. A message is an envelope with a version and a kind: `{"version":1,"kind":"check",…}`. The kind decides what else it holds.
//! 2. The reader accepts this version alone. A message of another version, or of an unknown kind, is malformed: the whole message
//!    becomes a dead letter, and no part of it is applied.
//! 3. `check` and `sweep` are for the stale function; `deliver` is for the outbox function, `work` for a worker; `ask`, `provider_report` and `deferred_report` for the reconcile function.
//!    The others need an operator.
//! 4. Each message fits into 256 KiB, which every queue takes.
//!
//! It does not process them: see [`stale`](crate::stale) and [`reconcile`](crate::reconcile).

mod contradiction;
mod deferred_report;
mod poison;
mod provider_report;

use serde::{Deserialize, Serialize};

use crate::{key::RecordKey, queue::WorkError, time::Timestamp};

pub(crate) use contradiction::Contradiction;
pub(crate) use deferred_report::DeferredReport;
pub(crate) use poison::Poison;
pub(crate) use provider_report::{QueuedReport, ReportedEffect};

/// The version of the envelope and its content. A record's item in it has another version.
const VERSION: u32 = 1;

/// A message of this library.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Message {
    /// Check this record, once this time has come.
    Check {
        /// Its partition key.
        key: String,
        /// When, in milliseconds since 1970.
        look_at: Timestamp,
    },
    /// Continue the current sweep. Its checkpoint is in the store.
    Sweep,
    /// Deliver the messages of this record.
    Deliver {
        /// Its partition key.
        key: String,
    },
    /// Execute what was accepted with this request.
    Work {
        /// The record's partition key.
        key: String,
        /// The id of the body item with the request, 32 hex digits.
        request: String,
    },
    /// Ask about this record now, and restart its count of questions.
    Ask {
        /// Its partition key.
        key: String,
    },
    /// Compare what the provider reported unprompted, while a worker had the record, with the record's state now.
    ProviderReport {
        /// The record's partition key.
        key: String,
        /// What was reported.
        report: QueuedReport,
    },
    /// Write how an execution ended.
    DeferredReport(Box<DeferredReport>),
    /// The record contradicts what a provider or a worker reports.
    Contradiction(Box<Contradiction>),
    /// A stream record cannot be read.
    Poison(Box<Poison>),
}

impl Message {
    /// The message as it goes through a queue.
    pub(crate) fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Envelope<'a> {
            version: u32,
            #[serde(flatten)]
            message: &'a Message,
        }
        // Only strings, numbers, and JSON that was read before: this cannot fail.
        serde_json::to_string(&Envelope { version: VERSION, message: self }).unwrap_or_default()
    }

    /// Reads a message of this version.
    pub(crate) fn read(body: &str) -> Result<Self, WorkError> {
        #[derive(Deserialize)]
        struct Envelope {
            version: u32,
        }
        // The version first: another one may have other members. The parser's error is dropped, because it may repeat the content of
        // the message.
        match serde_json::from_str(body) {
            Ok(Envelope { version: VERSION }) => serde_json::from_str(body)
                .map_err(|_| WorkError::Malformed("its kind is unknown, or a member is wrong")),
            Ok(_) => Err(WorkError::Malformed("it is of another version")),
            Err(_) => Err(WorkError::Malformed("it has no version")),
        }
    }

    /// The record that it is about, if it names one.
    pub(crate) fn record_key(&self) -> Option<RecordKey> {
        let key = match self {
            Self::Sweep => return None,
            Self::Check { key, .. }
            | Self::Deliver { key }
            | Self::Work { key, .. }
            | Self::Ask { key, .. }
            | Self::ProviderReport { key, .. } => key,
            Self::DeferredReport(report) => &report.key,
            Self::Contradiction(contradiction) => contradiction.key.as_ref()?,
            Self::Poison(poison) => poison.key()?,
        };
        RecordKey::from_partition_key(key)
    }

    /// The queue whose function can process it; `None` if none can, because it needs an operator.
    pub(crate) const fn queue(&self) -> Option<&'static str> {
        match self {
            Self::Check { .. } | Self::Sweep => Some("checks"),
            Self::Deliver { .. } => Some("outbox"),
            Self::Work { .. } => Some("work"),
            Self::Ask { .. } | Self::ProviderReport { .. } => Some("reconcile"),
            Self::DeferredReport(_) => Some("deferred-reports"),
            Self::Contradiction(_) | Self::Poison(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Operators' tools read what is escalated, and send it back to this function.
    #[test]
    fn a_message_that_is_read_can_be_sent_again() {
        let item = r#"{"version":1,"kind":"deferred_report","key":"t#pay#k","item":{"pk":{"S":"t#pay#k"},"schema":{"N":"2"}}}"#;
        let again = Message::read(item).unwrap().to_json();
        assert_eq!(again.matches("kind").count(), 1, "{again}");
        assert!(matches!(Message::read(&again), Ok(Message::DeferredReport(_))), "{again}");
    }

    // T36
    #[test]
    fn a_message_of_another_version_is_malformed() {
        let sweep = Message::Sweep.to_json();
        assert_eq!(sweep, r#"{"version":1,"kind":"sweep"}"#);
        assert!(matches!(Message::read(&sweep), Ok(Message::Sweep)));
        for version in ["0", "2", "-1", "1.0", "\"1\"", "null", "[1]"] {
            let other = sweep.replace('1', version);
            assert!(Message::read(&other).is_err(), "{other}");
        }
        let without = Message::read(r#"{"kind":"sweep"}"#);
        assert!(matches!(without, Err(WorkError::Malformed("it has no version"))));
        assert!(Message::read(r#"{"version":1,"kind":"of_another_version"}"#).is_err());
    }
}
