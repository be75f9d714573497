//! How an execution ended, as its worker reports it, and what became of that report.

use std::sync::Arc;

use super::reserve::Replay;
use crate::{
    domain::DomainWrite,
    record::{
        Answer, FencedError, KeptAnswer, Note, Record, Revision, SettledBy, State, UnknownCause, Worker,
    },
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
    /// Something may have been done.
    PerhapsExecuted(UnknownCause),
}

impl Report {
    /// Its name in logs.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::NotExecuted => "not_executed",
            Self::NotBegun => "not_begun",
            Self::PerhapsExecuted(_) => "perhaps_executed",
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
    /// The execution did nothing or was refused, but another execution or the provider contradicts that. The outcome is unknown
    /// until reconciliation has asked. The handler's answer may be wrong.
    Unknown,
    /// Another execution owns the record, or the record's answer cannot be read now: a retry gets it. The handler's answer would
    /// be a second one.
    AnsweredElsewhere,
    /// The record is settled without an answer, so that a retry runs; or it is another request's. The handler's answer is the
    /// best available.
    Fenced,
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
            Self::Written { .. } => report,
            Self::Refused { .. } => "refused",
            Self::Superseded(_) => "superseded",
            Self::Unknown => "unknown",
            Self::AnsweredElsewhere => "answered_elsewhere",
            Self::Fenced => "fenced",
            Self::NotCommitted => "not_committed",
            Self::Deferred => "deferred",
            Self::Unwritten => "unwritten",
        }
    }
}

/// A report whose body has been stored.
#[derive(Clone)]
pub(super) enum Kept {
    /// With the domain writes that commit with it.
    Completed(KeptAnswer, Arc<[DomainWrite]>),
    /// A note for the record, if the reason is known.
    NotExecuted(Option<Note>),
    NotBegun,
    /// A note for the record, if more than the cause is known.
    PerhapsExecuted(UnknownCause, Option<Note>),
}

impl Kept {
    /// Whether it reports that nothing was done.
    pub(super) const fn did_nothing(&self) -> bool {
        matches!(self, Self::NotExecuted(_) | Self::NotBegun)
    }

    /// Whether its worker knows what it did.
    pub(super) const fn is_certain(&self) -> bool {
        !matches!(self, Self::PerhapsExecuted(..))
    }

    pub(super) fn reports_an_effect(&self) -> bool {
        matches!(self, Self::Completed(answer, _) if answer.head.is_effect())
    }

    /// The domain writes that commit with it.
    pub(super) fn writes(&self) -> &[DomainWrite] {
        match self {
            Self::Completed(_, writes) => writes,
            _ => &[],
        }
    }

    /// Whether its domain writes may still be refused: its answer is true only once they are committed.
    pub(super) fn can_be_refused(&self) -> bool {
        self.writes().iter().any(DomainWrite::can_be_refused)
    }

    /// Whether its domain writes can never commit, because this record is of another generation of the key.
    pub(super) fn belongs_to_earlier_generation(&self, base: &Record, current: &Record) -> bool {
        !self.writes().is_empty() && current.created_at != base.created_at
    }

    /// Whether the record denies this report of `base`: it was completed without an effect that is reported, or without the
    /// report's domain writes. A record that the same worker completed denies nothing: its writes were refused, and it has the
    /// answer for that.
    pub(super) fn is_denied_by(&self, base: &Record, current: &Record) -> bool {
        let State::Completed { answer, by, .. } = &current.state else { return false };
        if *by == SettledBy::Worker && current.attempt == base.attempt {
            return false;
        }
        let without_its_writes = !self.writes().is_empty() && !current.with_writes;
        without_its_writes || (self.reports_an_effect() && !answer.head.is_effect())
    }

    /// The record that this report turns `seen` into.
    pub(super) fn of(
        &self,
        seen: &Record,
        worker: Worker,
        revision: Revision,
        now: Timestamp,
    ) -> Result<Record, FencedError> {
        match self {
            Self::Completed(answer, _) => seen.complete(worker, revision, answer.clone(), now),
            Self::NotExecuted(because) => {
                Ok(seen.release(worker.attempt, revision, now)?.failed(because.clone()))
            }
            Self::NotBegun => seen.not_begun(worker.attempt, revision, now),
            Self::PerhapsExecuted(cause, because) => {
                Ok(seen.mark_unknown(worker, revision, *cause, now)?.failed(because.clone()))
            }
        }
    }
}

/// What became of the write.
pub(super) enum Finished {
    /// It was applied; this is the record.
    Written(Box<Record>),
    /// This record has moved on without the execution.
    Refused(Box<Record>, FencedError),
    /// The record has been gone for so long that it may have been settled and deleted since. Or the report has domain writes, which
    /// an operator or a restore may have undone together with the record.
    Gone,
    /// The conditions of the domain writes at these places failed. The record is as it was.
    Denied(Vec<usize>),
}

/// Whether it has been escalated that another execution certainly or possibly ran the operation too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Escalation {
    Done,
    /// Nothing that the other execution left is overwritten: its trace would be lost.
    NotYet,
}

/// Whether two records may be of one request. Fingerprints by different rules cannot be compared.
pub(super) fn is_same_request(a: &Record, b: &Record) -> bool {
    a.fingerprint == b.fingerprint || a.fingerprint.rule() != b.fingerprint.rule()
}
