//! How far a handler has got with its phases.

use std::{
    fmt,
    sync::{Arc, Mutex as Sync, MutexGuard, PoisonError},
};

use tokio::sync::Mutex;

use super::Executor;
use crate::record::{Record, Reference};

/// How many references a phase has at most: they stay in the record.
const MAX_REFERENCES: usize = 4;

/// What phases need of their execution.
pub(super) struct Phasing {
    pub(super) executor: Executor,
    /// The record as this execution last wrote it.
    pub(super) record: Arc<Mutex<Record>>,
    cursor: Sync<Cursor>,
}

/// How far the handler has got.
#[derive(Debug, Default)]
struct Cursor {
    /// To how many phases it has come.
    came_to: usize,
    /// The place of the last of them in the order that the operation declares.
    declared: Option<usize>,
    /// Whether one of them is open.
    open: bool,
    /// The references of the open phase.
    references: Vec<Reference>,
    /// Why the execution cannot end as the handler says.
    failed: Option<Failed>,
    /// Whether the handler has answered.
    ended: bool,
}

/// Why an execution cannot end as its handler says. The worst counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Failed {
    /// A phase failed outside a call, or its call was certainly not made.
    Outside,
    /// A call was perhaps made.
    InCall,
    /// A call was perhaps made, and the provider cannot be asked.
    Unknown,
}

impl fmt::Debug for Phasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cursor.fmt(f)
    }
}

impl Phasing {
    pub(super) fn new(executor: Executor, record: Arc<Mutex<Record>>) -> Self {
        Self { executor, record, cursor: Sync::default() }
    }

    fn cursor(&self) -> MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handler has come to the phase of this name. Returns its place.
    ///
    /// # Errors
    /// If phases are used wrongly. That is final.
    pub(super) fn enter(&self, name: &str) -> Result<usize, &'static str> {
        let declared = self.executor.operation().place_of(name);
        let mut cursor = self.cursor();
        let misused = if cursor.ended {
            Some("the handler has answered")
        } else if cursor.open {
            Some("another phase is open")
        } else if cursor.failed.is_some() {
            Some("an earlier phase has failed, and its error is final")
        } else if declared.is_none() {
            Some("Operation::resumes() does not declare this phase")
        } else if declared <= cursor.declared {
            Some("a handler comes to its phases once, in the order of Operation::resumes()")
        } else {
            None
        };
        if let Some(advice) = misused {
            cursor.failed = cursor.failed.max(Some(Failed::Outside));
            return Err(advice);
        }
        cursor.open = true;
        cursor.declared = declared;
        cursor.came_to += 1;
        Ok(cursor.came_to - 1)
    }

    /// The open phase is over: with a result, or for this reason without one.
    pub(super) fn leave(&self, failed: Option<Failed>) {
        let mut cursor = self.cursor();
        cursor.open = false;
        cursor.failed = cursor.failed.max(failed);
    }

    /// The open phase names this reference when it is kept.
    ///
    /// # Errors
    /// If no phase is open, or it has too many.
    pub(super) fn refer(&self, reference: Reference) -> Result<(), &'static str> {
        let mut cursor = self.cursor();
        if !cursor.open {
            return Err("a reference is for the call of a phase");
        }
        if cursor.references.len() >= MAX_REFERENCES {
            return Err("a phase has at most four references");
        }
        cursor.references.push(reference);
        Ok(())
    }

    /// The references of the phase that is kept.
    pub(super) fn references(&self) -> Vec<Reference> {
        std::mem::take(&mut self.cursor().references)
    }

    /// The handler has answered. Returns to how many phases it came, and why its answer does not count, if it does not.
    pub(super) fn end(&self) -> (usize, Option<Failed>) {
        let mut cursor = self.cursor();
        cursor.ended = true;
        // A call that still runs, in another task.
        (cursor.came_to, cursor.failed.max(cursor.open.then_some(Failed::InCall)))
    }

    /// Why the answer of a handler that came to so many phases does not count: it has not come to what this record knows of
    /// earlier executions.
    pub(super) fn not_answered(seen: &Record, came_to: usize) -> Option<Failed> {
        let phases = seen.phases()?;
        if came_to < phases.kept.len() {
            tracing::error!(
                "a handler answered before it came to the phases that are kept: its answer is not kept"
            );
            return Some(Failed::Outside);
        }
        // An earlier execution may have made its first call, and this one decides nothing about it.
        (came_to == 0 && phases.begun.is_some()).then_some(Failed::Unknown)
    }
}
