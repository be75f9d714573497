//! Defers reports that cannot be written: they go to a queue, from which reconciliation applies them under the same fence.
//!
//! A message may wait across deployments: see [`message`](crate::message).

use std::time::Duration;

use super::{
    Execution, Executor, FinishOutcome, codec,
    report::{Kept, Report},
};
use crate::{
    message::{DeferredReport, Message},
    record::{Accepted, Answer, Ended, KeptAnswer, KeptBody, Phase, Record},
    telemetry::Count,
    time_budget::TimeBudget,
};

impl Executor {
    /// Defers a report that could not be written, if there is a queue. If it is not sent, `unsent` counts it.
    pub(super) async fn defer(
        &self,
        execution: &Execution,
        seen: &Record,
        report: &Report,
        kept: &Kept,
        unsent: Count,
    ) -> FinishOutcome {
        let operation = self.operation().name();
        if self.send_report(execution, seen, report, kept).await {
            tracing::warn!("a report could not be written: it is deferred");
            Count::Deferred.add(operation);
            FinishOutcome::Deferred
        } else {
            unsent.add(operation);
            FinishOutcome::Unwritten
        }
    }

    /// Defers the result of a phase that its record could not take.
    pub(super) async fn defer_phase(
        &self,
        execution: &Execution,
        worker: &Record,
        place: usize,
        phase: &Phase,
        unsent: Count,
    ) {
        let wanted = worker
            .keep(worker, place, phase, worker.revision, phase.at)
            .map_err(|_| "it does not fit".to_owned());
        let report = wanted
            .and_then(|wanted| DeferredReport::of(wanted.into(), &[]).map_err(|error| error.to_string()));
        let count = match self.send(execution, report).await {
            true => Count::Deferred,
            false => unsent,
        };
        count.add(self.operation().name());
    }

    /// Sends a report to the queue of deferred reports. Returns whether it was sent.
    pub(super) async fn send_report(
        &self,
        execution: &Execution,
        seen: &Record,
        report: &Report,
        kept: &Kept,
    ) -> bool {
        self.send(execution, self.deferred(seen, report, kept)).await
    }

    async fn send(&self, execution: &Execution, report: Result<DeferredReport, String>) -> bool {
        let sending = async {
            let queue = self.deferred_reports.as_ref().ok_or("there is no queue for deferred reports")?;
            let message = Message::DeferredReport(Box::new(report?)).to_json();
            let world = &self.engine.world;
            let time = TimeBudget::at(world.instant(), execution.ends_at()).defer();
            let sent = world.within(time, queue.send(&message, Duration::ZERO)).await;
            sent.ok_or("no answer in time")?.map_err(|error| error.cause())
        };
        let sent: Result<(), String> = sending.await;
        sent.inspect_err(|cause| tracing::error!(cause, "a report could not be deferred")).is_ok()
    }

    /// The report, with the record as its worker wants it. The body is inline, unless it is stored already, or never kept.
    fn deferred(&self, seen: &Record, report: &Report, kept: &Kept) -> Result<DeferredReport, String> {
        let inline = match (report, &kept.ended) {
            (_, Ended::Completed(KeptAnswer { body: KeptBody::Outside { .. }, .. })) => None,
            _ if !self.operation().keeps.body => None,
            (Report::Completed(Answer { head, body }), _) => {
                let (bytes, encoding) = codec::encode(body);
                let body = KeptBody::Inline { bytes, encoding, length: body.len() as u64 };
                Some(Ended::Completed(KeptAnswer { head: head.clone(), body }))
            }
            _ => None,
        };
        let wanted = inline.as_ref().unwrap_or(&kept.ended);
        // As its worker wants it: what else was reported or noted counts once the report is applied.
        // Whether accepted work has ended is decided then too.
        let accepted = seen.accepted.map(|accepted| Accepted { max_attempts: u32::MAX, ..accepted });
        let mut alone = Record { reported: None, accepted, ..seen.clone() };
        let noted = alone.phases.as_mut().map(|phases| std::mem::take(&mut phases.noted));
        let ended = wanted.of(&alone, seen, seen.revision, self.engine.world.now());
        let mut ended = *ended.ok_or("its record has moved on")?.into_record();
        ended.reported = ended.reported.max(seen.reported);
        ended.accepted = seen.accepted;
        if let (Some(phases), Some(noted)) = (&mut ended.phases, noted) {
            phases.noted = noted;
        }
        DeferredReport::of(ended, &kept.writes).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        record::{
            Encoding, Head, Note, Revision,
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
            Ended::Completed(answer()),
            Ended::Completed(zlib),
            Ended::NotExecuted(Some(Note::new("not_executed, status 503"))),
            Ended::NotBegun,
            Ended::PerhapsExecuted(None),
        ] {
            let seen = Record::reserve(&reservation("k"), Revision::mint(), NOW);
            let ended = *kept.of(&seen, &seen, seen.revision, NOW).unwrap().into_record();
            let report = DeferredReport::of(ended.clone(), &[]).unwrap();
            let message = Message::DeferredReport(Box::new(report)).to_json();
            let Message::DeferredReport(report) = Message::read(&message).unwrap() else {
                panic!("{message}")
            };
            assert_eq!(report.record().unwrap(), ended);
        }
    }
}
