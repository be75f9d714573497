//! The operators' switch: whether a provider's "not found" lets a retry run.

use super::AuditLine;
use crate::{record::Revision, time::Timestamp};

/// The name of the switch in the table, in audit lines and on the command line.
pub(crate) const NOT_FOUND_RELEASES: &str = "not-found-releases";

/// Whether "not found" releases, as an operator has switched it. A store in which it was never switched has none: then it is on.
///
/// It is off while a provider has an incident, and may not find what it did. It is kept in the table of records, under a key that no record
/// can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFoundSwitch {
    /// The id of the last write.
    pub revision: Revision,
    /// Whether "not found" counts as not executed.
    pub releases: bool,
    /// Who has switched it.
    pub who: String,
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
}

impl NotFoundSwitch {
    /// Its audit line, which is written with it.
    pub fn line(&self) -> AuditLine {
        let what = format!("{NOT_FOUND_RELEASES} {}", self.position());
        AuditLine::new([&self.who, &what, &self.reason], self.at, None, None)
    }

    /// `on` or `off`.
    pub const fn position(&self) -> &'static str {
        if self.releases { "on" } else { "off" }
    }
}
