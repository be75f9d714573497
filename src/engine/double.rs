//! An operation that was executed by two workers: what people are told of it.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::LostEnding;
use crate::{
    key::RecordKey,
    record::{Answer, AttemptId, Record, State},
    telemetry::Count,
};

/// What is known of both executions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DoubleExecution {
    /// The record's partition key.
    pub(crate) key: String,
    /// The one that came to write its answer down, and found the record another's.
    ours: Side,
    /// The one that owns or has completed the record.
    theirs: Side,
    /// What ours would have written: the answer that its client does not get, and that names what it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ending: Option<Box<LostEnding>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Side {
    attempt: String,
    state: String,
    /// SHA-256 of status and body, if there is an answer.
    answer_sha256: Option<String>,
}

impl DoubleExecution {
    /// `ours` and its answer, and the execution whose the record is.
    pub(crate) fn new(ours: AttemptId, answer: Option<&Answer>, there: &Record) -> Self {
        Self {
            key: there.key.partition_key(),
            ours: Side {
                attempt: ours.to_string(),
                state: if answer.is_some() { State::COMPLETED } else { State::UNKNOWN }.to_owned(),
                answer_sha256: answer.map(digest),
            },
            theirs: Side {
                attempt: there.attempt.to_string(),
                state: there.state.name().to_owned(),
                answer_sha256: None,
            },
            ending: None,
        }
    }

    /// Once it is read: what is logged and counted does not wait for that.
    pub(crate) fn theirs_answered(&mut self, answer: Option<&Answer>) {
        self.theirs.answer_sha256 = answer.map(digest);
    }

    /// The message by which the reconcile function hears of it.
    pub(crate) fn to_message(&self) -> String {
        #[derive(Serialize)]
        #[serde(tag = "kind", rename = "double_execution")]
        struct Message<'a> {
            #[serde(flatten)]
            double: &'a DoubleExecution,
        }
        // Strings: this cannot fail.
        serde_json::to_string(&Message { double: self }).unwrap_or_default()
    }

    /// Logs and counts it, about this record.
    pub(crate) fn tell(&self, key: &RecordKey) {
        let (key, operation) = (key.hash(), key.operation());
        let (ours, theirs) = (&self.ours, &self.theirs);
        tracing::error!(
            %key, %operation, attempt = ours.attempt, answer_sha256 = ours.answer_sha256,
            other_attempt = theirs.attempt, other_state = theirs.state,
            "the operation was, or perhaps was, executed twice: it needs an operator"
        );
        Count::DoubleExecution.add(operation);
    }
}

fn digest(answer: &Answer) -> String {
    let mut digest = Sha256::new();
    digest.update(answer.head.status().unwrap_or_default().to_be_bytes());
    digest.update(&answer.body);
    hex::encode(digest.finalize())
}
