//! Keeps the results of phases, or finds them kept.

use std::{any::type_name, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::MutexGuard;

use super::{error::PhaseError, opened::Opened};
use crate::{
    domain::DomainWrite,
    engine::{
        Applied, Effort, Moment, Retries, Start, Step as Write, Unapplied,
        commit::with_writes,
        deferred_report::{beside, phase_report},
    },
    json::{self, JsonError},
    record::{AlarmKind, BodyId, Next, NotTaken, Phase, Record, phase_of},
    telemetry::Count,
    time_budget::{TimeBudget, WRITE_BACKOFF},
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

/// What became of the write of a result.
enum Kept {
    /// It is in the record, which is this execution's.
    Own,
    /// Another execution has the record, or it is settled.
    Lost,
    /// As lost, and the record has not taken the result.
    Left,
    /// As left, and an alarm of the record says so.
    Alarmed,
    /// The writes at these places were refused.
    Denied(Vec<usize>),
    /// That is not known.
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
        let kept = self.write(record, result, None).await;
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
        let committed = match self.write(record, Some(places(&[])?), Some(&writes)).await {
            Kept::Denied(refused) => {
                // Over the same revision: this write is applied, or a late try of the transaction.
                let record = self.phasing.record.lock().await;
                let kept = self.write(record, Some(places(&refused)?), Some(&[])).await;
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

    fn after(&mut self, kept: Kept) -> Result<(), PhaseError> {
        Err(match kept {
            Kept::Own => return Ok(()),
            // Nothing is left to tell: the record has the result, or has gone on without it.
            Kept::Lost => self.failed(PhaseError::Lost),
            // It was made, and no record has it.
            Kept::Left | Kept::Alarmed => PhaseError::Lost,
            Kept::Unwritten | Kept::Denied(_) => PhaseError::NotKept,
        })
    }

    /// Writes the result into the record, as long as there is time. That of a call counts even if another execution has the record,
    /// and is deferred if it cannot be written. That of a commit, which comes `with` its writes, needs the record: otherwise it is
    /// decided when the next execution gets there.
    async fn write(
        &self,
        mut record: MutexGuard<'_, Record>,
        result: Option<String>,
        with: Option<&[DomainWrite]>,
    ) -> Kept {
        let executor = &self.phasing.executor;
        let (engine, operation) = (&executor.engine, executor.operation());
        let (worker, place, is_call) = (record.clone(), self.place, with.is_none());
        let with = with.unwrap_or_default();
        let references = self.phasing.references();
        let phase = phase_of(self.name.to_owned(), result, engine.world.now());
        let phase = Phase { references, ..phase };
        let started = engine.world.instant();
        let budget = TimeBudget::at(started, self.execution.ends_at());
        let time = budget.write(operation.completion_timeout, executor.deferred_reports.is_some());
        let own = |current: &Record| current.is_run_by(&worker);
        // It was kept without its result, which the handler has now.
        let has_asked = worker.kept_phase(place).is_some();
        // What was asked for is no call that only this execution knows of: who has the record asks itself.
        let left = || if has_asked { Kept::Lost } else { Kept::Left };
        // A message would be about the last phase that is kept.
        let is_reported = is_call && !has_asked;
        let report = || phase_report(&worker, place, &phase);
        let id = is_reported.then(|| BodyId::of_report(worker.attempt, Some(place)));
        let alarm = |current: &Record, revision, now| {
            let because = format!("{}: it is not that of the record", said(&phase));
            let current = Some(current).filter(|current| worker.is_same_request(current))?;
            let alarm = current.alarm(AlarmKind::ForgottenPhase, &because, id, revision, now)?;
            Some(match id {
                Some(id) => beside(alarm, id, report(), now),
                None => alarm.into(),
            })
        };
        let step = |current: Option<&Record>, Moment { revision, now }: Moment| {
            let Some(current) = current else { return Write::Stop(left()) };
            if !is_call && !own(current) {
                return Write::Stop(Kept::Lost);
            }
            // Another version of the handler made a call of it, and its rows are not to be committed.
            if !is_call && current.kept_phase(place).is_some_and(|kept| kept.result.is_none()) {
                return Write::Stop(Kept::Left);
            }
            let next = current.keep(&worker, place, &phase, revision, now).map(|next| {
                match current.noted_otherwise(&phase) {
                    Some(noted) => {
                        let because = format!("{}: its handler has another result", said(noted));
                        next.raises(AlarmKind::ForgottenPhase, &because, None, now)
                    }
                    None => next,
                }
            });
            match next {
                Ok(next) if own(current) => Write::Write(with_writes(next, with, now), Kept::Own),
                Ok(next) => Write::Write(next.into(), Kept::Lost),
                // Another write of ours whose answer was lost, or a report of the provider.
                Err(NotTaken::Known) if own(current) => Write::Stop(Kept::Own),
                Err(NotTaken::Known) => Write::Stop(Kept::Lost),
                Err(NotTaken::Differs) if !is_call => Write::Stop(Kept::Left),
                Err(NotTaken::Differs) if has_asked && !own(current) => Write::Stop(Kept::Lost),
                Err(NotTaken::Differs) => match alarm(current, revision, now) {
                    Some(alarm) => Write::Write(alarm, Kept::Alarmed),
                    None => Write::Stop(left()),
                },
            }
        };
        let effort =
            Effort { until: Some(started.plus(time)), backoff: WRITE_BACKOFF, retries: Retries::All };
        let applied = engine.apply(Start::Seen(Box::new(worker.clone())), effort, step).await;
        let kept = match applied {
            // Only its own: what this execution ends by must never be another one's.
            Ok(Applied::Written(Kept::Own, current) | Applied::Stopped(Kept::Own, Some(current))) => {
                *record = *current;
                Kept::Own
            }
            Ok(Applied::Written(kept, _) | Applied::Stopped(kept, _)) => kept,
            Err(Unapplied { denied, .. }) if !denied.is_empty() => return Kept::Denied(denied),
            Err(_) => Kept::Unwritten,
        };
        match kept {
            // What was asked for can be asked for again.
            Kept::Left | Kept::Unwritten if is_reported => {
                executor.defer_phase(self.execution, report()).await;
            }
            Kept::Unwritten if is_call => Count::Unwritten.add(worker.key.operation()),
            Kept::Lost => self.execution.lose(),
            _ => {}
        }
        kept
    }
}

/// A phase and the digest of its result, for operators.
fn said(phase: &Phase) -> String {
    format!("{} {}", phase.name, phase.digest().unwrap_or("without a result"))
}
