//! What a handler wants to commit with its answer.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;

use super::BoxError;
use crate::{
    domain::{DomainWrite, DomainWriteError, Writes},
    record::AnswerKind,
};

/// Computes writes, and again if they come from a stale read.
pub(super) type Compute =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<DomainWrite>, BoxError>> + Send + Sync>;

/// What a handler wants to commit.
pub(super) struct Collected {
    writes: Writes,
    compute: Option<Compute>,
    records: Option<Arc<str>>,
    /// The kind of answer that the operation's callers read.
    answer_kind: AnswerKind,
    /// The first write that was refused when the handler added it. Then none commits, because the others are only a part of what
    /// the handler wants.
    failed: Option<DomainWriteError>,
    /// The handler has answered.
    closed: bool,
}

impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Collected").field(&self.writes).finish()
    }
}

impl Collected {
    /// Nothing yet. `records` is the table of records.
    pub(super) fn new(records: Option<&str>, answer_kind: AnswerKind) -> Self {
        let records = records.map(Arc::from);
        Self { writes: Writes::default(), compute: None, records, answer_kind, failed: None, closed: false }
    }

    pub(super) fn add(&mut self, write: DomainWrite) -> Result<(), DomainWriteError> {
        if self.closed {
            return Err(DomainWriteError::Ended);
        }
        let added = write.check_answer(self.answer_kind);
        added.and_then(|()| self.writes.add(write, self.records.as_deref())).inspect_err(|error| {
            self.failed.get_or_insert_with(|| error.clone());
        })
    }

    pub(super) fn compute(&mut self, compute: Compute) {
        if !self.closed {
            self.compute = Some(compute);
        }
    }

    /// The handler has answered.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// The writes so far, and how to compute the others. From then on, none can be added.
    ///
    /// # Errors
    /// If any was refused when the handler added it: then none commits.
    pub(super) fn parts(&mut self) -> Result<(Writes, Option<Compute>), DomainWriteError> {
        self.closed = true;
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok((self.writes.clone(), self.compute.clone())),
        }
    }

    /// The writes of a handler that computes no others.
    ///
    /// # Errors
    /// As [`parts`](Self::parts).
    pub(super) fn finish(&mut self) -> Result<Vec<DomainWrite>, DomainWriteError> {
        Ok(self.parts()?.0.into_vec())
    }
}
