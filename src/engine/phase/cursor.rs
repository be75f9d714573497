//! How far a handler has got with its phases.

use std::{
    fmt,
    sync::{Arc, Mutex as Sync, MutexGuard, PoisonError},
};

use tokio::sync::Mutex;

use super::{CallError, Execution, PhaseError};
use crate::{
    engine::Executor,
    record::{Phase, Record, Reference},
    telemetry::Count,
};

/// What a phase needs of its execution.
pub(in crate::engine) struct Phasing {
    pub(super) executor: Executor,
    /// The record as this execution last wrote it.
    pub(super) record: Arc<Mutex<Record>>,
    cursor: Sync<Cursor>,
}

/// How many references a phase has at most: they stay in the record.
const MAX_REFERENCES: usize = 4;

/// How far the handler has got.
#[derive(Debug, Default)]
struct Cursor {
    /// The names of the phases that it has come to.
    names: Vec<String>,
    /// Whether one of them is open.
    open: bool,
    /// The references of the open phase.
    references: Vec<Reference>,
    /// Why the execution cannot end as the handler says.
    failed: Option<Failed>,
    /// Whether the handler has answered.
    ended: bool,
}

/// Why an execution cannot end as its handler says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// A phase failed outside a call, or its call was certainly not made.
    Outside,
    /// A call was perhaps made.
    InCall,
    /// A call was perhaps made, and nobody can say.
    Unknown,
}

impl fmt::Debug for Phasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cursor.fmt(f)
    }
}

impl Phasing {
    pub(in crate::engine) fn new(executor: Executor, record: Arc<Mutex<Record>>) -> Self {
        Self { executor, record, cursor: Sync::default() }
    }

    fn cursor(&self) -> MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handler has answered. Returns why its answer does not count, if it does not.
    pub(in crate::engine) fn end(&self) -> Option<Failed> {
        let mut cursor = self.cursor();
        cursor.ended = true;
        // A call that still runs, in another task.
        cursor.failed.or(cursor.open.then_some(Failed::InCall))
    }
}

/// A phase that the handler has come to. Dropping it without a result means that its call was perhaps made.
pub(super) struct Opened<'a> {
    pub(super) execution: &'a Execution,
    pub(super) phasing: &'a Phasing,
    pub(super) name: &'a str,
    pub(super) place: usize,
    /// Whether it was certainly made, though its result is not in the record.
    pub(super) is_known: bool,
    /// What dropping it means.
    dropped: Option<Failed>,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        let mut cursor = self.phasing.cursor();
        cursor.open = false;
        cursor.failed = cursor.failed.or(self.dropped);
    }
}

impl Phasing {
    /// The open phase names this reference when it is kept.
    pub(super) fn refer(&self, reference: Reference) -> Result<(), PhaseError> {
        let mut cursor = self.cursor();
        if !cursor.open {
            return Err(PhaseError::Misused("a reference is for the call of a phase"));
        }
        if cursor.references.len() >= MAX_REFERENCES {
            return Err(PhaseError::Misused("a phase has at most four references"));
        }
        cursor.references.push(reference);
        Ok(())
    }

    /// The references of the phase that is kept.
    pub(super) fn references(&self) -> Vec<Reference> {
        std::mem::take(&mut self.cursor().references)
    }
}

impl<'a> Opened<'a> {
    pub(super) fn begin(execution: &'a Execution, name: &'a str) -> Result<Self, PhaseError> {
        let wrong = |advice| {
            tracing::error!(phase = name, advice, "a phase is used wrongly");
            PhaseError::Misused(advice)
        };
        let phasing = execution
            .phasing()
            .ok_or_else(|| wrong("the operation does not resume: set OnLeaseExpiry::Resume"))?;
        let mut cursor = phasing.cursor();
        let misused = if cursor.ended {
            Some("the handler has answered")
        } else if cursor.open {
            Some("another phase is open")
        } else if cursor.failed.is_some() {
            Some("an earlier phase has failed, and its error is final")
        } else if !Phase::is_name(name) {
            Some("a phase's name is 1 to 64 letters, digits, `-`, `_` or `.`")
        } else if cursor.names.iter().any(|other| other == name) {
            Some("two phases have one name")
        } else {
            None
        };
        if let Some(advice) = misused {
            cursor.failed.get_or_insert(Failed::Outside);
            return Err(wrong(advice));
        }
        let place = cursor.names.len();
        cursor.names.push(name.to_owned());
        cursor.open = true;
        drop(cursor);
        Ok(Self { execution, phasing, name, place, is_known: false, dropped: Some(Failed::Outside) })
    }

    pub(super) fn records_table(&self) -> Option<&str> {
        self.phasing.executor.engine.store.records_table()
    }

    /// The call begins, or may have begun.
    pub(super) fn calls(&mut self) {
        self.dropped = Some(Failed::InCall);
    }

    /// The phase has a result, and the handler goes on.
    pub(super) fn done(mut self) {
        self.dropped = None;
    }

    /// The phase failed outside its call.
    pub(super) fn failed(&mut self, error: impl Into<PhaseError>) -> PhaseError {
        self.dropped = Some(Failed::Outside);
        error.into()
    }

    /// The outcome of the call is unknown.
    pub(super) fn unknown(&mut self) -> PhaseError {
        tracing::error!(
            phase = self.name,
            "a call was perhaps made, and nobody can say: the outcome is unknown"
        );
        self.dropped = Some(Failed::Unknown);
        PhaseError::Unknown
    }

    /// The call ended without a result.
    pub(super) fn ended(&mut self, error: CallError) -> PhaseError {
        match error {
            CallError::NotExecuted(source) => self.failed(PhaseError::NotExecuted(source)),
            CallError::Perhaps(source) => PhaseError::Perhaps(source),
        }
    }

    /// The record does not fit this version of the handler.
    pub(super) fn misfit(&mut self, error: PhaseError) -> PhaseError {
        tracing::error!(phase = self.name, %error, "a kept phase does not fit the handler: was the handler changed?");
        Count::PhaseMismatch.add(self.execution.operation());
        self.failed(error)
    }
}
