//! A contradiction between the record and what a provider or a worker reports, for operators.

use serde::{Deserialize, Serialize};

use super::{DeferredReport, ReportedEffect};
use crate::{key::RecordKey, record::Record};

/// What a provider or a worker reports, and the record that contradicts it.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Contradiction {
    /// The record's partition key, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// What is wrong.
    pub(crate) reason: String,
    /// What the provider reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reported: Option<ReportedEffect>,
    /// The provider's own id of the effect, if it reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) effect_id: Option<String>,
    /// The key that was passed to the provider, by which the effect is found there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) downstream_key: Option<String>,
    /// The kind of the record's alarm, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) alarm: Option<String>,
    /// What a worker reports, if that contradicts the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<Box<DeferredReport>>,
    /// The record's state; `None` if there is no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    /// The execution that owned the record last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<String>,
}

impl Contradiction {
    /// A contradiction with this record; `None` if there is no record.
    pub(crate) fn about(key: &RecordKey, current: Option<&Record>, reason: &str) -> Self {
        Self {
            key: Some(key.partition_key()),
            reason: reason.to_owned(),
            state: current.map(|current| current.state.name().to_owned()),
            attempt: current.map(|current| current.attempt.to_string()),
            ..Self::default()
        }
    }
}
