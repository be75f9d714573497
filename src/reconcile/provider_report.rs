//! What a provider reports unprompted. [`Reported`] decides what that means for the current record.

use std::fmt;

use protocol::learned::Reported;
use serde::Serialize;

use super::Reconciler;
use crate::{
    json,
    key::KeyHash,
    message::{QueuedReport, ReportedEffect},
    record::{Note, phase_result},
    time::Timestamp,
};

/// The length in bytes of the longest id that is kept as it is. Of others a digest is.
const MAX_ID: usize = 64;

/// What a provider reports unprompted about one operation, by a webhook for example.
pub struct ProviderReport {
    /// Returns the answer, if there is an effect.
    pub(super) by: Option<Box<dyn Reconciler>>,
    pub(super) queued: QueuedReport,
}

impl fmt::Debug for ProviderReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderReport").field("report", &self.queued.effect).finish_non_exhaustive()
    }
}

impl ProviderReport {
    /// It was executed, and its client gets this status. `by` returns the whole answer if it is needed.
    ///
    /// A status outside 200 to 399 is a refusal, like [`not_executed`](Self::not_executed), and `by` is not asked.
    pub fn executed(status: u16, by: impl Reconciler) -> Self {
        Self { by: Some(Box::new(by)), queued: QueuedReport::of(ReportedEffect::Executed(status)) }
    }

    /// This phase of an operation that resumes was executed under this [downstream key](crate::engine::Execution::downstream_key).
    /// `result` is what the handler's call returns: the next execution that gets there uses it without a call.
    ///
    /// It proves that phase, and no more. A second report of it is absorbed, unless its result differs.
    pub fn phase_executed(phase: &str, downstream_key: &str, result: &impl Serialize) -> Self {
        let effect = QueuedReport::of(ReportedEffect::Executed(200));
        // A result that JSON cannot carry is asked about.
        let result = json::to_string(result).ok();
        Self { by: None, queued: QueuedReport { result, ..effect } }.under(phase, downstream_key)
    }

    /// It was not executed, and will not be. The operation's reconciler is asked before that counts, because the report may be
    /// about an earlier execution with the same downstream key.
    pub fn not_executed() -> Self {
        Self { by: None, queued: QueuedReport::of(ReportedEffect::NotExecuted) }
    }

    /// Adds the [downstream key](crate::engine::Execution::downstream_key) of this phase, under which the effect was
    /// requested. The metadata that leads to a record can often be set by anybody. The key proves that the report is about
    /// this request.
    #[must_use]
    pub fn under(mut self, phase: &str, downstream_key: &str) -> Self {
        self.queued.under = Some((phase.to_owned(), downstream_key.to_owned()));
        self
    }

    /// Adds when the effect was made, by the provider's clock. An effect that is older than its record belongs to an earlier
    /// generation of the key. An effect that is older than two weeks, and than its operation's retention, may have no record any
    /// more.
    #[must_use]
    pub fn made_at(mut self, at: Timestamp) -> Self {
        self.queued.made_at = Some(at.as_millis());
        self
    }

    /// Adds the provider's own id of the effect, such as `ch_1`. The first report of an effect names it in the record, which costs a write.
    /// From then on, another id is a second effect under one key, also of a completed record: an alarm.
    /// It counts only with the key that proves what the report is about: see [`under`](Self::under). Of an operation that resumes, the
    /// result of the phase tells two effects apart instead.
    #[must_use]
    pub fn effect_id(mut self, id: &str) -> Self {
        let is_short = (1..=MAX_ID).contains(&id.len()) && Note::new(id).as_str() == id;
        self.queued.id = match id {
            "" => None,
            id if is_short => Some(id.to_owned()),
            id => Some(format!("sha256:{}", KeyHash::of(id))),
        };
        self
    }
}

impl QueuedReport {
    /// This report, without a key or a time that proves what it is about.
    pub(super) const fn of(effect: ReportedEffect) -> Self {
        Self { effect, under: None, result: None, made_at: None, id: None }
    }

    /// What it reports, as data.
    pub(super) fn reported(&self) -> Reported<'_> {
        Reported {
            effect: self.effect.into(),
            under: self.under.as_ref().map(|(phase, key)| (&**phase, &**key)),
            result: self.result.clone().map(phase_result),
            made_at: self.made_at.map(Timestamp::from_millis),
            id: self.id.as_deref(),
        }
    }
}
