//! Ends an execution: records its ending, with retries for as long as there is time.

use std::{sync::Arc, time::Duration};

use super::{
    Applied, DoubleExecution, Effort, Execution, Executor, Moment, Ownership, Replay, Retries, Start, Step,
    commit::{self, Committed, Time},
};
use crate::{
    domain::DomainWrite,
    record::{
        Answer, FencedError, KeptAnswer, NOT_EXECUTED, Note, Record, Revision, SettledBy, State,
        UnknownCause, Worker,
    },
    store::{StoreError, StoreErrorKind},
    telemetry::{self, COMPLETE_LATENCY, Count, HANDLER_LATENCY},
    time::{Instant, Timestamp},
    time_budget::{TimeBudget, WRITE_PAUSES},
};

/// How an execution ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// The effect and its answer are known.
    Completed(Answer),
    /// Certainly nothing was done: the request may be retried.
    NotExecuted,
    /// The request was refused before anything was done: its key is free for any request.
    NotBegun,
    /// Something may have been done.
    PerhapsExecuted(UnknownCause),
}

impl Ending {
    /// Its name in logs.
    const fn name(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::NotExecuted => "not_executed",
            Self::NotBegun => "not_begun",
            Self::PerhapsExecuted(_) => "perhaps_executed",
        }
    }
}

/// What became of the write of an ending.
#[derive(Debug)]
#[non_exhaustive]
pub enum FinishOutcome {
    /// It is written.
    Written {
        /// Until when the answer is kept, if there is one.
        expires_at: Option<Timestamp>,
    },
    /// A domain write was refused: the operation is completed with the answer that the write has for that, and the caller gets
    /// it in place of the handler's.
    Refused {
        /// The answer.
        answer: Answer,
        /// Until when it is kept.
        expires_at: Option<Timestamp>,
    },
    /// The record was completed before, by another execution or by reconciliation: everybody gets this answer.
    Superseded(Replay),
    /// The execution did nothing or was refused, but another execution or the provider says otherwise: the outcome is unknown
    /// until reconciliation has asked. The caller's own answer may be wrong.
    InDoubt,
    /// Another execution owns the record, or the record's answer cannot be read now: a retry gets it. The caller's own answer
    /// would be a second one.
    AnsweredElsewhere,
    /// The record is settled without an answer, so that a retry runs; or it is another request's. The caller's own answer is
    /// the best available.
    Fenced,
    /// Nothing is committed, and certainly nothing was done: a retry may run.
    NotCommitted,
    /// The ending could not be written, and went to the queue of lost endings, from which it is applied.
    HandedOver,
    /// The ending could neither be written nor handed over. A record still in progress becomes `unknown` when its lease is over.
    Unwritten,
}

impl FinishOutcome {
    /// Its name in logs: what the execution `said`, if that was written.
    const fn name(&self, said: &'static str) -> &'static str {
        match self {
            Self::Written { .. } => said,
            Self::Refused { .. } => "refused",
            Self::Superseded(_) => "superseded",
            Self::InDoubt => "in_doubt",
            Self::AnsweredElsewhere => "answered_elsewhere",
            Self::Fenced => "fenced",
            Self::NotCommitted => "not_committed",
            Self::HandedOver => "handed_over",
            Self::Unwritten => "unwritten",
        }
    }
}

/// An ending whose body has been stored.
#[derive(Clone)]
pub(super) enum Kept {
    /// With the domain writes that commit with it.
    Completed(KeptAnswer, Arc<[DomainWrite]>),
    /// With a note for the record, if there is more to say than that nothing was done.
    NotExecuted(Option<Note>),
    NotBegun,
    /// With a note for the record, if there is more to say than the cause.
    PerhapsExecuted(UnknownCause, Option<Note>),
}

impl Kept {
    /// Whether it says that nothing was done.
    pub(super) const fn did_nothing(&self) -> bool {
        matches!(self, Self::NotExecuted(_) | Self::NotBegun)
    }

    /// Whether its worker knows what it did.
    const fn is_certain(&self) -> bool {
        !matches!(self, Self::PerhapsExecuted(..))
    }

    pub(super) fn tells_of_an_effect(&self) -> bool {
        matches!(self, Self::Completed(answer, _) if answer.head.is_effect())
    }

    /// The domain writes that commit with it.
    pub(super) fn writes(&self) -> &[DomainWrite] {
        match self {
            Self::Completed(_, writes) => writes,
            Self::NotExecuted(_) | Self::NotBegun | Self::PerhapsExecuted(..) => &[],
        }
    }

    /// Whether its answer is true only once its writes are committed, which somebody may still refuse.
    pub(super) fn hangs_on_its_writes(&self) -> bool {
        self.writes().iter().any(DomainWrite::can_be_refused)
    }

    /// Whether its domain writes can never commit, because the key of `base` has begun a new life with this record.
    pub(super) fn missed_its_life(&self, base: &Record, there: &Record) -> bool {
        !self.writes().is_empty() && there.created_at != base.created_at
    }

    /// Whether this ending of `base` reports an effect, and the record was meanwhile settled as if there had been none, or
    /// without its domain writes. What its own worker's word completed denies nothing: its writes were refused, and the record
    /// has the answer for that.
    pub(super) fn is_denied_by(&self, base: &Record, there: &Record) -> bool {
        let State::Completed { answer, by, .. } = &there.state else { return false };
        if *by == SettledBy::Worker && there.attempt == base.attempt {
            return false;
        }
        let without_its_writes = !self.writes().is_empty() && !there.with_writes;
        without_its_writes || (self.tells_of_an_effect() && !answer.head.is_effect())
    }

    /// The record that this ending turns `seen` into.
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
                Ok(seen.doubt(worker, revision, *cause, now)?.failed(because.clone()))
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
    /// The record has been gone for so long that it may have been settled and deleted since; or the ending has domain writes,
    /// which an operator, or a restore, may have undone with it.
    Gone,
    /// The conditions of the domain writes at these places failed. The record is as it was.
    Denied(Vec<usize>),
}

/// Whether an operator has been told that another execution also ran the operation, certainly or possibly.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum People {
    Told,
    /// Then nothing that the other execution left is overwritten: its trace would be lost.
    NotTold,
}

impl Executor {
    /// Records how an execution ended. Tries until the invocation's time, or the operation's patience, is up.
    pub async fn finish(&self, owned: Ownership, ending: Ending) -> FinishOutcome {
        let (world, operation) = (&self.engine.world, self.operation().name());
        let (execution, started) = (owned.execution.clone(), world.instant());
        telemetry::took(HANDLER_LATENCY, operation, started.since(execution.began()));
        let said = ending.name();
        let finished = self.write_down(owned, ending).await;
        telemetry::took(COMPLETE_LATENCY, operation, world.instant().since(started));
        telemetry::executed(execution.record_key(), execution.attempts(), finished.name(said));
        finished
    }

    async fn write_down(&self, owned: Ownership, ending: Ending) -> FinishOutcome {
        let Ownership { execution, record, heartbeat, status } = owned;
        execution.pending().close();
        // First, so that nobody else writes. A heartbeat in flight may still land: then our write is refused, finds our
        // own attempt in the record, and continues from there.
        drop(heartbeat);
        let seen = record.lock().await.clone();
        let started = self.engine.world.instant();
        let budget = TimeBudget::at(started, execution.ends_at());
        let write = budget.write(self.operation().patience_span(), self.lost_endings.is_some());
        let give_up_at = started.plus(write);
        let time = Time { write, give_up_at };
        let Committed { ending, kept, finished, instead } =
            self.commit(&execution, &seen, ending, status, time).await;
        let hangs = match &finished {
            // It is in the queue only because the store did not answer: nothing stands against it.
            Err(error) if error.is_passing() => kept.hangs_on_its_writes(),
            _ => !kept.writes().is_empty(),
        };
        let ended = self.ended(execution, seen, ending, &kept, finished, give_up_at).await;
        instead.of(ended, &kept, hangs)
    }

    /// An ending with its body stored.
    pub(super) async fn kept(
        &self,
        seen: &Record,
        ending: &Ending,
        writes: Vec<DomainWrite>,
        status: Option<u16>,
        time: Duration,
    ) -> Kept {
        match ending {
            Ending::Completed(answer) => {
                let also = self.operation().kept_headers();
                Kept::Completed(self.engine.keep(seen, answer.clone(), also, time).await, writes.into())
            }
            Ending::NotExecuted => Kept::NotExecuted(because(NOT_EXECUTED, status)),
            Ending::NotBegun => Kept::NotBegun,
            // Nothing was sent anywhere, and nothing is committed.
            Ending::PerhapsExecuted(cause) if seen.transactional => {
                let because = because(cause.name(), status).unwrap_or_else(|| Note::new(cause.name()));
                Kept::NotExecuted(Some(because))
            }
            Ending::PerhapsExecuted(cause) => Kept::PerhapsExecuted(*cause, because(cause.name(), status)),
        }
    }

    /// What an ending's write means for its caller.
    async fn ended(
        &self,
        execution: Execution,
        seen: Record,
        ending: Ending,
        kept: &Kept,
        finished: Result<Finished, StoreError>,
        give_up_at: Instant,
    ) -> FinishOutcome {
        match finished {
            Ok(Finished::Written(record)) => ended_as(kept, &record),
            // Its transaction can commit no more: nothing was done, and nothing has to be told.
            Ok(Finished::Refused(there, fenced)) if seen.transactional && !kept.did_nothing() => {
                match self.fenced(&there, fenced, give_up_at).await {
                    Some(replay) if is_same_request(&seen, &there) => FinishOutcome::Superseded(replay),
                    // Perhaps it is our own commit, which somebody has changed since.
                    None if matches!(there.state, State::Completed { .. }) => {
                        FinishOutcome::AnsweredElsewhere
                    }
                    _ => FinishOutcome::NotCommitted,
                }
            }
            // An earlier try may have committed, and the record been deleted since.
            Ok(Finished::Gone) if seen.transactional => FinishOutcome::InDoubt,
            // Whether it has committed shows once its lease is over.
            Err(_) if seen.transactional && !kept.did_nothing() => {
                Count::Unwritten.add(self.operation().name());
                FinishOutcome::InDoubt
            }
            Err(_) if seen.transactional => FinishOutcome::Unwritten,
            // Taken care of before.
            Ok(Finished::Denied(_)) => FinishOutcome::InDoubt,
            // The key is another request's now, and that one's answer is not for this caller: its own is the truth. What was
            // done, certainly or possibly, is escalated as if there were no record.
            Ok(Finished::Refused(there, fenced)) if !is_same_request(&seen, &there) => {
                let (key, operation) = (execution.record_key().hash(), self.operation().name());
                tracing::error!(%key, %operation, %fenced, "the key belongs to another request now");
                match kept.did_nothing() {
                    true => FinishOutcome::Fenced,
                    false => self.hand_over(&execution, &seen, &ending, kept).await,
                }
            }
            Ok(Finished::Refused(there, _)) if self.is_double(&seen, kept, &there) => {
                self.finish_double(&execution, &seen, &ending, kept, there, give_up_at).await
            }
            Ok(Finished::Refused(there, _)) if kept.missed_its_life(&seen, &there) => {
                self.hand_over(&execution, &seen, &ending, kept).await
            }
            Ok(Finished::Refused(there, fenced)) => {
                if kept.is_denied_by(&seen, &there)
                    && !self.hand_over_contested(&execution, &seen, &ending, kept, None).await
                {
                    // Everybody gets the record's answer; but the effect must not be forgotten.
                    let (key, operation) = (execution.record_key().hash(), self.operation().name());
                    tracing::error!(%key, %operation, "an effect that the record denies could not be escalated");
                    Count::Contradicted.add(operation);
                }
                let replay = self.fenced(&there, fenced, give_up_at).await;
                elsewhere(&there, replay)
            }
            Ok(Finished::Gone) => {
                let (key, operation) = (execution.record_key().hash(), self.operation().name());
                tracing::error!(%key, %operation, "the record is gone and its retention is over: it is not written again");
                // Reconciliation will find the same, and escalate it.
                self.hand_over(&execution, &seen, &ending, kept).await
            }
            Err(_) => {
                let handed_over = self.hand_over(&execution, &seen, &ending, kept).await;
                // As if it had been written.
                if seen.claimed && !kept.tells_of_an_effect() { FinishOutcome::InDoubt } else { handed_over }
            }
        }
    }

    /// Another execution has the record. Reports that first: this invocation is late, and may be killed in what follows.
    async fn finish_double(
        &self,
        execution: &Execution,
        seen: &Record,
        ending: &Ending,
        kept: &Kept,
        there: Box<Record>,
        give_up_at: Instant,
    ) -> FinishOutcome {
        let answer = match ending {
            Ending::Completed(answer) => Some(answer),
            Ending::NotExecuted | Ending::NotBegun | Ending::PerhapsExecuted(_) => None,
        };
        let mut double = DoubleExecution::new(seen.attempt, answer, &there);
        double.tell(&there.key);
        let replay = self.fenced(&there, FencedError::OwnedByAnother, give_up_at).await;
        let whole = replay.as_ref().filter(|replay| !replay.body_omitted);
        double.theirs_answered(whole.map(|replay| &replay.answer));
        let told = self.tell_people(execution, double, seen, ending, kept).await.then_some(there.attempt);
        match there.state {
            State::Unknown { .. } => {
                let start = Start::Seen(there);
                match self.write(start, seen, kept, give_up_at, People::Told).await {
                    Ok(Finished::Written(record)) => return ended_as(kept, &record),
                    Ok(Finished::Refused(there, _)) if matches!(there.state, State::Completed { .. }) => {}
                    // Reclaimed, taken over, gone, or out of reach.
                    _ => {
                        self.hand_over_contested(execution, seen, ending, kept, told).await;
                    }
                }
            }
            // If that execution turns out to have done nothing, this ending counts.
            State::InProgress { .. } => {
                self.hand_over_contested(execution, seen, ending, kept, told).await;
            }
            _ => return elsewhere(&there, replay),
        }
        FinishOutcome::AnsweredElsewhere
    }

    /// Writes the record that `kept` leads to. If the record is gone, because an operator deleted it or the table was
    /// restored to an earlier time, starts from `base`: what is known is still true. But not once the retention, counted from
    /// the execution's beginning, is over: others may have settled the record, and time to live deleted it since.
    ///
    /// If another execution is in progress, marks it as contested and returns [`Finished::Refused`].
    pub(super) async fn write(
        &self,
        start: Start<'_>,
        base: &Record,
        kept: &Kept,
        give_up_at: Instant,
        people: People,
    ) -> Result<Finished, StoreError> {
        let (retention, worker) = (self.operation().retention(), Worker::of(base));
        let step = |there: Option<&Record>, Moment { revision, now }: Moment| {
            // Another request that did not begin counts as absent: it must not hide a certain or possible effect.
            let is_there = |there: &&Record| {
                !there.is_not_begun() || there.attempt == worker.attempt || kept.did_nothing()
            };
            let there = there.filter(is_there);
            let seen = there.unwrap_or(base).retained_or(retention);
            let late = now > base.began_at.plus(seen.retained_for());
            // What would have committed in a transaction may have been undone with the record.
            let by_transaction = !kept.writes().is_empty() || (base.transactional && !kept.did_nothing());
            if there.is_none() && (late || by_transaction) {
                return Step::Stop(None);
            }
            let double = self.is_double(base, kept, &seen);
            let contested = double.then(|| seen.contest(worker, revision)).flatten();
            if let Some(contested) = contested {
                return Step::Write(contested.into(), Some(FencedError::OwnedByAnother));
            }
            if double && people == People::NotTold {
                return Step::Stop(Some(FencedError::OwnedByAnother));
            }
            match kept.of(&seen, worker, revision, now) {
                Ok(next) => Step::Write(commit::completing(next, kept.writes()), None),
                Err(fenced) => Step::Stop(Some(fenced)),
            }
        };
        let effort = Effort { until: Some(give_up_at), pauses: WRITE_PAUSES, retries: Retries::All };
        match self.engine.apply(start, effort, step).await {
            Ok(Applied::Written(None, record)) => Ok(Finished::Written(record)),
            Ok(Applied::Written(Some(fenced), record)) => Ok(Finished::Refused(record, fenced)),
            Ok(Applied::Stopped(Some(fenced), there)) => {
                let there = there.unwrap_or_else(|| Box::new(base.clone()));
                Ok(Finished::Refused(there, fenced))
            }
            Ok(Applied::Stopped(None, _)) => Ok(Finished::Gone),
            Err(unapplied) if !unapplied.denied.is_empty() => Ok(Finished::Denied(unapplied.denied)),
            // The others may have gone unanswered; but this one says that none will be taken.
            Err(unapplied) if unapplied.refused => {
                Err(StoreError::new(StoreErrorKind::Refused, unapplied.error))
            }
            Err(unapplied) => Err(unapplied.error),
        }
    }

    /// The record has moved on without us. Returns the answer that everybody gets now, if there is one and it can be read.
    async fn fenced(&self, there: &Record, fenced: FencedError, give_up_at: Instant) -> Option<Replay> {
        let (key, operation, state) = (there.key.hash(), self.operation().name(), there.state.name());
        tracing::error!(%key, %operation, state, %fenced, "the record has moved on without this execution");
        let replay = self.engine.bounded(Some(give_up_at), self.engine.replay(there)).await;
        replay
            .inspect_err(|error| {
                let (kind, cause) = (error.kind(), error.cause());
                tracing::error!(%key, %operation, ?kind, cause, "the kept answer could not be read");
            })
            .unwrap_or_default()
    }

    /// Whether an execution that did something, certainly or possibly, finds in this record a second execution of an
    /// operation that must not run again. After its retention it may find a new life of its key, which is no second
    /// execution. Before that, a new life means that its record was deleted by hand, or the table restored.
    pub(super) fn is_double(&self, base: &Record, kept: &Kept, there: &Record) -> bool {
        // Its effects are those that it could not commit.
        if base.transactional {
            return false;
        }
        let one_life = there.created_at == base.created_at;
        let retention = base.retention.unwrap_or(self.operation().retention());
        let early = self.engine.world.now() <= base.began_at.plus(retention);
        // That another execution did nothing is no contradiction; but in another life of the key a retry would run.
        let did_nothing = matches!(
            there.state,
            State::FailedRetryable { .. } | State::Unknown { cause: UnknownCause::Contested, .. }
        );
        let theirs = !(did_nothing && one_life);
        let ours = !kept.did_nothing();
        let same = is_same_request(base, there);
        let others = there.attempt != base.attempt && same && (one_life || early);
        ours && theirs && others && !self.operation().may_run_again()
    }
}

/// Why an execution failed, with the status of the handler's answer.
fn because(name: &str, status: Option<u16>) -> Option<Note> {
    Some(Note::new(&format!("{name}, status {}", status?)))
}

/// The outcome for an execution whose record is another's.
fn elsewhere(there: &Record, replay: Option<Replay>) -> FinishOutcome {
    match replay {
        Some(replay) => FinishOutcome::Superseded(replay),
        None if matches!(there.state, State::FailedRetryable { .. }) => FinishOutcome::Fenced,
        None => FinishOutcome::AnsweredElsewhere,
    }
}

/// Whether two records may be of one request. Fingerprints by different rules cannot be compared.
pub(super) fn is_same_request(a: &Record, b: &Record) -> bool {
    a.fingerprint == b.fingerprint || a.fingerprint.rule() != b.fingerprint.rule()
}

/// The outcome of an ending whose write led to this record.
fn ended_as(kept: &Kept, record: &Record) -> FinishOutcome {
    match record.state {
        State::Unknown { .. } if kept.is_certain() => FinishOutcome::InDoubt,
        _ => FinishOutcome::Written { expires_at: kept_until(record) },
    }
}

pub(super) fn kept_until(record: &Record) -> Option<Timestamp> {
    match record.state {
        State::Completed { expires_at, .. } => Some(expires_at),
        _ => None,
    }
}
