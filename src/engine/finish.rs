//! Ends an execution: writes down what is known of it, for as long as there is time.

use super::{Applied, DoubleExecution, Effort, Executor, Moment, Ownership, Replay, Retries, Start, Step};
use crate::{
    record::{Answer, AttemptId, FencedError, KeptAnswer, Record, Revision, State, UnknownCause, Worker},
    store::StoreError,
    time::{Instant, Timestamp},
    time_budget::{TimeBudget, WRITE_PAUSES},
};

/// How an execution ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// The effect and its answer are known.
    Completed(Answer),
    /// Certainly nothing was done.
    NotExecuted,
    /// Perhaps something was done.
    PerhapsExecuted(UnknownCause),
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
    /// Another execution has the answer, or will have it, and it is not to be had now: whoever asks again gets it. The
    /// caller's own would be a second one.
    AnsweredElsewhere,
    /// The record is settled, and has no answer for anybody: a retry runs. The caller's own is the best there is.
    Fenced,
    /// The store could not be reached in time, and the ending went to the queue of lost endings, from which it is applied.
    HandedOver,
    /// The store could not be reached in time, nor a queue. The record becomes `unknown` when its lease is over.
    Unwritten,
}

/// An ending whose body has its place.
#[derive(Clone)]
pub(super) enum Kept {
    Completed(KeptAnswer),
    NotExecuted,
    PerhapsExecuted(UnknownCause),
}

impl Kept {
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
            Self::NotExecuted => seen.release(worker.attempt, revision, now),
            Self::PerhapsExecuted(cause) => seen.doubt(worker.attempt, revision, *cause, now),
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

impl Executor {
    /// Writes down how an execution ended. Tries until the invocation's time, or the operation's patience, is up.
    pub async fn finish(&self, owned: Ownership, ending: Ending) -> FinishOutcome {
        let Ownership { execution, record, heartbeat } = owned;
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
            Ending::NotExecuted => Kept::NotExecuted,
            Ending::PerhapsExecuted(cause) => Kept::PerhapsExecuted(*cause),
        };
        match self.write(Start::Seen(Box::new(seen.clone())), &seen, &kept, give_up_at).await {
            Ok(Finished::Written(record)) => FinishOutcome::Written { expires_at: kept_until(&record) },
            Ok(Finished::Refused(there, fenced)) => {
                let replay = self.fenced(&there, fenced, give_up_at).await;
                if let Ending::Completed(answer) = &ending
                    && self.is_double(execution.attempt(), &there)
                {
                    let theirs = replay.as_ref().map(|replay| &replay.answer);
                    let double = DoubleExecution::new(execution.attempt(), Some(answer), &there, theirs);
                    double.tell(&there);
                    self.tell_people(&execution, double).await;
                }
                match replay {
                    Some(replay) => FinishOutcome::Superseded(replay),
                    None if matches!(there.state, State::FailedRetryable { .. }) => FinishOutcome::Fenced,
                    None => FinishOutcome::AnsweredElsewhere,
                }
            }
            // Who applies it finds the same, and hands it to people.
            Ok(Finished::Gone) | Err(_) => self.hand_over(&execution, &seen, &ending, &kept).await,
        }
    }

    /// Writes what `kept` makes of the record; of `base`, if the record is gone: an operator deleted it, or the table was
    /// restored to an earlier time. What is known is still true, and is written where nothing is. But not once the
    /// retention is over, counted from the execution's beginning: others may have settled the record, and time to live
    /// deleted it since.
    pub(super) async fn write(
        &self,
        start: Start<'_>,
        base: &Record,
        kept: &Kept,
        give_up_at: Instant,
    ) -> Result<Finished, StoreError> {
        let retention = self.operation().retention();
        let step = |there: Option<&Record>, Moment { revision, now }: Moment| {
            let seen = there.unwrap_or(base).retained_or(retention);
            if there.is_none() && now > base.began_at.plus(seen.retained_for()) {
                return Step::Stop(None);
            }
            match kept.of(&seen, Worker::of(base), revision, now) {
                Ok(next) => Step::Write(next.into(), None),
                Err(fenced) => Step::Stop(Some(fenced)),
            }
        };
        let effort = Effort { until: Some(give_up_at), pauses: WRITE_PAUSES, retries: Retries::All };
        match self.engine.apply(start, effort, step).await {
            Ok(Applied::Written(_, record)) => Ok(Finished::Written(record)),
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

    /// Whether an execution that came to an answer, and finds this record, is the second one of an operation that must not
    /// run again.
    pub(super) fn is_double(&self, ours: AttemptId, there: &Record) -> bool {
        there.attempt != ours && !self.operation().may_run_again()
    }
}

pub(super) fn kept_until(record: &Record) -> Option<Timestamp> {
    match record.state {
        State::Completed { expires_at, .. } => Some(expires_at),
        _ => None,
    }
}
