//! Applies deferred reports, and tells operators of alarms.

use super::Reconciliation;
use crate::{
    engine::{Applied, Effort, Executor, Left, Moment, Retries, Start, Step},
    error_chain::error_chain,
    key::RecordKey,
    message::{Contradiction, DeferredReport},
    queue::WorkError,
    record::{Alarm, Record},
    time_budget::WRITE_BACKOFF,
};

impl Reconciliation {
    /// Applies a deferred report, fenced by its worker's revision. What it contradicts becomes an alarm of its record, by the same
    /// write; without a record, it is escalated.
    pub(super) async fn apply(&self, key: &RecordKey, deferred: &DeferredReport) -> Result<(), WorkError> {
        let executor = Executor::on(self.engine.clone(), self.known(key)?.operation.clone());
        let (seen, ended) = deferred.read()?;
        let Some(ended) = ended else {
            let left = executor.deliver_phase(seen, deferred).await?;
            return self.after(key, deferred, left).await;
        };
        let left = executor.deliver(seen, ended, deferred.writes()).await?;
        self.after(key, deferred, left).await
    }

    /// Does what is left of a deferred report.
    async fn after(&self, key: &RecordKey, deferred: &DeferredReport, left: Left) -> Result<(), WorkError> {
        match left {
            Left::Nothing => Ok(()),
            Left::Alarms(record) => {
                // The report is safe.
                if let Err(error) = self.tell(record).await {
                    tracing::error!(
                        error = error_chain(&error),
                        "operators were not told of an alarm yet: the poll is"
                    );
                }
                Ok(())
            }
            Left::Escalation(reason, current) => {
                let report = Some(Box::new(deferred.clone()));
                let about = Contradiction::about(key, current.as_deref(), reason);
                self.contradicted(Contradiction { report, ..about }).await.map(|_| ())
            }
        }
    }

    /// Tells operators of a record's alarms, one after the other, if they have not been told. Twice is better than never: so the record
    /// says it afterwards.
    ///
    /// # Errors
    /// If it fails: the next poll tells of it.
    pub(super) async fn tell(&self, mut record: Box<Record>) -> Result<Box<Record>, WorkError> {
        while let Some(alarm) = record.untold().cloned() {
            let report = match alarm.report {
                Some(id) => self.engine.report_beside(&record.key, id).await?,
                None => None,
            };
            let about = Contradiction::about(&record.key, Some(&record), alarm.because.as_str());
            let kind = Some(alarm.kind.name().to_owned());
            self.contradicted(Contradiction { alarm: kind, report, ..about }).await?;
            record = self.has_told(record, &alarm).await?;
        }
        Ok(record)
    }

    /// Operators have been told of this alarm of the record.
    pub(super) async fn has_told(
        &self,
        record: Box<Record>,
        alarm: &Alarm,
    ) -> Result<Box<Record>, WorkError> {
        let step = |current: Option<&Record>, Moment { revision, .. }: Moment| {
            let told = current.and_then(|current| current.told(alarm, revision));
            told.map_or(Step::Stop(()), |told| Step::Write(told.into(), ()))
        };
        let effort = Effort { until: None, backoff: WRITE_BACKOFF, retries: Retries::None };
        match self.engine.apply(Start::Seen(record), effort, step).await {
            Ok(Applied::Written((), record) | Applied::Stopped((), Some(record))) => Ok(record),
            Ok(Applied::Stopped((), None)) => Err(WorkError::Busy),
            Err(unapplied) => Err(unapplied.error.into()),
        }
    }
}
