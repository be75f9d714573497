//! A phase that the handler has come to.

use super::error::{CallError, PhaseError};
use crate::{
    engine::{
        execution::Execution,
        phasing::{Failed, Phasing},
    },
    telemetry::Count,
};

/// A phase that the handler has come to. Dropping it without a result is final for the execution.
pub(super) struct Opened<'a> {
    pub(super) execution: &'a Execution,
    pub(super) phasing: &'a Phasing,
    pub(super) name: &'a str,
    pub(super) place: usize,
    /// What dropping it means.
    dropped: Option<Failed>,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.phasing.leave(self.dropped);
    }
}

impl<'a> Opened<'a> {
    pub(super) fn begin(execution: &'a Execution, name: &'a str) -> Result<Self, PhaseError> {
        let phasing = execution.phasing().ok_or("the operation does not resume: set Operation::resumes");
        let entered = phasing.and_then(|phasing| Ok((phasing, phasing.enter(name)?)));
        let (phasing, place) = entered.map_err(|advice| {
            tracing::error!(phase = name, advice, "a phase is used wrongly");
            PhaseError::Misused(advice)
        })?;
        Ok(Self { execution, phasing, name, place, dropped: Some(Failed::Outside) })
    }

    pub(super) fn records_table(&self) -> Option<&str> {
        self.phasing.executor.engine.store.records_table()
    }

    /// The call begins, or may have begun.
    pub(super) fn calls(&mut self) {
        self.dropped = Some(Failed::InCall);
    }

    /// The call was made, and its result is asked for: no call of this execution is open.
    pub(super) fn asks(&mut self) {
        self.dropped = Some(Failed::Outside);
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
            "a call was perhaps made, and the provider cannot be asked: the outcome is unknown"
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
