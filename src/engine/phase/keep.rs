//! Keeps the results of phases, or finds them kept.

use std::{any::type_name, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::MutexGuard;

use super::{error::PhaseError, opened::Opened};
use crate::{
    domain::DomainWrite,
    engine::{Start, Unapplied, keeping::phase_report},
    json::{self, JsonError},
    record::{Counts, Keeping, Kept, Made, Next, Phase, Record, phase_of},
    time_budget::TimeBudget,
};

/// What became of the domain writes of [`Execution::commit`](crate::Execution::commit).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// They are committed.
    Written,
    /// The conditions of the writes at these places did not hold, and none is committed. That is kept: every later execution gets
    /// the same refusal.
    Refused(Vec<usize>),
}

impl Committed {
    /// As its record keeps it: the places of the writes that were refused.
    pub(super) fn of(refused: Vec<usize>) -> Self {
        if refused.is_empty() { Self::Written } else { Self::Refused(refused) }
    }
}

/// What the handler does next.
pub(super) enum Step {
    /// The result is kept: this.
    Kept(String),
    /// Others report this result.
    Noted(String),
    /// Make the call.
    Call,
    /// Ask.
    Ask {
        /// Whether it was certainly made.
        made: bool,
    },
}

/// Why it is not known where a result stands.
enum Unkept {
    /// The writes at these places were refused.
    Denied(Vec<usize>),
    /// The store does not answer.
    Unwritten,
}

impl Opened<'_> {
    /// What the handler does about this phase.
    pub(super) async fn next(&mut self, keys_live: Duration) -> Result<Step, PhaseError> {
        let now = self.phasing.executor.engine.world.now();
        let record = self.phasing.record.lock().await;
        let Some(phases) = record.phases() else { return Err(self.failed(PhaseError::Lost)) };
        self.step(phases.next(self.place, self.name, keys_live, now))
    }

    /// The same, if the result that others report cannot be read.
    pub(super) async fn next_unread(&mut self, keys_live: Duration) -> Result<Step, PhaseError> {
        tracing::error!(
            phase = self.name,
            "what others report of a phase is not the JSON of its type: it is not used"
        );
        let now = self.phasing.executor.engine.world.now();
        let record = self.phasing.record.lock().await;
        let Some(phases) = record.phases() else { return Err(self.failed(PhaseError::Lost)) };
        self.step(phases.next_unread(self.place, true, keys_live, now))
    }

    /// Whether it is kept, with or without its result.
    pub(super) async fn is_kept(&self) -> bool {
        let record = self.phasing.record.lock().await;
        record.kept_phase(self.place).is_some()
    }

    fn step(&mut self, next: Next<'_>) -> Result<Step, PhaseError> {
        Ok(match next {
            Next::Kept(result) => Step::Kept(result.to_owned()),
            Next::Noted(result) => Step::Noted(result.to_owned()),
            Next::Call => {
                self.begin_call()?;
                Step::Call
            }
            Next::Ask { made } => {
                self.calls();
                Step::Ask { made }
            }
            Next::Mismatch => return Err(self.misfit(PhaseError::Mismatch)),
        })
    }

    /// Checks the time once more: if the process was frozen, others may run (T39).
    pub(super) fn begin_call(&mut self) -> Result<(), PhaseError> {
        if self.execution.is_lost() {
            tracing::warn!(phase = self.name, "it is too late for the call of a phase: it is not made");
            return Err(self.failed(PhaseError::Lost));
        }
        self.calls();
        Ok(())
    }

    /// The kept result, as its type.
    pub(super) fn read<T: DeserializeOwned>(mut self, result: &str) -> Result<T, PhaseError> {
        let value = serde_json::from_str(result).map_err(|error| self.misfit(PhaseError::Format(error)))?;
        self.done();
        Ok(value)
    }

    /// Keeps the result of the call, and returns what an execution that resumes reads from it.
    pub(super) async fn keep<T: Serialize + DeserializeOwned>(mut self, value: T) -> Result<T, PhaseError> {
        let (result, read) = match json::round_trip(&value) {
            Ok((result, read)) => (Some(result), Ok(read)),
            Err(why) => (None, Err(self.unkept(type_name::<T>(), why))),
        };
        drop(value);
        let record = self.phasing.record.lock().await;
        let of = match record.kept_phase(self.place) {
            // It was kept without its result, which the handler has now.
            Some(_) => Made::Question,
            None => Made::Call,
        };
        let kept = self.write(record, result, (of, &[])).await;
        self.after(kept)?;
        // If it cannot be read, it was made and is kept nevertheless: no call is open.
        let read = read.map_err(|error| self.failed(error))?;
        self.done();
        Ok(read)
    }

    /// JSON cannot carry the result of the call.
    fn unkept(&self, type_name: &'static str, why: JsonError) -> PhaseError {
        let phase = self.name;
        tracing::error!(phase, result_type = type_name, %why, "JSON cannot carry the result of a phase: it is not kept");
        PhaseError::ResultNotKept { type_name, why }
    }

    /// Commits these writes with the recovery point. If they are refused, that is kept.
    pub(super) async fn commit(mut self, writes: Vec<DomainWrite>) -> Result<Committed, PhaseError> {
        let places = |refused: &[usize]| serde_json::to_string(refused).map_err(PhaseError::Format);
        self.begin_call()?;
        let record = self.phasing.record.lock().await;
        let committed = match self.write(record, Some(places(&[])?), (Made::Commit, &writes)).await {
            Err(Unkept::Denied(refused)) => {
                // Over the same revision: this write is applied, or a late try of the transaction.
                let record = self.phasing.record.lock().await;
                let kept = self.write(record, Some(places(&refused)?), (Made::Commit, &[])).await;
                self.after(kept)?;
                Committed::Refused(refused)
            }
            kept => {
                self.after(kept)?;
                Committed::Written
            }
        };
        self.done();
        Ok(committed)
    }

    fn after(&mut self, kept: Result<Kept, Unkept>) -> Result<(), PhaseError> {
        Err(match kept {
            Ok(Kept::Own) => return Ok(()),
            // Nothing is left to tell: the record has the result, or has gone on without it.
            Ok(Kept::Lost) => self.failed(PhaseError::Lost),
            // It was made, and no record has it.
            Ok(Kept::Left | Kept::Alarmed) => PhaseError::Lost,
            Err(_) => PhaseError::NotKept,
        })
    }

    /// Writes the result into the record, as long as there is time. That of a call is deferred if it cannot be written.
    async fn write(
        &self,
        mut record: MutexGuard<'_, Record>,
        result: Option<String>,
        (of, writes): (Made, &[DomainWrite]),
    ) -> Result<Kept, Unkept> {
        let executor = &self.phasing.executor;
        let (engine, operation) = (&executor.engine, executor.operation());
        let phase = phase_of(self.name.to_owned(), result, engine.world.now());
        let phase = Phase { references: self.phasing.references(), ..phase };
        let keeping = Keeping { worker: record.clone(), place: self.place, phase, of };
        let started = engine.world.instant();
        let budget = TimeBudget::at(started, self.execution.ends_at());
        let time = budget.write(operation.completion_timeout, executor.deferred_reports.is_some());
        let (start, until) = (Start::Seen(Box::new(record.clone())), started.plus(time));
        let report = || phase_report(&keeping);
        let kept = engine.keeps(&keeping, start, until, (writes, &report), Keeping::step).await;
        let kept = match kept {
            // Only its own: what this execution ends by must never be another one's.
            Ok((Kept::Own, Some(current))) => {
                *record = *current;
                return Ok(Kept::Own);
            }
            Ok((kept, _)) => Ok(kept),
            Err(Unapplied { denied, .. }) if !denied.is_empty() => return Err(Unkept::Denied(denied)),
            Err(_) => Err(Unkept::Unwritten),
        };
        match kept {
            // What was asked for can be asked for again. A message would be about the last phase that is kept.
            Ok(Kept::Left) if of == Made::Call => {
                executor.defer_phase(self.execution, report(), Counts::ContradictionUnsent).await;
            }
            Err(Unkept::Unwritten) if of == Made::Call => {
                executor.defer_phase(self.execution, report(), Counts::Unwritten).await;
            }
            Err(Unkept::Unwritten) if of == Made::Question => executor.counts(Counts::Unwritten),
            Ok(Kept::Lost) => self.execution.lose(),
            _ => {}
        }
        kept
    }
}
