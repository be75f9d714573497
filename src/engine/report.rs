//! How an execution ended, as its worker reports it, and what became of that report.

use std::sync::Arc;

use super::reserve::Replay;
use crate::{
    domain::DomainWrite,
    record::{Answer, Ended, Record},
    time::Timestamp,
};

/// How an execution ended.
#[derive(Clone, Debug)]
pub enum Report {
    /// The effect and its answer are known.
    Completed(Answer),
    /// Certainly nothing was done: the request may be retried.
    NotExecuted,
    /// The request was refused before anything was done: its key is free for any request.
    NotBegun,
    /// It ended within a phase's call, which was perhaps made: a retry resumes.
    Interrupted,
    /// A phase's call was perhaps made, and the provider cannot be asked.
    Unknown,
    /// Something may have been done, for this reason.
    PerhapsExecuted(&'static str),
    /// There was an effect, and its domain writes are not committed.
    Uncommitted,
}

impl Report {
    /// Its name in logs.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::NotExecuted => "not_executed",
            Self::NotBegun => "not_begun",
            Self::Interrupted => "interrupted",
            Self::Unknown => "unknown",
            Self::PerhapsExecuted(_) => "perhaps_executed",
            Self::Uncommitted => "uncommitted",
        }
    }
}

/// What became of the write of a report.
#[derive(Debug)]
#[non_exhaustive]
pub enum FinishOutcome {
    /// It is written.
    Written {
        /// Until when the answer is kept, if there is one.
        expires_at: Option<Timestamp>,
    },
    /// It is written: certainly nothing was done, and a retry runs. The handler's answer, if there is one, is about this execution alone.
    Released,
    /// A domain write was refused: the operation is completed with the answer that the write has for that. The caller gets it
    /// instead of the handler's.
    Refused {
        /// The answer.
        answer: Answer,
        /// Until when it is kept.
        expires_at: Option<Timestamp>,
    },
    /// The record was completed before, by another execution or by reconciliation: every caller gets this answer.
    Superseded(Replay),
    /// Another execution, or the provider, contradicts this one, or has left the outcome unknown. It is unknown until
    /// reconciliation has found out. The handler's answer may be wrong.
    Unknown,
    /// Another execution owns the record, or the record's answer cannot be read now: a retry gets it. The handler's answer would
    /// be a second one.
    AnsweredElsewhere,
    /// The record is settled without an answer, so that a retry runs; or it is another request's. The handler's answer is the
    /// best available.
    Fenced,
    /// A retry resumes it behind what is kept. The handler's answer does not count.
    Interrupted,
    /// Nothing is committed, and certainly nothing was done: a retry may run.
    NotCommitted,
    /// The report could not be written, and went to the queue of deferred reports, from which it is applied.
    Deferred,
    /// The report could be neither written nor deferred. A record still in progress becomes `unknown` when its lease has expired.
    Unwritten,
}

impl FinishOutcome {
    /// Its name in logs: that of the report, if it was written.
    pub(super) const fn name(&self, report: &'static str) -> &'static str {
        match self {
            Self::Written { .. } | Self::Released => report,
            Self::Refused { .. } => "refused",
            Self::Superseded(_) => "superseded",
            Self::Unknown => "unknown",
            Self::AnsweredElsewhere => "answered_elsewhere",
            Self::Fenced => "fenced",
            Self::Interrupted => "interrupted",
            Self::NotCommitted => "not_committed",
            Self::Deferred => "deferred",
            Self::Unwritten => "unwritten",
        }
    }
}

/// A report whose body has been stored.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) ended: Ended,
    /// The domain writes that commit with it, if it is completed.
    pub(super) writes: Arc<[DomainWrite]>,
}

impl From<Ended> for Kept {
    fn from(ended: Ended) -> Self {
        Self { ended, writes: Arc::default() }
    }
}

impl Kept {
    /// Whether its domain writes may still be refused: its answer is true only once they are committed.
    pub(super) fn can_be_refused(&self) -> bool {
        self.writes.iter().any(DomainWrite::can_be_refused)
    }
}

/// What became of the write.
pub(super) enum Finished {
    /// It was applied; this is the record.
    Written(Box<Record>),
    /// This record has moved on without the execution.
    Refused(Box<Record>),
    /// There is no record that could take it: see [`Fate::Gone`](crate::record::Fate::Gone).
    Gone,
    /// The conditions of the domain writes at these places failed. The record is as it was.
    Denied(Vec<usize>),
}
