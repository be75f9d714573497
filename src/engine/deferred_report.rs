//! Defers reports that cannot be written: they go to a queue, from which reconciliation applies them under the same fence.
//!
//! A message may wait across deployments: see [`message`](crate::message).

use std::time::Duration;

use super::{Change, Execution, Executor, codec, report::Reporting};
use crate::{
    message::{DeferredReport, Message},
    record::{Answer, BodyId, Counts, Deferred, KeptAnswer, KeptBody, Record, Report, Transition},
    store::Companion,
    telemetry::Count,
    time::{Instant, Timestamp},
    time_budget::{STORE_TIMEOUT, TimeBudget},
};

impl Executor {
    /// Sends a report to the queue of deferred reports, if there is one.
    pub(super) async fn defer(&self, execution: &Execution, reporting: &Reporting) -> Deferred {
        let report = self.letter(reporting, Body::WhereItIs);
        let deferred = match self.send(execution.ends_at(), report, Duration::ZERO).await {
            true => Deferred::Sent,
            false if self.deferred_reports.is_none() => Deferred::NoQueue,
            false if reporting.so_far.deferred == Deferred::Perhaps => Deferred::PerhapsAgain,
            false => Deferred::Perhaps,
        };
        if deferred == Deferred::Sent {
            tracing::warn!("the record does not have a report: it is deferred");
            Count::Deferred.add(self.operation().name());
        }
        deferred
    }

    /// An alarm, with the report that it is about beside the record.
    pub(super) fn with_report(&self, next: Transition, reporting: &Reporting, now: Timestamp) -> Change {
        beside(next, reporting.ending.base.report_id(), self.letter(reporting, Body::Inline), now)
    }

    /// Defers the result of a phase. If that fails, this is counted.
    pub(super) async fn defer_phase(
        &self,
        execution: &Execution,
        report: Result<DeferredReport, String>,
        otherwise: Counts,
    ) {
        match self.send(execution.ends_at(), report, Duration::ZERO).await {
            true => Count::Deferred.add(self.operation().name()),
            false => self.counts(otherwise),
        }
    }

    /// Defers that this reservation certainly runs nothing, if there is a queue. If it is not sent, the lease ends the reservation.
    pub(super) async fn defer_not_started(&self, reserved: &Record, ends_at: Option<Instant>) {
        if self.deferred_reports.is_none() {
            return;
        }
        let report = DeferredReport::of(reserved, &Report::NotStarted, &[], self.engine.world.now());
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

    /// The report, with the handler's answer. Its body is inline, unless it is stored already, or never kept.
    fn letter(&self, reporting: &Reporting, body: Body) -> Result<DeferredReport, String> {
        let (report, with_writes) = reporting.ending.letter(&reporting.so_far);
        let report = match (report, &reporting.answer) {
            (Report::Completed(kept), Some(Answer { head, body: bytes }))
                if self.operation().keeps.body
                    && (body == Body::Inline || !matches!(kept.body, KeptBody::Outside { .. })) =>
            {
                let length = bytes.len() as u64;
                let (bytes, encoding) = codec::encode(bytes);
                let body = KeptBody::Inline { bytes, encoding, length };
                Report::Completed(KeptAnswer { head: head.clone(), body })
            }
            (report, _) => report,
        };
        let writes = if with_writes { &*reporting.writes } else { &[] };
        DeferredReport::of(&reporting.ending.base, &report, writes, self.engine.world.now())
            .map_err(|error| error.to_string())
    }
}

/// Where the body of a report's answer is, if it is stored outside the record already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    /// There.
    WhereItIs,
    /// In the report: what is stored is deleted in its time, and the report is not.
    Inline,
}

/// An alarm that names this report, with it.
pub(super) fn beside(
    next: Transition,
    id: BodyId,
    report: Result<DeferredReport, String>,
    now: Timestamp,
) -> Change {
    match report {
        Ok(report) => {
            let report = Message::DeferredReport(Box::new(report)).to_json();
            Change::from(next).and(Companion::KeepReport(id, report.into(), now))
        }
        Err(cause) => {
            tracing::error!(cause, "a report cannot lie beside its record: only its alarm is written");
            Count::ContradictionUnsent.add(next.key.operation());
            next.without_report(id).into()
        }
    }
}
