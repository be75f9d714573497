//! Applies deferred reports under their workers' fence. Delivering one more than once is harmless.

use super::{Executor, Start, codec, report::Reporting};
use crate::{
    domain::{DomainWrite, Writes},
    message::DeferredReport,
    queue::WorkError,
    record::{
        Answer, Ending, Instead, Keeping, KeptAnswer, KeptBody, Made, MessageNext, Record, Report, State,
    },
    store::StoreError,
    time::Timestamp,
    time_budget::OFFLINE_WRITE_TIMEOUT,
};

/// What is left to do about a deferred report.
pub(crate) enum Left {
    /// Nothing.
    Nothing,
    /// Operators must be told of it, for this reason: no record takes it. This is the record as it is, if there is one.
    Escalation(&'static str, Option<Box<Record>>),
    /// Operators must be told of the alarms of this record.
    Alarms(Box<Record>),
}

impl Executor {
    /// Applies a deferred report under its worker's fence: if the record has moved on without that worker, nothing changes but its alarms.
    /// Applying it twice is harmless.
    ///
    /// # Errors
    /// If it could not be written, and a retry may succeed; or if the message is malformed.
    pub(crate) async fn deliver(
        &self,
        seen: Record,
        ended: Report,
        writes: &[DomainWrite],
    ) -> Result<Left, WorkError> {
        let stop_at = self.engine.world.instant().plus(OFFLINE_WRITE_TIMEOUT);
        let state = State::InProgress { lease_until: Timestamp::default() };
        let base = Record { state, ..seen.clone() };
        // Checked again: every sender to the queue could have made them.
        let records = self.engine.store.records_table();
        let can_be_read = |write: &DomainWrite| write.check_answer(base.answer_kind);
        let are_read = writes.iter().try_for_each(can_be_read);
        let writes = are_read.and_then(|()| Writes::of(writes.to_vec(), records));
        let writes = writes.map_err(|_| WorkError::Malformed("writes"))?.into_vec();
        let kept = match (&ended, seen.state) {
            (Report::Completed(answer), State::Completed { completed_at, .. }) => {
                self.kept_body(&base, answer.clone(), completed_at).await?.map(Report::Completed)
            }
            _ => Some(ended.clone()),
        };
        let mut reporting = Reporting::new(self, base, ended, stop_at);
        reporting.commits(writes);
        // A report beside its record has its body, wherever that is stored.
        reporting.answer = inline(&reporting.ending.report);
        let Some(kept) = kept else {
            // Until it comes again, the record shows its effect, so that no retry runs meanwhile. If this fails, it comes again all the same.
            let key = reporting.ending.base.key.clone();
            drop(self.write(Start::Unread(&key), &mut reporting, Ending::hand_back).await);
            return Err(WorkError::Unwritten);
        };
        reporting.ending.report = kept;
        self.delivered(&mut reporting).await
    }

    async fn delivered(&self, reporting: &mut Reporting) -> Result<Left, WorkError> {
        // `base` has the revision that the worker saw. If that is still current, no read is needed.
        let mut current = Some(Box::new(reporting.ending.base.clone()));
        loop {
            let start = current.take().map_or(Start::Absent, Start::Seen);
            let (next, seen) = match self.write(start, reporting, Ending::deliver).await {
                Ok(next) => next,
                Err(denied) => {
                    // Neither its caller nor the closure that computed its writes exists any more.
                    let instead = match reporting.refused_with(&denied) {
                        Some(refusal) => {
                            let (keeps, base) = (&self.operation().keeps, &reporting.ending.base);
                            let kept = self.engine.keep(base, refusal, keeps, OFFLINE_WRITE_TIMEOUT);
                            Instead::Answer(kept.await)
                        }
                        None => Instead::Refused,
                    };
                    reporting.reports(instead);
                    current = Some(Box::new(reporting.ending.base.clone()));
                    continue;
                }
            };
            let so_far = &mut reporting.so_far;
            match (next, seen) {
                (MessageNext::Escalate(reason), seen) => {
                    return Ok(Left::Escalation(reason, seen));
                }
                (MessageNext::Compare, Some(seen)) => {
                    so_far.differs = Some(self.differ(&reporting.ending.report, &seen).await?);
                    current = Some(seen);
                }
                (MessageNext::Done | MessageNext::TooLate, Some(seen)) if seen.untold().is_some() => {
                    return Ok(Left::Alarms(seen));
                }
                (MessageNext::Done, _) => return Ok(Left::Nothing),
                (MessageNext::TooLate, seen) => {
                    let state = seen.map(|seen| seen.state.name());
                    tracing::warn!(state, "a report came too late: the record has moved on without it");
                    return Ok(Left::Nothing);
                }
                (MessageNext::Waits, _) => {
                    tracing::error!(
                        "another execution of this operation is not over: this report is retried"
                    );
                    return Err(WorkError::Unwritten);
                }
                _ => return Err(WorkError::Unwritten),
            }
        }
    }

    /// Keeps the last phase of `wanted`, which its worker could not write. If the record has another one, that is an alarm.
    ///
    /// # Errors
    /// As [`deliver`](Self::deliver).
    pub(crate) async fn deliver_phase(
        &self,
        wanted: Record,
        message: &DeferredReport,
    ) -> Result<Left, WorkError> {
        let stop_at = self.engine.world.instant().plus(OFFLINE_WRITE_TIMEOUT);
        let kept = wanted.phases().map_or(&[][..], |phases| &phases.kept);
        let Some((phase, before)) = kept.split_last() else {
            return Err(WorkError::Malformed("phases"));
        };
        let (place, phase) = (before.len(), phase.clone());
        let key = wanted.key.clone();
        let keeping = Keeping { worker: wanted, place, phase, of: Made::Call };
        let report = || Ok(message.clone());
        let kept =
            self.engine.keeps(&keeping, Start::Unread(&key), stop_at, (&[], &report), Keeping::deliver);
        match kept.await {
            Ok((MessageNext::Escalate(reason), current)) => Ok(Left::Escalation(reason, current)),
            Ok((_, Some(record))) if record.untold().is_some() => Ok(Left::Alarms(record)),
            Ok(_) => Ok(Left::Nothing),
            Err(_) => Err(WorkError::Unwritten),
        }
    }

    /// Whether the report has another answer than the record, as far as their bodies are kept.
    async fn differ(&self, report: &Report, current: &Record) -> Result<bool, StoreError> {
        let (Report::Completed(ours), State::Completed { answer: theirs, .. }) = (report, &current.state)
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

/// The answer that came in a message, if its body did.
fn inline(report: &Report) -> Option<Answer> {
    let Report::Completed(KeptAnswer { head, body }) = report else { return None };
    let KeptBody::Inline { bytes, encoding, length } = body.clone() else { return None };
    let body = codec::decode(bytes, encoding, length).ok()?;
    Some(Answer { head: head.clone(), body })
}
