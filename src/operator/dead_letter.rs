//! A queue message, for operators: what it is about, and which queue's function can process it.

use serde::{Deserialize, de::IgnoredAny};

use crate::{key::RecordKey, message::Message};

const FAILED_RUN: &str = "failed_run";

/// What a message is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageSummary {
    /// The message's kind, such as `ask`; `failed_run` if it is Lambda's record of a failed invocation. `None` if it has no
    /// kind.
    pub kind: Option<String>,
    /// The record that it is about.
    pub record: Option<RecordKey>,
    /// The queue whose function can process it, such as `checks` or `outbox`; `None` if none can: it needs an operator, or
    /// cannot be read.
    pub queue: Option<&'static str>,
}

impl MessageSummary {
    /// Stands for the kind of a message that has none.
    pub const NO_KIND: &str = "(none)";

    /// Each kind of message that the functions send, or that Lambda sends for them.
    pub const KINDS: [&str; 11] = [
        "ask",
        "check",
        "contradiction",
        "deferred_report",
        "deliver",
        FAILED_RUN,
        "poison",
        "provider_report",
        "sweep",
        "work",
        Self::NO_KIND,
    ];

    /// The body of a message that has the reconcile function ask about this record now, and restarts its count of
    /// questions.
    pub fn ask(record: &RecordKey) -> String {
        Message::Ask { key: record.partition_key() }.to_json()
    }

    /// Reads the body of a message.
    pub fn read(body: &str) -> Self {
        #[derive(Default, Deserialize)]
        struct Envelope {
            kind: Option<String>,
            key: Option<String>,
            /// Of an [invocation record](https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html).
            #[serde(rename = "requestContext")]
            invocation: Option<IgnoredAny>,
        }
        let Envelope { kind, key, invocation } = serde_json::from_str(body).unwrap_or_default();
        let kind = kind.or_else(|| invocation.map(|_| FAILED_RUN.to_owned()));
        let (record, queue) = match Message::read(body) {
            Ok(message) => (message.record_key(), message.queue()),
            // Malformed, or not a message of this library.
            Err(_) => (key.as_deref().and_then(RecordKey::from_partition_key), None),
        };
        Self { kind, record, queue }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // T50: Lambda's record of a failed invocation has no kind.
    #[test]
    fn a_dead_letter_has_its_kind_or_is_a_failed_run() {
        for (body, kind) in [
            (
                r#"{"version":"1.0","requestContext":{"condition":"RetryAttemptsExhausted"},"responseContext":{}}"#,
                Some("failed_run"),
            ),
            (r#"{"requestContext":{},"DDBStreamBatchInfo":{"shardId":"s"}}"#, Some("failed_run")),
            (r#"{"kind":"poison","requestContext":{}}"#, Some("poison")),
            (r#"{"requestContext":null}"#, None),
            ("{}", None),
            ("no JSON {", None),
        ] {
            let dead_letter = MessageSummary::read(body);
            assert_eq!(
                (dead_letter.kind.as_deref(), dead_letter.record, dead_letter.queue),
                (kind, None, None),
                "{body}"
            );
        }
    }

    #[test]
    fn every_kind_of_message_is_listed() {
        let error = serde_json::from_str::<Message>(r#"{"kind":"?"}"#).err().unwrap().to_string();
        // Serde's error lists the kinds: unknown variant `?`, expected one of `ask`, `provider_report`, …
        let sent = error.split('`').skip(1).step_by(2).skip(1);
        let mut kinds: Vec<_> = sent.chain([FAILED_RUN, MessageSummary::NO_KIND]).collect();
        kinds.sort_unstable_by_key(|kind| (*kind == MessageSummary::NO_KIND, *kind));
        assert_eq!(kinds, MessageSummary::KINDS);
    }
}
