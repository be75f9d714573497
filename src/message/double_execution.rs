//! A double execution, for operators.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::DeferredReport;
use crate::{
    key::RecordKey,
    record::{Answer, AttemptId, Record, State},
    telemetry::Count,
};

/// Both executions of one operation, as far as they are known.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct DoubleExecution {
    /// The record's partition key.
    pub(crate) key: String,
    /// The execution that could not write its report, because another one has the record.
    ours: Side,
    /// The execution that owns the record, or owned it last.
    theirs: Side,
    /// The report of ours. Its answer names what it did, and its client does not get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<Box<DeferredReport>>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Side {
    attempt: String,
    state: String,
    /// SHA-256 of status and body, if there is an answer.
    answer_sha256: Option<String>,
}

impl DoubleExecution {
    /// A double execution by `ours`, with its answer, and by the owner of `current`.
    pub(crate) fn new(ours: AttemptId, answer: Option<&Answer>, current: &Record) -> Self {
        Self {
            key: current.key.partition_key(),
            ours: Side {
                attempt: ours.to_string(),
                state: if answer.is_some() { State::COMPLETED } else { State::UNKNOWN }.to_owned(),
                answer_sha256: answer.map(digest),
            },
            theirs: Side {
                attempt: current.attempt.to_string(),
                state: current.state.name().to_owned(),
                answer_sha256: None,
            },
            report: None,
        }
    }

    /// Adds the other answer once it has been read. Log and metric do not wait for it.
    pub(crate) fn theirs_answered(&mut self, answer: Option<&Answer>) {
        self.theirs.answer_sha256 = answer.map(digest);
    }

    /// Logs and counts it under this record's key.
    pub(crate) fn log_and_count(&self, key: &RecordKey) {
        let (ours, theirs) = (&self.ours, &self.theirs);
        tracing::error!(
            attempt = ours.attempt,
            answer_sha256 = ours.answer_sha256,
            other_attempt = theirs.attempt,
            other_state = theirs.state,
            "the operation was, or perhaps was, executed twice: it needs an operator"
        );
        Count::DoubleExecution.add(key.operation());
    }
}

fn digest(answer: &Answer) -> String {
    let mut digest = Sha256::new();
    digest.update(answer.head.status().unwrap_or_default().to_be_bytes());
    digest.update(&answer.body);
    hex::encode(digest.finalize())
}
