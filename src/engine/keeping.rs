//! The result of a phase on its way into the record: carries out what the protocol says, for its worker and for its message.

use super::{
    Applied, Change, Effort, Engine, Moment, Retries, Start, Step, Unapplied, commit::with_writes,
    deferred_report::beside,
};
use crate::{
    domain::DomainWrite,
    message::DeferredReport,
    record::{self, Keeping, Record, Written},
    time::Instant,
    time_budget::WRITE_BACKOFF,
};

/// The report that a worker has this result of a phase.
pub(super) fn phase_report(keeping: &Keeping) -> Result<DeferredReport, String> {
    let wanted = keeping.wanted().map_err(|_| "it does not fit".to_owned())?;
    DeferredReport::of_phase(&wanted).map_err(|error| error.to_string())
}

/// How the report about the result of a phase is made, if it is needed.
type PhaseReport<'a> = &'a (dyn Fn() -> Result<DeferredReport, String> + Sync);

impl Engine {
    /// Writes what the protocol says about the result of a phase, with these domain writes if it commits, until it says something else: that,
    /// and the current record.
    pub(super) async fn keeps<N>(
        &self,
        keeping: &Keeping,
        mut start: Start<'_>,
        until: Instant,
        (writes, report): (&[DomainWrite], PhaseReport<'_>),
        asks: fn(&Keeping, Option<&Record>, Option<Written>, Moment) -> record::Step<N>,
    ) -> Result<(N, Option<Box<Record>>), Unapplied> {
        let mut write = None;
        loop {
            let step = |current: Option<&Record>, at: Moment| {
                let commits = |next| with_writes(next, writes, at.now);
                let alarms = |next| match keeping.report_id() {
                    Some(id) => beside(next, id, report(), at.now),
                    None => Change::from(next),
                };
                Step::of(asks(keeping, current, write, at), commits, alarms)
            };
            let effort = Effort { until: Some(until), backoff: WRITE_BACKOFF, retries: Retries::All };
            let (written, record) = match self.apply(start, effort, step).await? {
                Applied::Written(written, record) => (written, Some(record)),
                Applied::Stopped(written, current) => (written, current),
            };
            match written {
                Ok(written) => write = Some(written),
                Err(next) => return Ok((next, record)),
            }
            let record = record.unwrap_or_else(|| Box::new(keeping.worker.clone()));
            let at = Moment { revision: record.revision, now: self.world.now() };
            match asks(keeping, Some(&record), write, at) {
                record::Step::Next(next) => return Ok((next, Some(record))),
                _ => start = Start::Seen(record),
            }
        }
    }
}
