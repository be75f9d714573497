//! A report that lies beside a record, for operators.

use crate::{
    message::DeferredReport,
    record::{AttemptId, BodyId, Note, State},
};

/// A report that lies beside a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportBeside {
    /// The id of its body item.
    pub id: BodyId,
    /// What it says; `None` if it is gone, or cannot be read.
    pub says: Option<ReportSummary>,
}

/// What a worker's report says.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[non_exhaustive]
pub struct ReportSummary {
    /// The execution whose worker reports.
    pub attempt: AttemptId,
    /// How it ended, such as `completed`; `None` if the report has the result of a phase.
    pub ended: Option<String>,
    /// Why it has no answer, if that is known.
    pub because: Option<Note>,
    /// The status of its answer, if that is an HTTP response.
    pub status: Option<u16>,
    /// The phase whose result it has.
    pub phase: Option<String>,
    /// How many domain writes it has. They are not made.
    pub rows: usize,
    /// All of it, as JSON: the answer too, and the domain writes.
    #[debug(skip)]
    pub whole: String,
}

impl ReportSummary {
    /// `None` if it cannot be read.
    pub(super) fn of(report: &DeferredReport) -> Option<Self> {
        let (worker, ended) = report.read().ok()?;
        let status = match &worker.state {
            State::Completed { answer, .. } => answer.head.status(),
            _ => None,
        };
        let last = worker.phases().and_then(|phases| phases.kept.last());
        Some(Self {
            attempt: worker.attempt,
            because: ended.as_ref().and_then(|ended| ended.because().cloned()),
            status,
            phase: last.filter(|_| ended.is_none()).map(|phase| phase.name.clone()),
            ended: ended.map(|ended| ended.name().to_owned()),
            rows: report.writes().len(),
            whole: serde_json::to_string(report).ok()?,
        })
    }
}
