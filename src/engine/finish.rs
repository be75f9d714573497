//! Ends an execution: writes its report, with retries as long as there is time.

use std::time::Duration;

use super::{
    Applied, Effort, Execution, Executor, Moment, Ownership, Replay, Retries, Start, Step,
    commit::{self, Committed},
    phasing::{Failed, Phasing},
    report::{FinishOutcome, Finished, Kept, Report},
};
use crate::{
    domain::DomainWrite,
    record::{
        Ended, FORGOTTEN, Fate, GONE, HELD, NOT_EXECUTED, Note, Overtaken, Record, Safe, State, WorkerReport,
    },
    store::{StoreError, StoreErrorKind},
    telemetry::{self, COMPLETE_LATENCY, Count, HANDLER_LATENCY},
    time::Instant,
    time_budget::{TimeBudget, WRITE_BACKOFF},
};

impl Executor {
    /// Writes how an execution ended. Tries until the invocation's time, or the operation's completion time-out, is up.
    pub async fn finish(&self, owned: Ownership, report: Report) -> FinishOutcome {
        let (world, operation) = (&self.engine.world, self.operation().name());
        let (execution, started) = (owned.execution.clone(), world.instant());
        telemetry::took(HANDLER_LATENCY, operation, started.since(execution.began()));
        let reported_as = report.name();
        let finished = self.write_report(owned, report).await;
        telemetry::took(COMPLETE_LATENCY, operation, world.instant().since(started));
        telemetry::executed(execution.attempts(), finished.name(reported_as));
        finished
    }

    async fn write_report(&self, owned: Ownership, report: Report) -> FinishOutcome {
        let Ownership { execution, record, heartbeat, status } = owned;
        execution.collected().close();
        let ended = execution.phasing().map(Phasing::end);
        // First, so that no heartbeat follows. One in flight may still be applied. Then our write is refused, finds our attempt in
        // the record, and continues from there.
        drop(heartbeat);
        let seen = record.lock().await.clone();
        let failed = ended.and_then(|(came_to, failed)| {
            let answered = matches!(report, Report::Completed(_));
            failed.or_else(|| Phasing::not_answered(&seen, came_to).filter(|_| answered))
        });
        let report = match failed {
            None => report,
            Some(Failed::Outside) => Report::NotExecuted,
            Some(Failed::InCall) => Report::Interrupted,
            Some(Failed::Unknown) => Report::Unknown,
        };
        let started = self.engine.world.instant();
        let budget = TimeBudget::at(started, execution.ends_at());
        let write = budget.write(self.operation().completion_timeout, self.deferred_reports.is_some());
        let stop_at = started.plus(write);
        let tried = self.commit(&execution, &seen, report, status, write, stop_at).await;
        let is_written = tried.finished.is_ok();
        let ended = self.ended(execution, seen, tried, stop_at).await;
        match (failed, ended) {
            (None, ended) => ended,
            // Another execution's answer, or what reconciliation finds, counts for every caller.
            (Some(_), ended @ (FinishOutcome::Superseded(_) | FinishOutcome::AnsweredElsewhere)) => ended,
            // It is known meanwhile: a retry resumes it.
            (Some(Failed::Unknown), FinishOutcome::Interrupted) if is_written => FinishOutcome::Interrupted,
            (Some(Failed::Unknown), _) | (_, FinishOutcome::Unknown) => FinishOutcome::Unknown,
            (Some(Failed::Outside | Failed::InCall), _) => FinishOutcome::Interrupted,
        }
    }

    /// A report with its body stored.
    pub(super) async fn kept(
        &self,
        seen: &Record,
        report: &Report,
        writes: Vec<DomainWrite>,
        status: Option<u16>,
        time: Duration,
    ) -> Kept {
        let ended = match report {
            Report::Completed(answer) => {
                let keeps = &self.operation().keeps;
                let ended = Ended::Completed(self.engine.keep(seen, answer, keeps, time).await);
                return Kept { ended, writes: writes.into() };
            }
            Report::NotExecuted => Ended::NotExecuted(Some(because(NOT_EXECUTED, status))),
            Report::NotBegun => Ended::NotBegun,
            Report::Interrupted => Ended::Interrupted(Some(because("interrupted", status))),
            Report::Unknown => Ended::PerhapsExecuted(Some(because("perhaps_executed", status))),
            // Nothing was sent anywhere that is not kept, and nothing is committed.
            Report::PerhapsExecuted(why) if seen.contains_its_effects() => {
                Ended::NotExecuted(Some(because(why, status)))
            }
            Report::PerhapsExecuted(why) => Ended::PerhapsExecuted(Some(because(why, status))),
            Report::Uncommitted => Ended::Uncommitted,
        };
        ended.into()
    }

    /// The report of the worker that saw `base`, for the record.
    pub(super) fn reported<'a>(&self, base: &'a Record, kept: &'a Kept, safe: Safe) -> WorkerReport<'a> {
        let (has_writes, may_run_again) = (!kept.writes.is_empty(), self.operation().may_run_again());
        WorkerReport { base, ended: &kept.ended, has_writes, may_run_again, safe }
    }

    /// What a report's write means for its caller.
    async fn ended(
        &self,
        execution: Execution,
        seen: Record,
        tried: Committed,
        stop_at: Instant,
    ) -> FinishOutcome {
        let Committed { report, kept, safe, finished, instead } = tried;
        let uncertain = match &finished {
            // It is in the queue only because the store did not answer: nothing contradicts it.
            Err(error) if error.is_passing() => kept.can_be_refused(),
            _ => !kept.writes.is_empty(),
        };
        let (kept, reported) = (&kept, self.reported(&seen, &kept, safe));
        let (ended, now) = (&kept.ended, self.engine.world.now());
        let outcome = match finished {
            Ok(Finished::Written(record)) => ended_as(kept, &record),
            // Its transaction can no longer commit: nothing was done, and there is nothing to report.
            Ok(Finished::Refused(current)) if seen.is_transactional() && !ended.did_nothing() => {
                match self.fenced(&current, stop_at).await {
                    Some(replay) if seen.is_same_request(&current) => FinishOutcome::Superseded(replay),
                    // Perhaps it is our own commit, which was changed since.
                    None if matches!(current.state, State::Completed { .. }) => {
                        FinishOutcome::AnsweredElsewhere
                    }
                    _ => FinishOutcome::NotCommitted,
                }
            }
            // An earlier try may have committed, and the record been deleted since.
            Ok(Finished::Gone) if seen.is_transactional() => FinishOutcome::Unknown,
            // After the lease has expired, it is known whether the transaction has committed.
            Err(_) if seen.is_transactional() && !ended.did_nothing() => {
                Count::Unwritten.add(self.operation().name());
                FinishOutcome::Unknown
            }
            Err(_) if seen.is_transactional() => FinishOutcome::Unwritten,
            // `commit` has replaced the report.
            Ok(Finished::Denied(_)) => FinishOutcome::Unknown,
            Ok(Finished::Refused(current)) if !reported.matters() && !seen.is_same_request(&current) => {
                FinishOutcome::Fenced
            }
            // Who holds the record settles it, by the report.
            Ok(Finished::Refused(current))
                if matches!(reported.overtaken_by(&current, now), Overtaken::Escalated(HELD | FORGOTTEN)) =>
            {
                if safe == Safe::Nothing {
                    self.defer(&execution, &seen, &report, kept, Count::ContradictionUnsent).await;
                }
                self.elsewhere(&current, stop_at).await
            }
            // The key is another request's, or of a later generation, now. That answer is not for this caller, so the caller gets the
            // handler's answer. What was done, certainly or possibly, is escalated as if there were no record.
            Ok(Finished::Refused(current))
                if reported.overtaken_by(&current, now) == Overtaken::Escalated(GONE) =>
            {
                tracing::error!("the key belongs to another request, or has begun again");
                self.defer(&execution, &seen, &report, kept, Count::ContradictionUnsent).await
            }
            Ok(Finished::Refused(current)) if !reported.is_missing_in(&current, now) => {
                self.elsewhere(&current, stop_at).await
            }
            Ok(Finished::Refused(current)) => {
                // Reconciliation escalates it, once the other execution is over.
                let sent = safe != Safe::Nothing || self.send_report(&execution, &seen, &report, kept).await;
                if !sent {
                    // Every caller gets the record's answer, but the effect must not be forgotten.
                    tracing::error!(
                        "a report that contradicts the record could not be deferred: only this line names it"
                    );
                    Count::ContradictionUnsent.add(self.operation().name());
                }
                if reported.is_double(&current, now) {
                    double_execution(&current);
                }
                // A queue that did not answer may have the report nevertheless.
                let safe = match self.deferred_reports {
                    Some(_) => Safe::Report,
                    None => Safe::Alarm(current.attempt),
                };
                match self.write(Start::Seen(current.clone()), &seen, kept, stop_at, safe).await {
                    Ok(Finished::Written(record)) => ended_as(kept, &record),
                    written => {
                        let current =
                            if let Ok(Finished::Refused(newer)) = written { newer } else { current };
                        self.elsewhere(&current, stop_at).await
                    }
                }
            }
            Ok(Finished::Gone) => {
                tracing::error!("the record is gone and its retention is over: it is not written again");
                // Reconciliation also finds no record, and escalates the report.
                self.defer(&execution, &seen, &report, kept, Count::ContradictionUnsent).await
            }
            Err(_) => {
                let deferred = self.defer(&execution, &seen, &report, kept, Count::Unwritten).await;
                // Until it is applied, a retry may resume, and may get another answer. Or parts of it are done.
                if seen.phases().is_some() && (matches!(ended, Ended::Completed(_)) || seen.is_resumed()) {
                    return FinishOutcome::Interrupted;
                }
                // The caller gets the answer as if the report had been written. But an earlier execution, or a later one once the
                // lease is over, may have had the effect that a refusal denies.
                let alone = execution.attempts() == 1 && !execution.is_lost();
                let refused =
                    !ended.reports_an_effect() && (seen.reported.is_some() || (ended.is_refusal() && !alone));
                if refused { FinishOutcome::Unknown } else { deferred }
            }
        };
        Committed::answered(instead, outcome, kept, uncertain)
    }

    /// Writes the record that `kept` leads to. If the record is another execution's, marks it if the report is `safe`, and returns
    /// [`Finished::Refused`].
    pub(super) async fn write(
        &self,
        start: Start<'_>,
        base: &Record,
        kept: &Kept,
        stop_at: Instant,
        safe: Safe,
    ) -> Result<Finished, StoreError> {
        let reported = self.reported(base, kept, safe);
        let step = |current: Option<&Record>, Moment { revision, now }: Moment| match reported
            .fate(current, revision, now)
        {
            Fate::Written(next) => Step::Write(commit::completing(next, &kept.writes, now), true),
            Fate::Contested(next) => Step::Write(next.into(), false),
            Fate::Fenced => Step::Stop(true),
            Fate::Gone => Step::Stop(false),
        };
        let effort = Effort { until: Some(stop_at), backoff: WRITE_BACKOFF, retries: Retries::All };
        match self.engine.apply(start, effort, step).await {
            Ok(Applied::Written(true, record)) => Ok(Finished::Written(record)),
            Ok(Applied::Written(false, record)) => Ok(Finished::Refused(record)),
            Ok(Applied::Stopped(true, current)) => {
                Ok(Finished::Refused(current.unwrap_or_else(|| Box::new(base.clone()))))
            }
            Ok(Applied::Stopped(false, _)) => Ok(Finished::Gone),
            Err(unapplied) if !unapplied.denied.is_empty() => Ok(Finished::Denied(unapplied.denied)),
            // Other tries may have got no answer. One refused for good shows that none is accepted.
            Err(unapplied) if unapplied.refused => {
                Err(StoreError::new(StoreErrorKind::Refused, unapplied.error))
            }
            Err(unapplied) => Err(unapplied.error),
        }
    }

    /// The outcome for an execution whose record is another's.
    async fn elsewhere(&self, current: &Record, stop_at: Instant) -> FinishOutcome {
        match (self.fenced(current, stop_at).await, &current.state) {
            (Some(replay), _) => FinishOutcome::Superseded(replay),
            (None, State::FailedRetryable { .. } | State::Pending { .. }) => FinishOutcome::Fenced,
            (None, State::Unknown { .. }) => FinishOutcome::Unknown,
            (None, State::BetweenWorkers { .. }) => FinishOutcome::Interrupted,
            (None, _) => FinishOutcome::AnsweredElsewhere,
        }
    }

    /// The record has moved on without us. Returns the answer that every caller gets now, if there is one and it can be read.
    async fn fenced(&self, current: &Record, stop_at: Instant) -> Option<Replay> {
        tracing::error!(state = current.state.name(), "the record has moved on without this execution");
        let replay = self.engine.replay(current, Some(stop_at)).await;
        replay
            .inspect_err(|error| {
                let (kind, cause) = (error.kind(), error.cause());
                tracing::error!(?kind, cause, "the kept answer could not be read");
            })
            .unwrap_or_default()
    }
}

/// Logs and counts a second execution of this record's operation.
pub(crate) fn double_execution(current: &Record) {
    let (attempt, state) = (&current.attempt, current.state.name());
    tracing::error!(%attempt, state, "the operation was, or perhaps was, executed twice: it needs an operator");
    Count::DoubleExecution.add(current.key.operation());
}

/// Why an execution failed, with the status of the handler's answer, if there is one.
fn because(why: &str, status: Option<u16>) -> Note {
    status.map_or_else(|| Note::new(why), |status| Note::new(&format!("{why}, status {status}")))
}

/// The outcome of a report whose write led to this record.
fn ended_as(kept: &Kept, record: &Record) -> FinishOutcome {
    match record.state {
        State::Unknown { .. } if kept.ended.is_certain() => FinishOutcome::Unknown,
        // Parts of it may be done: no answer may lead its client to a new key (T43).
        State::BetweenWorkers { .. } => FinishOutcome::Interrupted,
        State::Completed { expires_at, .. } => FinishOutcome::Written { expires_at: Some(expires_at) },
        State::FailedRetryable { .. } | State::Pending { .. } => FinishOutcome::Released,
        _ => FinishOutcome::Written { expires_at: None },
    }
}
