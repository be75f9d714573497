//! Applies deferred reports under their workers' fence. Delivering one more than once is harmless.

use super::{
    Applied, Effort, Executor, Moment, Retries, Start, Step, codec,
    report::{Reporting, Stands},
};
use crate::{
    domain::{DomainWrite, Writes},
    queue::WorkError,
    record::{
        self, Answer, Delivered, Ending, Instead, KeptAnswer, KeptBody, NotTaken, Record, Report, State,
    },
    store::StoreError,
    time::Timestamp,
    time_budget::{OFFLINE_WRITE_TIMEOUT, WRITE_BACKOFF},
};

const OTHER_PHASE: &str = "a call was made whose result its record does not have, or has otherwise";

/// Why a report is escalated, and then applied again.
const DOUBLE_EXECUTION: &str = "another execution certainly or possibly ran the operation too";

/// What operators must be told of a deferred report, before anything else is done about it.
pub(crate) struct Escalation {
    /// Why.
    pub(crate) reason: &'static str,
    /// The record as it is, if there is one.
    pub(crate) current: Option<Box<Record>>,
    /// Whether it is a second execution.
    pub(crate) is_double: bool,
}

/// A deferred report that is being delivered.
pub(crate) struct Delivery<'a> {
    executor: &'a Executor,
    reporting: Reporting,
    /// The record as it was last seen; `None` if it has to be read.
    current: Option<Option<Box<Record>>>,
}

impl Delivery<'_> {
    /// What operators must be told next; `None` once the message is done with. Dropped before that, it is as if it had not come.
    ///
    /// # Errors
    /// If it must come again.
    pub(crate) async fn next(&mut self) -> Result<Option<Escalation>, WorkError> {
        let Self { executor, reporting, current } = self;
        // What operators were told may have taken time.
        reporting.stop_at = executor.engine.world.instant().plus(OFFLINE_WRITE_TIMEOUT);
        loop {
            let key = reporting.ending.base.key.clone();
            let start = match current.take() {
                Some(Some(record)) => Start::Seen(record),
                Some(None) => Start::Absent,
                None => Start::Unread(&key),
            };
            let (next, seen) = match executor.write(start, reporting, Ending::deliver).await {
                Stands::Next(next, seen) => (next, seen),
                Stands::Denied(denied) => {
                    // Neither its caller nor the closure that computed its writes exists any more.
                    let instead = match reporting.refused_with(&denied) {
                        Some(refusal) => {
                            let (engine, keeps) = (&executor.engine, &executor.operation().keeps);
                            let base = &reporting.ending.base;
                            Instead::Answer(engine.keep(base, refusal, keeps, OFFLINE_WRITE_TIMEOUT).await)
                        }
                        None => Instead::Refused,
                    };
                    reporting.reports(instead);
                    continue;
                }
            };
            *current = Some(seen.clone());
            let so_far = &mut reporting.so_far;
            return match (next, seen) {
                (record::Step::Alarm, Some(seen)) => {
                    so_far.alarmed = Some(seen.attempt);
                    Ok(Some(Escalation { reason: DOUBLE_EXECUTION, current: Some(seen), is_double: true }))
                }
                (record::Step::Escalate(reason), seen) => {
                    so_far.escalated = true;
                    Ok(Some(Escalation { reason, current: seen, is_double: false }))
                }
                (record::Step::Compare, Some(seen)) => {
                    so_far.differs = Some(executor.differ(&reporting.ending.report, &seen).await?);
                    continue;
                }
                (record::Step::End(Delivered::Done), _) => Ok(None),
                (record::Step::End(Delivered::TooLate), seen) => {
                    let state = seen.map(|seen| seen.state.name());
                    tracing::warn!(state, "a report came too late: the record has moved on without it");
                    Ok(None)
                }
                (record::Step::End(Delivered::Waits), _) => {
                    tracing::error!(
                        "another execution of this operation is not over: this report is retried"
                    );
                    Err(WorkError::Unwritten)
                }
                _ => Err(WorkError::Unwritten),
            };
        }
    }
}

impl Executor {
    /// Begins to apply a deferred report under its worker's fence: if the record has moved on without that worker, nothing changes.
    /// Applying it twice is harmless.
    ///
    /// # Errors
    /// If it could not be written, and a retry may succeed; or if the message is malformed.
    pub(crate) async fn deliver(
        &self,
        seen: Record,
        ended: Report,
        writes: &[DomainWrite],
    ) -> Result<Delivery<'_>, WorkError> {
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
        let Some(kept) = kept else {
            // Until it comes again, the record shows its effect, so that no retry runs meanwhile. If this fails, it comes again all the same.
            let key = reporting.ending.base.key.clone();
            self.write(Start::Unread(&key), &mut reporting, Ending::hand_back).await;
            return Err(WorkError::Unwritten);
        };
        reporting.ending.report = kept;
        // `base` has the revision that the worker saw. If that is still current, no read is needed.
        let current = Some(Some(Box::new(reporting.ending.base.clone())));
        Ok(Delivery { executor: self, reporting, current })
    }

    /// Keeps the last phase of `wanted`, which its worker could not write. Returns what operators must be told, if the record has another
    /// one.
    ///
    /// # Errors
    /// As [`deliver`](Self::deliver).
    pub(crate) async fn deliver_phase(&self, wanted: &Record) -> Result<Option<Escalation>, WorkError> {
        let stop_at = self.engine.world.instant().plus(OFFLINE_WRITE_TIMEOUT);
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
            Ok(Applied::Stopped(false, current)) => {
                Ok(Some(Escalation { reason: OTHER_PHASE, current, is_double: false }))
            }
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
