//! Applies deferred reports, and tells operators of alarms.

use super::Reconciliation;
use crate::{
    engine::{Applied, Effort, Executor, Left, Moment, Retries, Start, Step},
    key::RecordKey,
    message::{Contradiction, DeferredReport},
    queue::WorkError,
    record::Record,
    time_budget::WRITE_BACKOFF,
};

impl Reconciliation {
    /// Applies a deferred report, fenced by its worker's revision. What its record contradicts is escalated. A double execution is
    /// escalated before the report is applied, so that no trace of the other execution is overwritten.
    pub(super) async fn apply(&self, key: &RecordKey, deferred: &DeferredReport) -> Result<(), WorkError> {
        let executor = Executor::on(self.engine.clone(), self.known(key)?.operation.clone());
        let (seen, ended) = deferred.read()?;
        let Some(ended) = ended else {
            let left = executor.deliver_phase(&seen, deferred).await?;
            return self.after(key, deferred, left).await;
        };
        let left = executor.deliver(seen, ended, deferred.writes()).await?;
        self.after(key, deferred, left).await
    }

    /// Does what is left of a deferred report.
    async fn after(&self, key: &RecordKey, deferred: &DeferredReport, left: Left) -> Result<(), WorkError> {
        match left {
            Left::Nothing => Ok(()),
            Left::Alarms(record) => self.tell(record).await.map(|_| ()),
            Left::Escalation(reason, current) => {
                let report = Some(Box::new(deferred.clone()));
                let about = Contradiction::about(key, current.as_deref(), reason);
                self.contradicted(key, Contradiction { report, ..about }).await.map(|_| ())
            }
        }
    }

    /// Tells operators of a record's alarms, if they have not been told. Twice is better than never: so the record says it afterwards.
    pub(super) async fn tell(&self, record: Box<Record>) -> Result<Box<Record>, WorkError> {
        let Some(alarms) = record.untold() else { return Ok(record) };
        let about = Contradiction::about(&record.key, Some(&record), alarms.because.as_str());
        let report = match alarms.reports.last() {
            Some(id) => self.engine.report_beside(&record.key, *id).await?,
            None => None,
        };
        let alarms = alarms.kinds.iter().map(|kind| kind.name().to_owned()).collect();
        self.contradicted(&record.key, Contradiction { alarms, report, ..about }).await?;
        // An alarm that was raised since is told of later.
        let step = |current: Option<&Record>, Moment { revision, .. }: Moment| {
            let unchanged = current.filter(|current| current.alarms == record.alarms);
            let told = unchanged.and_then(|current| current.told(revision));
            told.map_or(Step::Stop(()), |told| Step::Write(told.into(), ()))
        };
        let effort = Effort { until: None, backoff: WRITE_BACKOFF, retries: Retries::None };
        match self.engine.apply(Start::Seen(record.clone()), effort, step).await {
            Ok(Applied::Written((), record)) => Ok(record),
            Ok(Applied::Stopped((), _)) => Ok(record),
            Err(unapplied) => Err(unapplied.error.into()),
        }
    }
}
