//! Domain writes that commit with an operation's completion.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;

use super::{
    Change, Execution, Executor, Start,
    report::{FinishOutcome, Finished, Kept, Report},
};
use crate::{
    domain::{DomainWrite, DomainWriteError, IfRefused},
    record::{Answer, AnswerKind, HANDLER_FAILED, Record, Safe, Transition},
    store::{Companion, OutboxMessage, StoreError},
    telemetry::Count,
    time::{Instant, Timestamp},
    time_budget::MAX_COMPUTATIONS,
};

/// A transition with the writes that commit with it, if it completes its operation.
pub(crate) fn completing(mut next: Transition, writes: &[DomainWrite], now: Timestamp) -> Change {
    if writes.is_empty() || !next.commits() {
        return next.into();
    }
    with_writes(next, writes, now)
}

/// A transition with the writes that commit with it. Its record counts the messages among them.
pub(crate) fn with_writes(mut next: Transition, writes: &[DomainWrite], now: Timestamp) -> Change {
    let first = next.messages;
    let companion = |write: &DomainWrite| match write.message() {
        None => Companion::Domain(write.clone()),
        Some((topic, body)) => Companion::Message(OutboxMessage {
            key: next.key.clone(),
            created_at: next.created_at,
            sequence: next.next_message(),
            first,
            topic: topic.to_owned(),
            body: body.to_owned(),
            published_at: now,
        }),
    };
    let with = writes.iter().map(companion).collect();
    Change::with(next, with)
}

/// What it means that the writes at these places were denied. Recomputing comes first: the other refusals were computed from an
/// outdated read. If one of them has no answer, the answer of another is not the whole truth.
pub(super) fn refusal<'a>(writes: &'a [DomainWrite], denied: &[usize]) -> &'a IfRefused {
    let denied = || denied.iter().filter_map(|place| writes.get(*place)).map(|write| &write.if_refused);
    let is = |meaning: IfRefused| denied().find(|refused| **refused == meaning);
    is(IfRefused::Recompute).or(is(IfRefused::Fail)).or(denied().next()).unwrap_or(&IfRefused::Fail)
}

/// A report whose write was tried.
pub(super) struct Committed {
    pub(super) report: Report,
    pub(super) kept: Kept,
    pub(super) safe: Safe,
    pub(super) finished: Result<Finished, StoreError>,
    /// What the caller gets in place of the handler's answer, once this is written: its domain writes were refused.
    pub(super) instead: Option<FinishOutcome>,
}

impl Committed {
    /// What the caller gets, if the write of the report `ended` so. If `uncertain`, the handler's answer is true only once its domain
    /// writes commit, and that is not certain: then the caller gets `outcome-unknown`.
    pub(super) fn answered(
        instead: Option<FinishOutcome>,
        ended: FinishOutcome,
        kept: &Kept,
        uncertain: bool,
    ) -> FinishOutcome {
        use FinishOutcome::{
            Deferred, Fenced, Interrupted, NotCommitted, Refused, Released, Unknown, Unwritten, Written,
        };
        match (instead, ended) {
            (Some(Refused { answer, .. }), Written { expires_at }) => Refused { answer, expires_at },
            (Some(NotCommitted), Written { .. } | Released | Fenced) => NotCommitted,
            (Some(Interrupted), _) => Interrupted,
            (None, Deferred) if uncertain => Unknown,
            (None, Fenced | Unwritten) if !kept.writes.is_empty() => Unknown,
            (None, ended) => ended,
            (_, Written { .. } | Released | Fenced | Deferred | Unwritten) => Unknown,
            (_, ended) => ended,
        }
    }
}

impl Executor {
    /// Writes a report with its domain writes, until `stop_at`. If they are refused, writes what that means instead. `write` is the
    /// time for all writes together.
    pub(super) async fn commit(
        &self,
        execution: &Execution,
        seen: &Record,
        mut report: Report,
        status: Option<u16>,
        write: Duration,
        stop_at: Instant,
    ) -> Committed {
        let (mut instead, mut safe, mut computations) = (None, Safe::Nothing, 0);
        loop {
            let writes = match (&report, &instead) {
                (Report::Completed(_), None) => self.writes(execution, seen.answer_kind, stop_at).await,
                _ => Ok(Vec::new()),
            };
            let writes = writes.unwrap_or_else(|()| {
                (report, instead) = self.without_answer(seen, &report);
                self.forgets_writes(&report);
                Vec::new()
            });
            let kept = self.kept(seen, &report, writes, status, write).await;
            let start = Start::Seen(Box::new(seen.clone()));
            let finished = self.write(start, seen, &kept, stop_at, safe).await;
            let denied = match finished {
                Ok(Finished::Denied(denied)) => denied,
                finished => return Committed { report, kept, safe, finished, instead },
            };
            computations += 1;
            match refusal(&kept.writes, &denied) {
                IfRefused::Recompute
                    if computations < MAX_COMPUTATIONS && self.engine.world.instant() < stop_at => {}
                // Over what is kept, only the handler itself answers with a refusal.
                IfRefused::Answer(answer) if !seen.is_resumed() => {
                    let answer = self.as_replayed(answer);
                    instead = Some(FinishOutcome::Refused { answer: answer.clone(), expires_at: None });
                    report = Report::Completed(answer);
                }
                IfRefused::Recompute | IfRefused::Answer(_) | IfRefused::Fail => {
                    self.no_answer_set(&kept.writes, &denied);
                    let refused = report.clone();
                    (report, instead) = self.without_answer(seen, &report);
                    // First: from the queue, the writes are tried once more. If they are refused again, that is escalated.
                    if matches!(report, Report::Uncommitted) {
                        match self.send_report(execution, seen, &refused, &kept).await {
                            true => safe = Safe::Report,
                            false => self.forgets_writes(&report),
                        }
                    }
                }
            }
        }
    }

    /// The answer with only those headers that its replays have.
    pub(super) fn as_replayed(&self, Answer { head, body }: &Answer) -> Answer {
        Answer { head: self.operation().keeps.of(head), body: body.clone() }
    }

    /// Logs and counts that writes were refused, and that no answer is set for that.
    pub(super) fn no_answer_set(&self, writes: &[DomainWrite], denied: &[usize]) {
        let denied: Vec<_> = denied.iter().filter_map(|place| writes.get(*place)).collect();
        tracing::error!(
            ?denied,
            "domain writes were refused, and no answer is set for that: nothing is committed"
        );
        Count::Denied.add(self.operation().name());
    }

    /// Logs and counts that a write was refused when the handler added it.
    pub(super) fn refused_early(&self, error: &DomainWriteError) {
        tracing::error!(%error, "a domain write was refused, but the handler has answered: nothing is committed");
        Count::Denied.add(self.operation().name());
    }

    /// The domain writes that the handler wants, computed now if it has a closure for that.
    async fn writes(
        &self,
        execution: &Execution,
        kind: AnswerKind,
        stop_at: Instant,
    ) -> Result<Vec<DomainWrite>, ()> {
        let parts = execution.collected().parts();
        let (mut writes, compute) = parts.map_err(|error| self.refused_early(&error))?;
        let computed = match compute {
            // This is the handler's code: it may panic, or never end.
            Some(compute) => {
                let computed = AssertUnwindSafe(async move { compute().await }).catch_unwind();
                let (world, late) = (&self.engine.world, "it did not end in time");
                let computed = world.within(stop_at.since(world.instant()), computed).await;
                computed.map_or(Err(late.into()), |ended| ended.unwrap_or_else(|_| Err("it panicked".into())))
            }
            None => Ok(Vec::new()),
        };
        let records = self.engine.store.records_table();
        let added = computed.and_then(|computed| {
            Ok(computed.into_iter().try_for_each(|write| {
                write.check_answer(kind)?;
                writes.add(write, records)
            })?)
        });
        added.map(|()| writes.into_vec()).map_err(|error| {
            let error: &dyn std::error::Error = &*error;
            tracing::error!(error, "the domain writes could not be computed: nothing is committed");
        })
    }

    /// Counts an effect whose domain writes will not be tried again: operators must make them.
    fn forgets_writes(&self, report: &Report) {
        if matches!(report, Report::Uncommitted) {
            tracing::error!("an effect is recorded without its domain writes: they must be made by hand");
            Count::ContradictionUnsent.add(self.operation().name());
        }
    }

    /// The report that replaces this one if its writes cannot be committed. The execution may have done more than write.
    fn without_answer(&self, seen: &Record, report: &Report) -> (Report, Option<FinishOutcome>) {
        if seen.is_transactional() {
            return (Report::NotExecuted, Some(FinishOutcome::NotCommitted));
        }
        // What the handler did besides is kept. A retry computes its rows again, until the record is escalated.
        if seen.phases().is_some() {
            return (Report::NotExecuted, Some(FinishOutcome::Interrupted));
        }
        match report {
            // The next run of an operation that may run again repairs it.
            Report::Completed(answer) if answer.head.is_effect() && !self.operation().may_run_again() => {
                (Report::Uncommitted, Some(FinishOutcome::Unknown))
            }
            _ => (Report::PerhapsExecuted(HANDLER_FAILED), Some(FinishOutcome::Unknown)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::Table;

    // T55: the answer of one refused write is not the whole truth if another one has none.
    #[test]
    fn a_refusal_has_an_answer_only_if_every_refused_write_has_one() {
        let write =
            || Table::new("accounts", "id").put(json!({ "id": 1 })).condition("attribute_not_exists(id)");
        let answered = || write().or_answer(Answer::json(409, "{}"));
        let writes = [answered(), write(), write().or_recompute()];
        for (denied, expected) in [
            (&[0][..], "answer"),
            (&[1], "none"),
            (&[0, 1], "none"),
            (&[1, 0], "none"),
            (&[2], "recompute"),
            (&[0, 1, 2], "recompute"),
            (&[], "none"),
        ] {
            let means = match refusal(&writes, denied) {
                IfRefused::Recompute => "recompute",
                IfRefused::Answer(_) => "answer",
                IfRefused::Fail => "none",
            };
            assert_eq!(means, expected, "{denied:?}");
        }
    }
}
