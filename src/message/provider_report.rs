//! What a provider reports unprompted. It waits in a queue while a worker has the record.

use serde::{Deserialize, Serialize};

use crate::record::Verdict;

/// What was reported. The answer is not part of it: the reconciler has that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueuedReport {
    /// What became of the effect.
    pub(crate) effect: ReportedEffect,
    /// The phase, and the downstream key that it sent to the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) under: Option<(String, String)>,
    /// What the phase's call returned, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<String>,
    /// In milliseconds since 1970, by the provider's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) made_at: Option<u64>,
    /// The provider's own id of the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
}

/// What is reported about the effect: the form of a [`Verdict`] in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReportedEffect {
    /// It was executed; its client gets this status.
    Executed(u16),
    /// It was not executed.
    NotExecuted,
}

impl From<ReportedEffect> for Verdict<u16> {
    fn from(effect: ReportedEffect) -> Self {
        match effect {
            ReportedEffect::Executed(status) => Self::Executed(status),
            ReportedEffect::NotExecuted => Self::NotExecuted,
        }
    }
}

impl From<Verdict<u16>> for ReportedEffect {
    fn from(verdict: Verdict<u16>) -> Self {
        match verdict {
            Verdict::Executed(status) => Self::Executed(status),
            Verdict::NotExecuted => Self::NotExecuted,
        }
    }
}
