//! Ends an execution: writes its report, with retries as long as there is time, and tells its caller what counts.

use super::{
    Execution, Executor, Ownership, Replay, Start,
    phasing::{Failed, Phasing},
    report::{Report, Reporting, because},
};
use crate::{
    domain::{DomainWrite, IfRefused},
    record::{
        self, Answer, Ending, Instead, KeptAnswer, KeptBody, NOT_EXECUTED, Record, Says, WorkerNext, Written,
    },
    telemetry::{self, COMPLETE_LATENCY, HANDLER_LATENCY},
    time::Instant,
    time_budget::{MAX_COMPUTATIONS, TimeBudget},
};

impl Executor {
    /// Writes how an execution ended. Tries until the invocation's time, or the operation's completion time-out, is up. Returns what its
    /// caller is told.
    pub async fn finish(&self, owned: Ownership, report: Report) -> Says<Replay> {
        let (world, operation) = (&self.engine.world, self.operation().name());
        let (execution, started) = (owned.execution.clone(), world.instant());
        telemetry::took(HANDLER_LATENCY, operation, started.since(execution.began()));
        let (says, became) = self.write_report(owned, report).await;
        telemetry::took(COMPLETE_LATENCY, operation, world.instant().since(started));
        telemetry::executed(execution.attempts(), became);
        says
    }

    async fn write_report(&self, owned: Ownership, report: Report) -> (Says<Replay>, &'static str) {
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
        let noted = |why: &str| Some(because(why, status));
        let report = match (failed, report) {
            (Some(Failed::Outside), _) | (None, Report::NotExecuted(_)) => {
                Report::NotExecuted(noted(NOT_EXECUTED))
            }
            (Some(Failed::InCall), _) => Report::Interrupted(noted("interrupted")),
            (Some(Failed::Unknown), _) => Report::PerhapsExecuted(noted("perhaps_executed")),
            (None, Report::PerhapsExecuted(why)) => {
                let why = why.and_then(|why| noted(why.as_str()));
                // Nothing was sent anywhere that is not kept, and nothing is committed.
                match seen.contains_its_effects() {
                    true => Report::NotExecuted(why),
                    false => Report::PerhapsExecuted(why),
                }
            }
            (None, report) => report,
        };
        self.write_whole(&execution, seen, report, failed.is_some()).await
    }

    /// Writes a report with its domain writes. If they are refused, writes what that means instead.
    async fn write_whole(
        &self,
        execution: &Execution,
        seen: Record,
        report: Report,
        is_overruled: bool,
    ) -> (Says<Replay>, &'static str) {
        let (world, keeps) = (&self.engine.world, &self.operation().keeps);
        let started = world.instant();
        let budget = TimeBudget::at(started, execution.ends_at());
        let write = budget.write(self.operation().completion_timeout, self.deferred_reports.is_some());
        let stop_at = started.plus(write);
        let (kept, answer, writes) = match report.without_answer() {
            Ok(kept) => (kept, None, Ok(Vec::new())),
            Err(answer) => {
                let writes = self.writes(execution, seen.answer_kind, stop_at).await;
                let kept = match writes.is_ok() {
                    true => self.engine.keep(&seen, answer, keeps, write).await,
                    // It is not reported.
                    false => {
                        KeptAnswer { head: keeps.of(&answer.head), body: KeptBody::Omitted { length: 0 } }
                    }
                };
                (record::Report::Completed(kept), Some(answer.clone()), writes)
            }
        };
        let mut reporting = Reporting::new(self, seen, kept, stop_at);
        (reporting.so_far.is_overruled, reporting.answer) = (is_overruled, answer);
        self.computed(&mut reporting, writes);
        let (mut current, mut computations) = (Some(Box::new(reporting.ending.base.clone())), 1);
        loop {
            reporting.so_far.is_lost = execution.is_lost();
            let start = current.map_or(Start::Absent, Start::Seen);
            let (next, seen) = match self.write(start, &mut reporting, Ending::step).await {
                Ok(next) => next,
                Err(denied) => {
                    let is_in_time = computations < MAX_COMPUTATIONS && world.instant() < stop_at;
                    if is_in_time && *reporting.refusal(&denied) == IfRefused::Recompute {
                        computations += 1;
                        let writes = self.writes(execution, reporting.ending.base.answer_kind, stop_at).await;
                        self.computed(&mut reporting, writes);
                    } else if let Some(refusal) = reporting.refused_with(&denied) {
                        let refusal = self.as_replayed(refusal);
                        let kept = self.engine.keep(&reporting.ending.base, &refusal, keeps, write).await;
                        reporting.reports(Instead::Answer(kept));
                        reporting.answer = Some(refusal);
                    } else {
                        self.no_answer_set(&reporting.writes, &denied);
                        reporting.reports(Instead::Refused);
                    }
                    current = Some(Box::new(reporting.ending.base.clone()));
                    continue;
                }
            };
            match next {
                WorkerNext::Defer => {
                    let deferred = self.defer(execution, &reporting).await;
                    reporting.so_far.deferred = deferred;
                }
                WorkerNext::Tell { says, counts } => {
                    if let Some(counts) = counts {
                        self.counts(counts);
                    }
                    let seen = seen.as_deref().unwrap_or(&reporting.ending.base);
                    if !matches!(reporting.so_far.write, Some(Written::Applied | Written::Perhaps { .. })) {
                        let state = seen.state.name();
                        tracing::error!(state, "the record has moved on without this execution");
                    }
                    let says = self.told(says, seen, reporting.answer.take(), stop_at).await;
                    let became = reporting.ending.became(&reporting.so_far, &says);
                    return (says, became);
                }
            }
            current = seen;
        }
    }

    /// The domain writes of an answer are computed, or cannot be: then what the handler did is not whole.
    fn computed(&self, reporting: &mut Reporting, writes: Result<Vec<DomainWrite>, ()>) {
        let is_computed = writes.is_ok();
        reporting.commits(writes.unwrap_or_default());
        if !is_computed {
            reporting.reports(Instead::Uncomputed);
        }
    }

    /// What the caller is told, with the answer that it gets.
    async fn told(
        &self,
        says: Says,
        current: &Record,
        answer: Option<Answer>,
        stop_at: Instant,
    ) -> Says<Replay> {
        match says {
            Says::Replay(_) => {
                let replay = self.engine.replay(current, Some(stop_at)).await.inspect_err(|error| {
                    let (kind, cause) = (error.kind(), error.cause());
                    tracing::error!(?kind, cause, "the kept answer could not be read");
                });
                replay.ok().flatten().map_or(Says::AnsweredElsewhere, Says::Replay)
            }
            Says::Refused(expires_at) => answer.map_or(Says::UNKNOWN, |answer| {
                let first_at = self.engine.world.now();
                Says::Refused(Replay { answer, body_omitted: false, first_at, expires_at })
            }),
            says => says.without_answer().unwrap_or(Says::UNKNOWN),
        }
    }
}
