//! Applies deferred reports under their workers' fence. Delivering one more than once is harmless.

use std::sync::Arc;

use super::{
    Applied, Effort, Executor, Moment, Retries, Start, Step, codec, commit,
    report::{Finished, Kept},
};
use crate::{
    domain::{DomainWrite, IfRefused, Writes},
    message::DeferredReport,
    queue::WorkError,
    record::{
        Answer, Ended, GONE, HANDLER_FAILED, KeptAnswer, KeptBody, NotTaken, Note, Overtaken, Record, Safe,
        State,
    },
    store::StoreError,
    time::{Instant, Timestamp},
    time_budget::{OFFLINE_WRITE_TIMEOUT, WRITE_BACKOFF},
};

const REFUSED: &str = "the domain writes of its report are refused: no part of it is written";
const TWO_ANSWERS: &str = "its client may have got another answer than the record has";

const OTHER_PHASE: &str = "a call was made whose result its record does not have, or has otherwise";

/// Why a report is escalated, and then applied again.
pub(crate) const DOUBLE_EXECUTION: &str = "another execution certainly or possibly ran the operation too";

/// A deferred report that has to be escalated.
pub(crate) struct Escalation {
    /// Why.
    pub(crate) reason: &'static str,
    /// The record as it is, if there is one.
    pub(crate) current: Option<Box<Record>>,
}

impl Executor {
    /// Applies a deferred report under its worker's fence: if the record has moved on without that worker, nothing changes. Applying
    /// it twice is harmless. It is [`Safe::Alarm`] once a [double execution](DOUBLE_EXECUTION) of it has been escalated.
    ///
    /// # Errors
    /// If it could not be written, and a retry may succeed; or if the message is malformed.
    pub(crate) async fn apply(
        &self,
        report: &DeferredReport,
        safe: Safe,
    ) -> Result<Option<Escalation>, WorkError> {
        let (seen, ended) = report.read()?;
        let stop_at = self.engine.world.instant().plus(OFFLINE_WRITE_TIMEOUT);
        let Some(ended) = ended else { return self.apply_phase(&seen, stop_at).await };
        let state = State::InProgress { lease_until: Timestamp::default() };
        let base = Record { state, ..seen.clone() };
        let escalated = |current, reason| Ok(Some(Escalation { reason, current }));
        let mut kept = match (ended, seen.state) {
            (Ended::Completed(answer), State::Completed { completed_at, .. }) => {
                let is_effect = answer.head.is_effect();
                match self.kept_body(&base, answer, completed_at).await? {
                    Some(answer) => {
                        // Checked again: every sender to the queue could have made them.
                        let records = self.engine.store.records_table();
                        let can_be_read = |write: &DomainWrite| write.check_answer(base.answer_kind);
                        let writes = report.writes().iter().try_for_each(can_be_read);
                        let writes = writes.and_then(|()| Writes::of(report.writes().to_vec(), records));
                        let writes = writes.map_err(|_| WorkError::Malformed("writes"))?.into_vec();
                        Kept { ended: Ended::Completed(answer), writes: writes.into() }
                    }
                    None => {
                        // Until then the record shows it, so that no retry runs meanwhile.
                        if is_effect {
                            // If this fails too, the message comes again.
                            let _ = self.mark_effect(&base, report.writes().into(), stop_at).await;
                        }
                        return Err(WorkError::Unwritten);
                    }
                }
            }
            (ended, _) => ended.into(),
        };
        // `base` has the revision that the worker saw. If that is still current, no read is needed.
        let mut start = Start::Seen(Box::new(base.clone()));
        loop {
            let reported = self.reported(&base, &kept, safe);
            let current = match self.write(start, &base, &kept, stop_at, safe).await {
                Ok(Finished::Written(_)) => return Ok(None),
                Ok(Finished::Refused(current)) => current,
                // Nothing was done: a retry may run.
                Ok(Finished::Gone) if !reported.matters() => return Ok(None),
                Ok(Finished::Gone) => {
                    if kept.ended.reports_an_effect() && !kept.writes.is_empty() {
                        // Its rows are lost with its generation, but the effect is not.
                        let _ = self.mark_effect(&base, kept.writes, stop_at).await;
                    }
                    return escalated(None, GONE);
                }
                Ok(Finished::Denied(denied)) => {
                    // Neither its caller nor the closure that computed its writes exists any more.
                    let refusal = commit::refusal(&kept.writes, &denied);
                    let (IfRefused::Answer(answer), false) = (refusal, base.is_resumed()) else {
                        if base.phases().is_some() {
                            kept = Ended::NotExecuted(Some(Note::new(HANDLER_FAILED))).into();
                            start = Start::Unread(&base.key);
                            continue;
                        }
                        if !kept.ended.reports_an_effect() {
                            return escalated(None, REFUSED);
                        }
                        let marked = self.mark_effect(&base, kept.writes, stop_at).await;
                        return escalated(marked.map_err(|_| WorkError::Unwritten)?, REFUSED);
                    };
                    let keeps = &self.operation().keeps;
                    let answer = self.engine.keep(&base, answer, keeps, OFFLINE_WRITE_TIMEOUT).await;
                    kept = Ended::Completed(answer).into();
                    start = Start::Unread(&base.key);
                    continue;
                }
                Err(_) => return Err(WorkError::Unwritten),
            };
            return match reported.overtaken_by(&current, self.engine.world.now()) {
                Overtaken::Waits => {
                    tracing::error!(
                        "another execution of this operation is not over: this report is retried"
                    );
                    Err(WorkError::Unwritten)
                }
                Overtaken::Double => escalated(Some(current), DOUBLE_EXECUTION),
                Overtaken::Escalated(reason) => escalated(Some(current), reason),
                // If its domain writes could be refused, its caller got no answer.
                Overtaken::Compared
                    if !kept.can_be_refused() && self.differ(&kept.ended, &current).await? =>
                {
                    escalated(Some(current), TWO_ANSWERS)
                }
                Overtaken::Nothing | Overtaken::Compared => {
                    let state = current.state.name();
                    tracing::warn!(state, "a report came too late: the record has moved on without it");
                    Ok(None)
                }
            };
        }
    }

    /// Keeps the last phase of `wanted`, which its worker could not write.
    async fn apply_phase(&self, wanted: &Record, stop_at: Instant) -> Result<Option<Escalation>, WorkError> {
        let kept = wanted.phases().map_or(&[][..], |phases| &phases.kept);
        let Some((phase, before)) = kept.split_last() else {
            return Err(WorkError::Malformed("phases"));
        };
        let step = |current: Option<&Record>, Moment { revision, now }: Moment| match current
            .map(|current| current.keep(wanted, before.len(), phase, revision, now))
        {
            Some(Ok(next)) => Step::Write(next.into(), true),
            Some(Err(NotTaken::Known)) => Step::Stop(true),
            Some(Err(NotTaken::Differs)) | None => Step::Stop(false),
        };
        let effort = Effort { until: Some(stop_at), backoff: WRITE_BACKOFF, retries: Retries::All };
        match self.engine.apply(Start::Unread(&wanted.key), effort, step).await {
            Ok(Applied::Written(..) | Applied::Stopped(true, _)) => Ok(None),
            Ok(Applied::Stopped(false, current)) => Ok(Some(Escalation { reason: OTHER_PHASE, current })),
            Err(_) => Err(WorkError::Unwritten),
        }
    }

    /// Whether the report has another answer than the record, as far as their bodies are kept.
    async fn differ(&self, ended: &Ended, current: &Record) -> Result<bool, StoreError> {
        let (Ended::Completed(ours), State::Completed { answer: theirs, .. }) = (ended, &current.state)
        else {
            return Ok(false);
        };
        if ours.head.status() != theirs.head.status() || ours.body_length() != theirs.body_length() {
            return Ok(true);
        }
        let body = async |kept| match self.engine.body(&current.key, kept, None).await {
            // No retry can read it either.
            Err(error) if !error.is_passing() => Ok(None),
            body => body,
        };
        let bodies = body(ours).await?.zip(body(theirs).await?);
        Ok(bodies.is_some_and(|(ours, theirs)| ours != theirs))
    }

    /// Notes in the record an effect whose report cannot be applied, and returns the record. An operation that may run again is
    /// left alone: its next run repairs it.
    async fn mark_effect(
        &self,
        base: &Record,
        writes: Arc<[DomainWrite]>,
        stop_at: Instant,
    ) -> Result<Option<Box<Record>>, StoreError> {
        if self.operation().may_run_again() {
            return Ok(None);
        }
        // With its writes: a record that is gone, perhaps together with its rows, is not written anew.
        let kept = Kept { ended: Ended::Uncommitted, writes };
        Ok(match self.write(Start::Unread(&base.key), base, &kept, stop_at, Safe::Report).await? {
            Finished::Written(current) | Finished::Refused(current) => Some(current),
            Finished::Gone | Finished::Denied(_) => None,
        })
    }

    /// Stores a body that came in the message. Stores a body outside the record again if it may be deleted soon. `None` if the
    /// store fails.
    async fn kept_body(
        &self,
        record: &Record,
        answer: KeptAnswer,
        kept_at: Timestamp,
    ) -> Result<Option<KeptAnswer>, WorkError> {
        let keeps = &self.operation().keeps;
        let KeptAnswer { head, body } = answer;
        let KeptBody::Inline { bytes, encoding, length } = body else {
            let kept = self.engine.keep_anew(record, body, kept_at, OFFLINE_WRITE_TIMEOUT).await;
            let kept = kept.inspect_err(|error| {
                tracing::warn!(cause = error.cause(), "the body of a report could not be stored again yet");
            });
            return Ok(kept.ok().map(|body| KeptAnswer { head: keeps.of(&head), body }));
        };
        let body = codec::decode(bytes, encoding, length).map_err(|_| WorkError::Malformed("body"))?;
        Ok(self.engine.keep_since(kept_at, record, &Answer { head, body }, keeps).await)
    }
}
