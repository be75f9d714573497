//! Reports that cannot be written go to a queue, from which reconciliation applies them under the same fence.
//!
//! A message may wait across deployments: see [`message`](crate::message).

use std::{sync::Arc, time::Duration};

use super::{
    Execution, Executor, FinishOutcome, codec,
    report::{Kept, Report},
};
use crate::{
    domain::DomainWrite,
    message::{DeferredReport, DoubleExecution, Message},
    queue::Queue,
    record::{Answer, AttemptId, KeptAnswer, KeptBody, Record, Worker},
    telemetry::Count,
    time_budget::TimeBudget,
};

/// The message that reports a report which wants this record. `escalated` is the other execution that has been escalated.
fn message(
    ended: Record,
    writes: &[DomainWrite],
    escalated: Option<AttemptId>,
) -> Result<String, serde_json::Error> {
    let mut report = DeferredReport::of(ended, writes)?;
    report.escalated = escalated.map(|attempt| attempt.to_string());
    Ok(Message::DeferredReport(Box::new(report)).to_json())
}

impl Executor {
    /// Hands over a report that could not be written, if there is a queue.
    pub(super) async fn defer(
        &self,
        execution: &Execution,
        seen: &Record,
        report: &Report,
        kept: &Kept,
    ) -> FinishOutcome {
        let operation = self.operation().name();
        let Some(queue) = &self.deferred_reports else {
            tracing::error!("a report could not be written, and there is no queue to hand it over to");
            Count::Unwritten.add(operation);
            return FinishOutcome::Unwritten;
        };
        let wanted = self.wanted(seen, report, kept);
        let sent = match wanted.map(|ended| message(ended, kept.writes(), None)) {
            Some(Ok(message)) => self.send(queue, execution, &message).await,
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the record that the worker saw last is not its own".to_owned()),
        };
        match sent {
            Ok(()) => {
                tracing::warn!("a report could not be written: it was handed over");
                Count::Deferred.add(operation);
                FinishOutcome::Deferred
            }
            Err(cause) => {
                tracing::error!(cause, "a report could neither be written nor handed over");
                Count::Unwritten.add(operation);
                FinishOutcome::Unwritten
            }
        }
    }

    /// Hands over a report that could not be written because another execution has the record, or because the record denies
    /// its effect. `provider_report` is the other execution, if it has been reported to an operator. Returns whether it was sent.
    pub(super) async fn defer_contested(
        &self,
        execution: &Execution,
        seen: &Record,
        report: &Report,
        kept: &Kept,
        reported: Option<AttemptId>,
    ) -> bool {
        let Some(queue) = &self.deferred_reports else { return false };
        let Some(Ok(message)) =
            self.wanted(seen, report, kept).map(|ended| message(ended, kept.writes(), reported))
        else {
            return false;
        };
        let sent = self.send(queue, execution, &message).await;
        if let Err(cause) = &sent {
            tracing::error!(cause, "a report could not be handed over");
        }
        sent.is_ok()
    }

    async fn send(&self, queue: &Arc<dyn Queue>, execution: &Execution, message: &str) -> Result<(), String> {
        let world = &self.engine.world;
        let time = TimeBudget::at(world.instant(), execution.ends_at()).defer();
        tokio::select! {
            biased;
            sent = queue.send(message, Duration::ZERO) => sent.map_err(|error| error.cause()),
            () = world.sleep(time) => Err("no answer in time".to_owned()),
        }
    }

    /// Escalates a double execution, with the report that cannot be written, through the queue of deferred reports. It has been
    /// logged and counted in any case. Returns whether it was sent.
    pub(super) async fn escalate_double(
        &self,
        execution: &Execution,
        mut double: DoubleExecution,
        seen: &Record,
        report: &Report,
        kept: &Kept,
    ) -> bool {
        let Some(queue) = &self.deferred_reports else { return false };
        let wanted = self.wanted(seen, report, kept);
        double.report = wanted.and_then(|ended| DeferredReport::of(ended, kept.writes()).ok()).map(Box::new);
        let message = Message::DoubleExecution(Box::new(double)).to_json();
        let sent = self.send(queue, execution, &message).await;
        if let Err(cause) = &sent {
            tracing::error!(cause, "a double execution could not be escalated");
        }
        sent.is_ok()
    }

    /// The record as its worker wants it, with its body inline unless that is stored already.
    fn wanted(&self, seen: &Record, report: &Report, kept: &Kept) -> Option<Record> {
        let kept = match (report, kept) {
            (_, Kept::Completed(KeptAnswer { body: KeptBody::Outside { .. }, .. }, _)) => kept.clone(),
            (Report::Completed(Answer { head, body }), _) => {
                let (bytes, encoding) = codec::encode(body);
                let body = KeptBody::Inline { bytes, encoding, length: body.len() as u64 };
                Kept::Completed(KeptAnswer { head: head.clone(), body }, Arc::default())
            }
            _ => kept.clone(),
        };
        let wants =
            |seen: &Record| kept.of(seen, Worker::of(seen), seen.revision, self.engine.world.now()).ok();
        match kept {
            // Its own answer goes along, and so does the claim that makes it doubtful.
            Kept::Completed(..) if seen.claimed => {
                let ended = wants(&Record { claimed: false, ..seen.clone() })?;
                Some(Record { claimed: true, ..ended })
            }
            _ => wants(seen),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        record::{
            Encoding, Head, Note, Revision, UnknownCause,
            tests::{answer, reservation},
        },
        time::Timestamp,
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    // T36
    #[test]
    fn every_report_comes_out_of_its_message_as_it_went_in() {
        let zlib = KeptAnswer {
            head: Head::Payload,
            body: KeptBody::Inline {
                bytes: Bytes::from_static(b"\xff"),
                encoding: Encoding::Zlib,
                length: 9,
            },
        };
        for kept in [
            Kept::Completed(answer(), Arc::default()),
            Kept::Completed(zlib, Arc::default()),
            Kept::NotExecuted(Some(Note::new("not_executed, status 503"))),
            Kept::NotBegun,
            Kept::PerhapsExecuted(UnknownCause::Panicked, None),
        ] {
            let seen = Record::reserve(&reservation("k"), Revision::mint(), NOW);
            let ended = kept.of(&seen, Worker::of(&seen), seen.revision, NOW).unwrap();
            let report = message(ended.clone(), &[], None).unwrap();
            let Message::DeferredReport(report) = Message::read(&report).unwrap() else { panic!("{report}") };
            assert_eq!(report.record().unwrap(), ended);
        }
    }
}
