//! Ends an execution: writes down what is known of it, for as long as there is time.

use std::time::Duration;

use super::{Applied, Effort, Executor, Moment, Ownership, Replay, Retries, Start, Step};
use crate::{
    record::{Answer, AttemptId, FencedError, KeptAnswer, Record, Revision, State, UnknownCause},
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
    /// The record went on without this execution, and has no answer for anybody. The caller's own is the best there is.
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
        attempt: AttemptId,
        revision: Revision,
        now: Timestamp,
        retain: Duration,
    ) -> Result<Record, FencedError> {
        match self {
            Self::Completed(answer) => seen.complete(attempt, revision, answer.clone(), now, retain),
            Self::NotExecuted => seen.release(attempt, revision, now, retain),
            Self::PerhapsExecuted(cause) => seen.doubt(attempt, revision, *cause, now),
        }
    }
}

/// What became of writing it.
pub(super) enum Finished {
    /// It stands, and is this.
    Written(Box<Record>),
    /// This record went on without the execution.
    Refused(Box<Record>, FencedError),
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
                let retain = self.operation().retention();
                Kept::Completed(self.engine.keep(&seen, answer.clone(), retain, write).await)
            }
            Ending::NotExecuted => Kept::NotExecuted,
            Ending::PerhapsExecuted(cause) => Kept::PerhapsExecuted(*cause),
        };
        match self.write(Start::Seen(Box::new(seen.clone())), &seen, &kept, give_up_at).await {
            Ok(Finished::Written(record)) => FinishOutcome::Written { expires_at: kept_until(&record) },
            Ok(Finished::Refused(there, fenced)) => {
                let released = matches!(there.state, State::FailedRetryable { .. });
                let contradicts =
                    released && matches!(kept, Kept::Completed(_)) && there.attempt == execution.attempt();
                let outcome = self.fenced(there, fenced, give_up_at).await;
                if contradicts && self.lost_endings.is_some() {
                    // Who applies it finds the same, and escalates it: a retry may run again what was done.
                    self.hand_over(&execution, &seen, &ending, &kept).await;
                }
                outcome
            }
            Err(_) => self.hand_over(&execution, &seen, &ending, &kept).await,
        }
    }

    /// Writes what `kept` makes of the record; of `base`, if the record is gone: an operator deleted it, or the table was
    /// restored to an earlier time. What is known is still true, and is written where nothing is.
    pub(super) async fn write(
        &self,
        start: Start<'_>,
        base: &Record,
        kept: &Kept,
        give_up_at: Instant,
    ) -> Result<Finished, StoreError> {
        let retain = self.operation().retention();
        let step = |there: Option<&Record>, Moment { revision, now }: Moment| match kept.of(
            there.unwrap_or(base),
            base.attempt,
            revision,
            now,
            retain,
        ) {
            Ok(next) => Step::Write(next.into(), None),
            Err(fenced) => Step::Stop(Some(fenced)),
        };
        let effort = Effort { until: Some(give_up_at), pauses: WRITE_PAUSES, retries: Retries::All };
        match self.engine.apply(start, effort, step).await {
            Ok(Applied::Written(_, record)) => Ok(Finished::Written(record)),
            Ok(Applied::Stopped(fenced, there)) => {
                let there = there.unwrap_or_else(|| Box::new(base.clone()));
                Ok(Finished::Refused(there, fenced.unwrap_or(FencedError::OwnedByAnother)))
            }
            Err(unapplied) => Err(unapplied.error),
        }
    }

    /// The record went on without us. What it says now is what everybody gets.
    pub(super) async fn fenced(
        &self,
        there: Box<Record>,
        fenced: FencedError,
        give_up_at: Instant,
    ) -> FinishOutcome {
        let (key, operation, state) = (there.key.hash(), self.operation().name(), there.state.name());
        tracing::error!(%key, %operation, state, %fenced, "the record went on without this execution");
        match self.engine.bounded(Some(give_up_at), self.engine.replay(&there)).await {
            Ok(Some(replay)) => FinishOutcome::Superseded(replay),
            _ => FinishOutcome::Fenced,
        }
    }
}

pub(super) fn kept_until(record: &Record) -> Option<Timestamp> {
    match record.state {
        State::Completed { expires_at, .. } => Some(expires_at),
        _ => None,
    }
}
