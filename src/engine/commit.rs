//! Domain writes that commit with an operation's completion.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;

use super::{
    Applied, Change, Effort, Execution, Executor, Moment, Retries, Start, Step,
    report::{Escalation, FinishOutcome, Finished, Kept, Report, is_same_request},
};
use crate::{
    domain::{DomainWrite, DomainWriteError, IfRefused},
    record::{Answer, Record, State, UnknownCause},
    store::{Companion, StoreError},
    telemetry::{self, Count},
    time::Instant,
    time_budget::{MAX_COMMITS, WRITE_BACKOFF},
};

/// A record with the writes that commit with it, if it is completed by them.
pub(crate) fn completing(record: Record, writes: &[DomainWrite]) -> Change {
    match record.state {
        State::Completed { .. } if !writes.is_empty() => {
            let record = Record { with_writes: true, ..record };
            Change::with(record, writes.iter().cloned().map(Companion::Domain).collect())
        }
        _ => record.into(),
    }
}

/// What the failed conditions of some writes mean together.
pub(super) enum Refusal {
    /// Compute them again.
    Stale,
    /// The operation is refused with this answer.
    Answer(Answer),
    /// Nobody foresaw it.
    NoAnswerSet,
}

/// What it means that the writes at these places were denied. A stale read first: what was computed from it means nothing.
pub(super) fn refusal(writes: &[DomainWrite], denied: &[usize]) -> Refusal {
    let denied = || denied.iter().filter_map(|place| writes.get(*place)).map(|write| &write.if_refused);
    if denied().any(|meaning| *meaning == IfRefused::Recompute) {
        return Refusal::Stale;
    }
    let answers = denied().map(|meaning| match meaning {
        IfRefused::Answer(answer) => Some(answer.clone()),
        IfRefused::Fail | IfRefused::Recompute => None,
    });
    // If one of them was not foreseen, no answer tells the whole truth.
    match answers.collect::<Option<Vec<_>>>().and_then(|answers| answers.into_iter().next()) {
        Some(answer) => Refusal::Answer(answer),
        None => Refusal::NoAnswerSet,
    }
}

/// How long a report may take.
#[derive(Clone, Copy)]
pub(super) struct Time {
    pub(super) write: Duration,
    pub(super) stop_at: Instant,
}

/// A report whose write was tried.
pub(super) struct Committed {
    pub(super) report: Report,
    pub(super) kept: Kept,
    pub(super) finished: Result<Finished, StoreError>,
    pub(super) instead: Instead,
}

/// What took the place of the handler's report, because its domain writes were refused.
pub(super) enum Instead {
    Nothing,
    /// The answer that the refused write has for it.
    Answer(Answer),
    /// Nothing is committed.
    NotCommitted,
    /// Nothing is committed, and what the handler did besides is not known.
    Unknown,
    /// The same, and the handler has answered that it had an effect.
    UnknownEffect,
}

impl Instead {
    /// What the caller gets. If `hangs`, the handler's own answer is true only once its domain writes
    /// commit, and that is not certain: the caller then hears that nobody knows yet.
    pub(super) fn of(self, ended: FinishOutcome, kept: &Kept, hangs: bool) -> FinishOutcome {
        match (self, ended) {
            (Self::Answer(answer), FinishOutcome::Written { expires_at }) => {
                FinishOutcome::Refused { answer, expires_at }
            }
            (Self::NotCommitted, FinishOutcome::Written { .. } | FinishOutcome::Fenced) => {
                FinishOutcome::NotCommitted
            }
            (Self::Nothing, FinishOutcome::Deferred) if hangs => FinishOutcome::Unknown,
            (Self::Nothing, FinishOutcome::Fenced | FinishOutcome::Unwritten)
                if !kept.writes().is_empty() =>
            {
                FinishOutcome::Unknown
            }
            (
                Self::Answer(_) | Self::NotCommitted | Self::Unknown | Self::UnknownEffect,
                FinishOutcome::Written { .. }
                | FinishOutcome::Fenced
                | FinishOutcome::Deferred
                | FinishOutcome::Unwritten,
            ) => FinishOutcome::Unknown,
            (_, ended) => ended,
        }
    }
}

impl Executor {
    /// Writes a report with its domain writes. If they are refused, writes what that means instead.
    pub(super) async fn commit(
        &self,
        execution: &Execution,
        seen: &Record,
        mut report: Report,
        status: Option<u16>,
        time: Time,
    ) -> Committed {
        let (mut instead, mut commits) = (Instead::Nothing, 0);
        loop {
            let writes = match (&report, &instead) {
                (Report::Completed(_), Instead::Nothing) => self.writes(execution, time.stop_at).await,
                _ => Ok(Vec::new()),
            };
            let (writes, failed) = writes.map_or_else(|()| (Vec::new(), true), |writes| (writes, false));
            if failed {
                (report, instead) = without_answer(seen, &report);
            }
            let kept = self.kept(seen, &report, writes, status, time.write).await;
            let start = Start::Seen(Box::new(seen.clone()));
            let finished = self.write(start, seen, &kept, time.stop_at, Escalation::Pending).await;
            let denied = match finished {
                Ok(Finished::Denied(denied)) => denied,
                // Released meanwhile, by somebody who knew less: a retry must not have the effect again.
                Ok(Finished::Refused(current, fenced))
                    if matches!(instead, Instead::UnknownEffect)
                        && !self.is_double(seen, &kept, &current) =>
                {
                    let finished = Ok(match self.claim_effect(seen, time.stop_at).await {
                        // Taken over in between.
                        Ok(Claim::Claimed(record)) if self.is_double(seen, &kept, &record) => {
                            Finished::Refused(record, fenced)
                        }
                        Ok(Claim::Claimed(record)) => Finished::Written(record),
                        Ok(Claim::Unclaimed(_)) | Err(_) => Finished::Refused(current, fenced),
                    });
                    return Committed { report, kept, finished, instead };
                }
                finished => return Committed { report, kept, finished, instead },
            };
            commits += 1;
            match refusal(kept.writes(), &denied) {
                Refusal::Stale if commits < MAX_COMMITS && self.engine.world.instant() < time.stop_at => {}
                Refusal::Answer(answer) => {
                    let answer = self.as_replayed(answer);
                    instead = Instead::Answer(answer.clone());
                    report = Report::Completed(answer);
                }
                Refusal::Stale | Refusal::NoAnswerSet => {
                    self.no_answer_set(kept.writes(), &denied);
                    (report, instead) = without_answer(seen, &report);
                }
            }
        }
    }

    /// An answer with those headers alone that its replays have.
    pub(super) fn as_replayed(&self, Answer { head, body }: Answer) -> Answer {
        Answer { head: head.kept(&self.operation().kept_headers), body }
    }

    /// Reports that writes were refused, without a word of what that means.
    pub(super) fn no_answer_set(&self, writes: &[DomainWrite], denied: &[usize]) {
        let denied: Vec<_> = denied.iter().filter_map(|place| writes.get(*place)).collect();
        tracing::error!(?denied, "nobody foresaw that domain writes are refused: nothing is committed");
        Count::Denied.add(self.operation().name());
    }

    /// Reports that a write was refused when the handler handed it over.
    pub(super) fn refused_early(&self, error: &DomainWriteError) {
        tracing::error!(
            %error,
            "a domain write was refused when it was handed over, but the handler has answered: nothing is committed"
        );
        Count::Denied.add(self.operation().name());
    }

    /// Claims the record of `base` for an effect whose domain writes are not committed: nobody releases it for a retry, and no
    /// earlier try of those writes lands any more. An operation that may run again mends itself by that, and is left alone.
    pub(super) async fn claim_effect(&self, base: &Record, stop_at: Instant) -> Result<Claim, StoreError> {
        let step = |current: Option<&Record>, Moment { revision, now }: Moment| {
            let is_ours = |current: &&Record| {
                let one_generation = current.created_at == base.created_at && is_same_request(base, current);
                one_generation && !self.operation().may_run_again()
            };
            let Some(current) = current.filter(is_ours) else { return Step::Stop(false) };
            let Some(claimed) = current.claim(revision, now, now) else { return Step::Stop(false) };
            let was_live = matches!(current.state, State::InProgress { .. });
            let found_dead = was_live && matches!(claimed.state, State::Unknown { .. });
            Step::Write(claimed.into(), found_dead)
        };
        let effort = Effort { until: Some(stop_at), backoff: WRITE_BACKOFF, retries: Retries::All };
        match self.engine.apply(Start::Unread(&base.key), effort, step).await {
            Ok(Applied::Written(found_dead, record)) => {
                if found_dead {
                    // Found dead here, before the stale function came.
                    telemetry::lease_expired(&record, self.engine.world.now());
                }
                Ok(Claim::Claimed(record))
            }
            Ok(Applied::Stopped(_, current)) => Ok(Claim::Unclaimed(current)),
            Err(unapplied) => {
                let cause = unapplied.error.cause();
                tracing::error!(cause, "an effect without its domain writes could not be claimed");
                Count::Contradicted.add(self.operation().name());
                Err(unapplied.error)
            }
        }
    }

    /// The domain writes that the handler wants, computed now if it has a closure for that.
    async fn writes(&self, execution: &Execution, stop_at: Instant) -> Result<Vec<DomainWrite>, ()> {
        let parts = execution.pending().parts();
        let (current, compute) = parts.map_err(|error| self.refused_early(&error))?;
        let computed = match compute {
            // It is the handler's code: it may panic, or never end.
            Some(compute) => {
                let computed = AssertUnwindSafe(async move { compute().await }).catch_unwind();
                tokio::select! {
                    biased;
                    computed = computed => computed.unwrap_or_else(|_| Err("it panicked".into())),
                    () = self.engine.world.sleep(stop_at.since(self.engine.world.instant())) => {
                        Err("it did not end in time".into())
                    }
                }
            }
            None => Ok(Vec::new()),
        };
        let writes = computed.and_then(|computed| Ok(current.with(computed)?));
        writes.map_err(|error| {
            let error: &dyn std::error::Error = &*error;
            tracing::error!(error, "the domain writes could not be computed: nothing is committed");
        })
    }
}

/// The report of an execution whose writes cannot be committed, instead of this one. It may have done more than write.
fn without_answer(seen: &Record, report: &Report) -> (Report, Instead) {
    if seen.transactional {
        return (Report::NotExecuted, Instead::NotCommitted);
    }
    let instead = match report {
        Report::Completed(answer) if answer.head.is_effect() => Instead::UnknownEffect,
        _ => Instead::Unknown,
    };
    (Report::PerhapsExecuted(UnknownCause::HandlerFailed), instead)
}

/// What became of a record that was to be claimed.
pub(super) enum Claim {
    Claimed(Box<Record>),
    /// It is claimed, completed or certainly released already; or gone, or another request's.
    Unclaimed(Option<Box<Record>>),
}
