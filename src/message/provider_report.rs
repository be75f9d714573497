//! What a provider reports unprompted. It waits in a queue while a worker has the record.

use serde::{Deserialize, Serialize};

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
}

/// What is reported about the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReportedEffect {
    /// It was executed; its client gets this status.
    Executed(u16),
    /// It was not executed.
    NotExecuted,
}
