//! Who changed a record by hand, when, why, and from what to what.

use serde::{Deserialize, Serialize};

use crate::{record::Record, time::Timestamp};

/// One audit line of a record. It has no time to live, and stays when its record is gone.
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
    /// What the record was; `None` if there was none.
    before: Option<AuditedState>,
    /// What it became.
    after: Option<AuditedState>,
}

impl AuditLine {
    /// The line about a change at this time: by whom, what and why.
    pub(crate) fn new(
        [who, what, reason]: [&str; 3],
        at: Timestamp,
        before: Option<&Record>,
        after: Option<&Record>,
    ) -> Self {
        let (who, what, reason) = (who.to_owned(), what.to_owned(), reason.to_owned());
        let at = at.as_millis();
        Self {
            who,
            at,
            what,
            reason,
            before: before.map(AuditedState::from),
            after: after.map(AuditedState::from),
        }
    }
}

impl AuditLine {
    /// The state that the record was in; `None` if there was none.
    pub fn before(&self) -> Option<&str> {
        self.before.as_ref().map(|before| before.state.as_str())
    }

    /// The state that it came into.
    pub fn after(&self) -> Option<&str> {
        self.after.as_ref().map(|after| after.state.as_str())
    }
}

/// A record as an audit line names it.
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
