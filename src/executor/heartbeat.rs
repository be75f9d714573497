//! Extends the lease while a handler runs, for work of unknown length.

use std::{sync::Arc, time::Duration};

use tokio::sync::Mutex;

use super::{Executor, execution::HeartbeatHandle};
use crate::{
    lease::lease_until,
    record::{AttemptId, Record, Revision},
    store::{Store, Turn},
};

impl<S: Store> Executor<S> {
    pub(super) fn start_heartbeat(
        &self,
        record: Arc<Mutex<Record>>,
        attempt: AttemptId,
    ) -> Option<HeartbeatHandle> {
        let every = self.operation().heartbeat_every()?;
        let beating = tokio::spawn(self.clone().beat(record, attempt, every));
        Some(HeartbeatHandle(beating.abort_handle()))
    }

    async fn beat(self, record: Arc<Mutex<Record>>, attempt: AttemptId, every: Duration) {
        loop {
            self.clock().sleep(every).await;
            let mut seen = record.lock().await;
            let until = lease_until(None, self.clock().now(), self.operation());
            let Ok(next) = seen.extend(attempt, Revision::mint(), until) else { return };
            match self.bounded(until, self.register().swap(seen.revision, &next)).await {
                Ok(Turn::Ours) => *seen = next,
                Ok(Turn::Theirs(Some(there))) if there.attempt == attempt => *seen = *there,
                Ok(Turn::Theirs(_)) => {
                    let key = seen.key.hash();
                    tracing::warn!(%key, operation = %self.operation().name(), "the lease is lost");
                    return;
                }
                // Perhaps written. The next write finds out: it is refused, and sees whose revision is there.
                Err(error) => {
                    let key = seen.key.hash();
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(%key, operation = %self.operation().name(), error, "a heartbeat failed");
                }
            }
        }
    }
}
