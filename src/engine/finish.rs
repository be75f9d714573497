//! Ends an execution: writes down what is known of it, for as long as there is time.

use super::{
    Applied, DoubleExecution, Effort, Execution, Executor, Moment, Ownership, Replay, Retries, Start, Step,
};
use crate::{
    record::{
        Answer, FencedError, KeptAnswer, NOT_EXECUTED, Note, Record, Revision, State, UnknownCause, Worker,
    },
    store::StoreError,
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
    /// Perhaps something was done.
    PerhapsExecuted(UnknownCause),
}

impl Ending {
    /// As logs name it.
    const fn name(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::NotExecuted => "not_executed",
            Self::NotBegun => "not_begun",
            Self::PerhapsExecuted(_) => "perhaps_executed",
        }
    }
}

/// What became of writing an ending down.
#[derive(Debug)]
#[non_exhaustive]
pub enum FinishOutcome {
    /// It is written.
    Written {
        /// Until when the answer is kept, if there is one.
        expires_at: Option<Timestamp>,
    },
    /// The record was completed before, by another execution or by reconciliation: this is what everybody gets.
    Superseded(Replay),
    /// It did nothing, or was refused, and another execution, or the provider, says otherwise: nobody knows until somebody is asked.
    /// The caller's own answer may not be true.
    InDoubt,
    /// Another execution owns the record, or its answer cannot be read now: whoever asks again hears of it. The caller's own
    /// answer would be a second one.
    AnsweredElsewhere,
    /// The record is settled, and has no answer for anybody: a retry runs. Or it is another request's. The caller's own answer is
    /// the best there is.
    Fenced,
    /// The store could not be reached in time, and the ending went to the queue of lost endings, from which it is applied.
    HandedOver,
    /// The store could not be reached in time, nor a queue. The record becomes `unknown` when its lease is over.
    Unwritten,
}

impl FinishOutcome {
    /// As logs name it: by what the execution `said`, if that is written.
    const fn name(&self, said: &'static str) -> &'static str {
        match self {
            Self::Written { .. } => said,
            Self::Superseded(_) => "superseded",
            Self::InDoubt => "in_doubt",
            Self::AnsweredElsewhere => "answered_elsewhere",
            Self::Fenced => "fenced",
            Self::HandedOver => "handed_over",
            Self::Unwritten => "unwritten",
        }
    }
}

/// An ending whose body has its place.
#[derive(Clone)]
pub(super) enum Kept {
    Completed(KeptAnswer),
    /// With what its record is to say of that, if that is more than the word.
    NotExecuted(Option<Note>),
    NotBegun,
    /// Likewise, if it is more than the cause.
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

    fn tells_of_an_effect(&self) -> bool {
        matches!(self, Self::Completed(answer) if answer.head.is_effect())
    }

    /// Whether it tells of an effect, and this record was settled meanwhile as if there had been none.
    pub(super) fn is_denied_by(&self, there: &Record) -> bool {
        let denied = matches!(&there.state, State::Completed { answer, .. } if !answer.head.is_effect());
        denied && self.tells_of_an_effect()
    }

    /// What this ending makes of a record.
    pub(super) fn of(
        &self,
        seen: &Record,
        worker: Worker,
        revision: Revision,
        now: Timestamp,
    ) -> Result<Record, FencedError> {
        match self {
            Self::Completed(answer) => seen.complete(worker, revision, answer.clone(), now),
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

/// What became of writing it.
pub(super) enum Finished {
    /// It stands, and is this.
    Written(Box<Record>),
    /// This record went on without the execution.
    Refused(Box<Record>, FencedError),
    /// The record is gone, and for so long that it may have been settled and deleted since.
    Gone,
}

/// Whether people have been told that another execution did, or perhaps did, the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum People {
    Told,
    /// Then nothing is written in the place of what that one left: they would never hear of it.
    NotTold,
}

impl Executor {
    /// Writes down how an execution ended. Tries until the invocation's time, or the operation's patience, is up.
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
        // First, so that nobody else writes. A heartbeat under way may still land: then our write is refused, sees our
        // own attempt there, and goes on from that.
        drop(heartbeat);
        let seen = record.lock().await.clone();
        let started = self.engine.world.instant();
        let budget = TimeBudget::at(started, execution.ends_at());
        let write = budget.write(self.operation().patience_span(), self.lost_endings.is_some());
        let give_up_at = started.plus(write);
        let kept = match &ending {
            Ending::Completed(answer) => {
                let also = self.operation().kept_headers();
                Kept::Completed(self.engine.keep(&seen, answer.clone(), also, write).await)
            }
            Ending::NotExecuted => Kept::NotExecuted(because(NOT_EXECUTED, status)),
            Ending::NotBegun => Kept::NotBegun,
            Ending::PerhapsExecuted(cause) => Kept::PerhapsExecuted(*cause, because(cause.name(), status)),
        };
        let start = Start::Seen(Box::new(seen.clone()));
        match self.write(start, &seen, &kept, give_up_at, People::NotTold).await {
            Ok(Finished::Written(record)) => ended_as(&kept, &record),
            // The key is another request's now. What that one got is nobody's answer here: the caller's own is the truth, and what
            // was, or perhaps was, done goes to people, as if there were no record.
            Ok(Finished::Refused(there, fenced)) if !is_same_request(&seen, &there) => {
                let (key, operation) = (execution.record_key().hash(), self.operation().name());
                tracing::error!(%key, %operation, %fenced, "the key belongs to another request now");
                match kept.did_nothing() {
                    true => FinishOutcome::Fenced,
                    false => self.hand_over(&execution, &seen, &ending, &kept).await,
                }
            }
            Ok(Finished::Refused(there, _)) if self.is_double(&seen, &kept, &there) => {
                self.finish_double(&execution, &seen, &ending, &kept, there, give_up_at).await
            }
            Ok(Finished::Refused(there, fenced)) => {
                if kept.is_denied_by(&there)
                    && !self.hand_over_contested(&execution, &seen, &ending, &kept, None).await
                {
                    // Everybody gets what the record says; but what was done must not be forgotten.
                    let (key, operation) = (execution.record_key().hash(), self.operation().name());
                    tracing::error!(%key, %operation, "an effect that the record denies could not be handed to people");
                    Count::Contradicted.add(operation);
                }
                let replay = self.fenced(&there, fenced, give_up_at).await;
                elsewhere(&there, replay)
            }
            Ok(Finished::Gone) => {
                let (key, operation) = (execution.record_key().hash(), self.operation().name());
                tracing::error!(%key, %operation, "the record is gone for longer than it is kept: it is not written anew");
                // Who applies it finds the same, and hands it to people.
                self.hand_over(&execution, &seen, &ending, &kept).await
            }
            Err(_) => {
                let handed_over = self.hand_over(&execution, &seen, &ending, &kept).await;
                // As it would be if it was written.
                if seen.claimed && !kept.tells_of_an_effect() { FinishOutcome::InDoubt } else { handed_over }
            }
        }
    }

    /// Another execution has the record. Tells people first: whoever comes late may be killed in what follows.
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
                    // Claimed back, taken over, gone, or not to be reached.
                    _ => {
                        self.hand_over_contested(execution, seen, ending, kept, told).await;
                    }
                }
            }
            // If that one turns out to have done nothing, this is what counts.
            State::InProgress { .. } => {
                self.hand_over_contested(execution, seen, ending, kept, told).await;
            }
            _ => return elsewhere(&there, replay),
        }
        FinishOutcome::AnsweredElsewhere
    }

    /// Writes what `kept` makes of the record; of `base`, if the record is gone: an operator deleted it, or the table was
    /// restored to an earlier time. What is known is still true, and is written where nothing is. But not once the
    /// retention is over, counted from the execution's beginning: others may have settled the record, and time to live
    /// deleted it since.
    ///
    /// If another execution is in progress, it is contested, and the record refused.
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
            // Another's request that did not begin is as absent as none, and hides nothing that was, or perhaps was, done.
            let is_there = |there: &&Record| {
                !there.is_not_begun() || there.attempt == worker.attempt || kept.did_nothing()
            };
            let there = there.filter(is_there);
            let seen = there.unwrap_or(base).retained_or(retention);
            if there.is_none() && now > base.began_at.plus(seen.retained_for()) {
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
                Ok(next) => Step::Write(next.into(), None),
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
            Err(unapplied) => Err(unapplied.error),
        }
    }

    /// The record went on without us. What it says now is what everybody gets, if it can be read.
    async fn fenced(&self, there: &Record, fenced: FencedError, give_up_at: Instant) -> Option<Replay> {
        let (key, operation, state) = (there.key.hash(), self.operation().name(), there.state.name());
        tracing::error!(%key, %operation, state, %fenced, "the record went on without this execution");
        let replay = self.engine.bounded(Some(give_up_at), self.engine.replay(there)).await;
        replay
            .inspect_err(|error| {
                let (kind, cause) = (error.kind(), error.cause());
                tracing::error!(%key, %operation, ?kind, cause, "the kept answer could not be read");
            })
            .unwrap_or_default()
    }

    /// Whether an execution that did something, or perhaps did, and finds this record, is one of two of an operation that
    /// must not run again. One whose retention is over may find another life of its key; before that, its record was
    /// deleted by hand, or the table restored.
    pub(super) fn is_double(&self, base: &Record, kept: &Kept, there: &Record) -> bool {
        let one_life = there.created_at == base.created_at;
        let retention = base.retention.unwrap_or(self.operation().retention());
        let early = self.engine.world.now() <= base.began_at.plus(retention);
        // That another one did nothing is no contradiction; but in another life of the key a retry would run.
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

/// Why an execution failed, with the status that its handler answered.
fn because(name: &str, status: Option<u16>) -> Option<Note> {
    Some(Note::new(&format!("{name}, status {}", status?)))
}

/// What the caller gets of an execution whose record is another's.
fn elsewhere(there: &Record, replay: Option<Replay>) -> FinishOutcome {
    match replay {
        Some(replay) => FinishOutcome::Superseded(replay),
        None if matches!(there.state, State::FailedRetryable { .. }) => FinishOutcome::Fenced,
        None => FinishOutcome::AnsweredElsewhere,
    }
}

/// Whether two records may be of one request. Fingerprints by different rules do not compare.
pub(super) fn is_same_request(a: &Record, b: &Record) -> bool {
    a.fingerprint == b.fingerprint || a.fingerprint.rule() != b.fingerprint.rule()
}

/// What became of an ending that was written, and made this record.
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
