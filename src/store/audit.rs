//! Audit lines: who changed a record by hand, when, why, and from which state to which.

use serde::{Deserialize, Serialize};

use crate::{record::Record, time::Timestamp};

/// One audit line of a record. It has no time to live, so it outlives its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditLine {
    /// Who made the change.
    pub who: String,
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// What was done.
    pub what: String,
    /// Why.
    pub reason: String,
    /// The record before the change; `None` if there was none.
    before: Option<AuditedState>,
    /// The record after the change; `None` if there was none.
    after: Option<AuditedState>,
}

impl AuditLine {
    /// The line about a change at this time: who made it, what it was, and why.
    pub fn new(
        [who, what, reason]: [&str; 3],
        at: Timestamp,
        before: Option<&Record>,
        after: Option<&Record>,
    ) -> Self {
        let (who, what, reason) = (who.to_owned(), what.to_owned(), reason.to_owned());
        let [before, after] = [before, after].map(|record| record.map(AuditedState::from));
        Self { who, at: at.as_millis(), what, reason, before, after }
    }

    /// The record's state before the change; `None` if there was no record.
    pub fn before(&self) -> Option<&str> {
        self.before.as_ref().map(|before| before.state.as_str())
    }

    /// The record's state after the change; `None` if there was no record.
    pub fn after(&self) -> Option<&str> {
        self.after.as_ref().map(|after| after.state.as_str())
    }
}

/// What an audit line says about a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AuditedState {
    /// The state's name.
    state: String,
    /// The revision, in hexadecimal digits.
    revision: String,
    /// How many executions there were.
    attempts: u32,
}

impl From<&Record> for AuditedState {
    fn from(record: &Record) -> Self {
        Self {
            state: record.state.name().to_owned(),
            revision: record.revision.to_string(),
            attempts: record.attempts,
        }
    }
}
