//! Applies deferred reports under their workers' fence. Delivering one more than once is harmless.

use std::sync::Arc;

use super::{
    Executor, Start, codec,
    commit::{self, Refusal},
    report::{Finished, Kept},
};
use crate::{
    domain::{DomainWrite, Writes},
    message::{DeferredReport, DoubleExecution},
    queue::WorkError,
    record::{Answer, Ended, Evidence, KeptAnswer, KeptBody, Record, SettledBy, State},
    store::StoreError,
    time::{Instant, Timestamp},
    time_budget::{OFFLINE_WRITE_TIMEOUT, QUEUED_BODY_TIMEOUT},
};

/// What became of a deferred report.
pub(crate) enum Delivered {
    /// It is written.
    Written,
    /// The record has moved on without it, and does not contradict it.
    Overtaken,
    /// It reports an execution, and so does another worker.
    Double(Box<DoubleExecution>),
    /// It contradicts this record: one has an effect or domain writes, and the other one has not.
    Denied(Box<Record>),
    /// It reports a certain or possible execution. Its record is another request's or a later generation's now, or has been
    /// gone for so long that it may have been settled and deleted.
    Gone,
    /// Its domain writes were refused, and no answer is set for that: nothing of it is written. If it reports an effect, the record
    /// notes that, and this is the record.
    Refused(Option<Box<Record>>),
    /// It could not be written; a retry may succeed.
    Unwritten,
}

impl Executor {
    /// Applies a deferred report under its worker's fence: if the record has moved on without that worker, nothing changes. Applying
    /// it twice is harmless. `escalated` says that a [double execution](Delivered::Double) of this report has been escalated. Before
    /// that, nothing that another execution left is overwritten.
    ///
    /// # Errors
    /// If the message is malformed: no retry helps.
    pub(crate) async fn apply(
        &self,
        report: &DeferredReport,
        escalated: bool,
    ) -> Result<Delivered, WorkError> {
        let wanted = report.record()?;
        let stop_at = self.engine.world.instant().plus(OFFLINE_WRITE_TIMEOUT);
        let base =
            Record { state: State::InProgress { lease_until: Timestamp::default() }, ..wanted.clone() };
        let not_begun = wanted.is_not_begun();
        let because = wanted.last_failure;
        let mut kept = match wanted.state {
            State::Completed { answer, completed_at, .. } => {
                let is_effect = answer.head.is_effect();
                match self.kept_body(&base, answer, completed_at).await? {
                    Some(answer) => {
                        // Checked again: every sender to the queue could have made them.
                        let records = self.engine.store.records_table();
                        let writes = Writes::of(report.writes().to_vec(), records);
                        let writes = writes.map_err(|_| WorkError::Malformed("writes"))?.into_vec();
                        Kept { ended: Ended::Completed(answer), writes: writes.into() }
                    }
                    None => {
                        // Until then the record shows it, so that no retry runs meanwhile.
                        if is_effect {
                            // If this fails too, the message comes again.
                            let _ = self.mark_effect(&base, report.writes().into(), stop_at).await;
                        }
                        return Ok(Delivered::Unwritten);
                    }
                }
            }
            State::FailedRetryable { .. } if not_begun => Ended::NotBegun.into(),
            State::FailedRetryable { .. } => Ended::NotExecuted(because).into(),
            State::Unknown { .. } if wanted.reported == Some(Evidence::Effect) => Ended::Uncommitted.into(),
            State::Unknown { cause, .. } => Ended::PerhapsExecuted(cause, because).into(),
            State::Pending | State::InProgress { .. } => return Err(WorkError::Malformed("state")),
        };
        // `base` has the revision that the worker saw. If that is still current, no read is needed.
        let mut start = Start::Seen(Box::new(base.clone()));
        let mut escalated = escalated;
        loop {
            let reported = self.reported(&base, &kept, escalated);
            let current = match self.write(start, &base, &kept, stop_at, escalated).await {
                Ok(Finished::Written(_)) => return Ok(Delivered::Written),
                Ok(Finished::Refused(current)) => current,
                // Nothing was done: a retry may run.
                Ok(Finished::Gone) if !reported.matters() => return Ok(Delivered::Overtaken),
                Ok(Finished::Gone) => {
                    if kept.ended.reports_an_effect() && !kept.writes.is_empty() {
                        // Its rows are lost with its generation, but the effect is not.
                        let _ = self.mark_effect(&base, kept.writes, stop_at).await;
                    }
                    return Ok(Delivered::Gone);
                }
                Ok(Finished::Denied(denied)) => {
                    // Neither its caller nor the closure that computed its writes exists any more.
                    let Refusal::Answer(answer) = commit::refusal(&kept.writes, &denied) else {
                        if !kept.ended.reports_an_effect() {
                            return Ok(Delivered::Refused(None));
                        }
                        return Ok(match self.mark_effect(&base, kept.writes, stop_at).await {
                            Ok(current) => Delivered::Refused(current),
                            Err(_) => Delivered::Unwritten,
                        });
                    };
                    let also = &self.operation().kept_headers;
                    let answer = self.engine.keep(&base, &answer, also, OFFLINE_WRITE_TIMEOUT).await;
                    kept = Ended::Completed(answer).into();
                    start = Start::Unread(&base.key);
                    continue;
                }
                Err(_) => return Ok(Delivered::Unwritten),
            };
            // The key belongs to another request now, or to a later generation. Its record will never hold this report's result.
            let double = reported.is_double(&current, self.engine.world.now());
            if reported.matters() && !base.is_same_request(&current)
                || !double && reported.belongs_to_earlier_generation(&current)
            {
                return Ok(Delivered::Gone);
            }
            // A refusal, which its caller may have got, must not be forgotten if the other execution turns out to have an effect.
            let refused = kept.ended.is_refusal();
            let waits = match current.state {
                State::InProgress { .. } => {
                    let now = self.engine.world.now();
                    refused || reported.meets_another(&current, now) || !kept.writes.is_empty()
                }
                State::Unknown { .. } => refused,
                _ => false,
            };
            if waits {
                // This report may be the only proof of what was done.
                tracing::error!("another execution of this operation is not over: this report is retried");
                return Ok(Delivered::Unwritten);
            }
            if double && !escalated && !report.was_escalated_with(&current) {
                return Ok(self.double(report, &base, &kept, &current).await);
            }
            if double && !escalated && matches!(current.state, State::Unknown { .. }) {
                (start, escalated) = (Start::Seen(current), true);
                continue;
            }
            // Its caller may have got the refusal.
            let has_effect =
                matches!(&current.state, State::Completed { answer, .. } if answer.head.is_effect());
            let contradicts = refused && has_effect;
            if !double && (contradicts || reported.is_missing_in(&current, self.engine.world.now())) {
                return Ok(Delivered::Denied(current));
            }
            let state = current.state.name();
            tracing::warn!(state, "a report came too late: the record has moved on without it");
            return Ok(Delivered::Overtaken);
        }
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
        Ok(match self.write(Start::Unread(&base.key), base, &kept, stop_at, true).await? {
            Finished::Written(current) | Finished::Refused(current) => Some(current),
            Finished::Gone | Finished::Denied(_) => None,
        })
    }

    /// The double execution, certain or possible, of two workers. If the store cannot return their answers now, the message is
    /// retried.
    async fn double(
        &self,
        report: &DeferredReport,
        base: &Record,
        kept: &Kept,
        current: &Record,
    ) -> Delivered {
        let mut ours = base.clone();
        if let Ended::Completed(answer) = &kept.ended {
            let (now, by) = (self.engine.world.now(), SettledBy::Worker);
            ours.state = State::Completed { answer: answer.clone(), completed_at: now, by, expires_at: now };
        }
        let mut answers = [None, None];
        for (record, answer) in [&ours, current].into_iter().zip(&mut answers) {
            match self.engine.bounded(None, self.engine.replay(record)).await {
                Ok(replay) => {
                    *answer = replay.filter(|replay| !replay.body_omitted).map(|replay| replay.answer)
                }
                Err(error) if error.is_passing() => return Delivered::Unwritten,
                // A retry cannot read it either: the alarm matters more than the digest.
                Err(_) => {}
            }
        }
        let [ours, theirs] = &answers;
        let mut double = DoubleExecution::new(base.attempt, ours.as_ref(), current);
        double.theirs_answered(theirs.as_ref());
        double.report = Some(Box::new(report.clone()));
        Delivered::Double(Box::new(double))
    }

    /// Stores a body that came in the message. Stores a body outside the record again if it may be deleted soon. `None` if the
    /// store fails.
    async fn kept_body(
        &self,
        record: &Record,
        answer: KeptAnswer,
        kept_at: Timestamp,
    ) -> Result<Option<KeptAnswer>, WorkError> {
        let also = &self.operation().kept_headers;
        let KeptAnswer { head, body } = answer;
        let KeptBody::Inline { bytes, encoding, length } = body else {
            let kept = self.engine.keep_anew(record, body, kept_at, OFFLINE_WRITE_TIMEOUT).await;
            let kept = kept.inspect_err(|error| {
                tracing::warn!(cause = error.cause(), "the body of a report could not be stored again yet");
            });
            return Ok(kept.ok().map(|body| KeptAnswer { head: head.kept(also), body }));
        };
        let body = codec::decode(bytes, encoding, length).map_err(|_| WorkError::Malformed("body"))?;
        let placed = self.engine.place(record, &Answer { head, body }, also);
        let head = placed.answer.head.clone();
        let omitted = KeptAnswer { head, body: KeptBody::Omitted { length } };
        Ok(match self.engine.keep_placed(record, placed, OFFLINE_WRITE_TIMEOUT).await {
            Ok(kept) => Some(kept.unwrap_or(omitted)),
            // The message with its body is retried, but not so long that the effect could count as not executed (T16).
            Err(error)
                if error.is_passing() && self.engine.world.now() <= kept_at.plus(QUEUED_BODY_TIMEOUT) =>
            {
                tracing::warn!(cause = error.cause(), "the body of a report could not be stored yet");
                None
            }
            Err(error) => {
                tracing::error!(cause = error.cause(), "the body cannot be stored: replays omit it");
                Some(omitted)
            }
        })
    }
}
