//! Extends the lease while a handler runs, for work of unknown length.

use std::{sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::{AbortHandle, abortable},
};
use tokio::sync::Mutex;
use tracing::Instrument;

use super::{Applied, Effort, Execution, Executor, Moment, Retries, Start, Step};
use crate::{
    record::{Record, State},
    telemetry,
    time_budget::WRITE_BACKOFF,
};

/// Stops the heartbeat with its owner.
#[derive(Debug)]
pub(super) struct Heartbeat(AbortHandle);

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Executor {
    pub(super) fn start_heartbeat(
        &self,
        record: Arc<Mutex<Record>>,
        execution: Execution,
    ) -> Option<Heartbeat> {
        // A deadline ends the execution: a longer lease would only hide for longer that its worker is dead.
        let every = self.operation().heartbeat.filter(|_| execution.ends_at().is_none())?;
        let span = telemetry::task_span(execution.record_key());
        let (beating, handle) = abortable(self.clone().beat(record, execution, every));
        // Ended or aborted: it makes no difference.
        let task = beating.map(drop).instrument(span);
        self.engine.world.spawn(Box::pin(task));
        Some(Heartbeat(handle))
    }

    /// Beats until the execution ends, its record is lost, or the longest lease has expired. Without the last bound, a handler
    /// that hangs is never found.
    async fn beat(self, record: Arc<Mutex<Record>>, execution: Execution, every: Duration) {
        let (world, operation) = (&self.engine.world, self.operation());
        let attempt = execution.attempt();
        let longest = world.instant().plus(operation.max_lease);
        let step = |current: Option<&Record>, Moment { revision, now }: Moment| {
            let lease = operation.lease.min(longest.since(world.instant()));
            let until = operation.lease_until(Some(now.plus(lease)), now);
            let extended = current.and_then(|current| current.extend(attempt, revision, until));
            let lease_expired = current.is_some_and(|current| matches!(current.state, State::Unknown { .. }));
            extended.map_or(Step::Stop(None), |next| {
                Step::Write(next.into(), Some((world.term(lease), lease_expired)))
            })
        };
        let effort = Effort { until: None, backoff: WRITE_BACKOFF, retries: Retries::None };
        loop {
            world.sleep(every).await;
            if longest <= world.instant() {
                tracing::error!("the longest lease has expired: heartbeats stop");
                return;
            }
            // Locked during the write, so that the report continues from what was written.
            let mut seen = record.lock().await;
            match self.engine.apply(Start::Seen(Box::new(seen.clone())), effort, step).await {
                Ok(Applied::Written(Some((until, lease_expired)), next)) => {
                    *seen = *next;
                    execution.owns_until(until);
                    if lease_expired {
                        // Counted as dead by a clock that is ahead of ours, or while our heartbeats failed.
                        tracing::warn!("the record is reclaimed: its worker is alive");
                    }
                }
                Ok(_) => {
                    tracing::warn!("the lease is lost");
                    execution.lose();
                    return;
                }
                // Perhaps written. If so, the next write is refused, and returns the current revision.
                Err(unapplied) => {
                    let (kind, cause) = (unapplied.error.kind(), unapplied.error.cause());
                    tracing::warn!(?kind, cause, "a heartbeat failed");
                }
            }
        }
    }
}
