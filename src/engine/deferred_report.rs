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
    record::{Answer, Ended, KeptAnswer, KeptBody, Phase, Record},
    telemetry::Count,
    time::Instant,
    time_budget::{STORE_TIMEOUT, TimeBudget},
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
            .and_then(|wanted| DeferredReport::of_phase(&wanted.into()).map_err(|error| error.to_string()));
        let count = match self.send(execution.ends_at(), report, Duration::ZERO).await {
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
        self.send(execution.ends_at(), self.deferred(seen, report, kept), Duration::ZERO).await
    }

    /// Defers that this reservation certainly runs nothing, if there is a queue. If it is not sent, the lease ends the reservation.
    pub(super) async fn defer_not_started(&self, reserved: &Record, ends_at: Option<Instant>) {
        if self.deferred_reports.is_none() {
            return;
        }
        let report = DeferredReport::of(reserved, &Ended::NotStarted, &[], self.engine.world.now());
        // It changes only what is there. A reservation that is still on its way has landed by then.
        if self.send(ends_at, report.map_err(|error| error.to_string()), STORE_TIMEOUT).await {
            tracing::warn!("a reservation could not be taken back yet: that is deferred");
            Count::Deferred.add(self.operation().name());
        }
    }

    async fn send(
        &self,
        ends_at: Option<Instant>,
        report: Result<DeferredReport, String>,
        delay: Duration,
    ) -> bool {
        let sending = async {
            let queue = self.deferred_reports.as_ref().ok_or("there is no queue for deferred reports")?;
            let message = Message::DeferredReport(Box::new(report?)).to_json();
            let world = &self.engine.world;
            let time = TimeBudget::at(world.instant(), ends_at).defer();
            let sent = world.within(time, queue.send(&message, delay)).await;
            sent.ok_or("no answer in time")?.map_err(|error| error.cause())
        };
        let sent: Result<(), String> = sending.await;
        sent.inspect_err(|cause| tracing::error!(cause, "a report could not be deferred")).is_ok()
    }

    /// The report. An answer's body is inline, unless it is stored already, or never kept.
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
        let ended = inline.as_ref().unwrap_or(&kept.ended);
        DeferredReport::of(seen, ended, &kept.writes, self.engine.world.now())
            .map_err(|error| error.to_string())
    }
}
