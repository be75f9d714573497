//! Extends the lease while a handler runs, for work of unknown length.

use std::{sync::Arc, time::Duration};

use futures_util::future::{AbortHandle, abortable};
use tokio::sync::Mutex;

use super::{Applied, Effort, Executor, Moment, Retries, Start, Step};
use crate::{
    record::{AttemptId, Record},
    time_budget::WRITE_PAUSES,
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
        attempt: AttemptId,
    ) -> Option<Heartbeat> {
        let every = self.operation().heartbeat_every()?;
        let (beating, handle) = abortable(self.clone().beat(record, attempt, every));
        let task = async {
            // Over, or aborted: it is all the same.
            let _ = beating.await;
        };
        self.engine.world.spawn(Box::pin(task));
        Some(Heartbeat(handle))
    }

    async fn beat(self, record: Arc<Mutex<Record>>, attempt: AttemptId, every: Duration) {
        let world = &self.engine.world;
        let step = |there: Option<&Record>, Moment { revision, now }: Moment| {
            let until = self.operation().lease_until(None, now);
            match there.map(|there| there.extend(attempt, revision, until)) {
                Some(Ok(next)) => Step::Write(next.into(), ()),
                Some(Err(_)) | None => Step::Stop(()),
            }
        };
        let effort = Effort { until: None, pauses: WRITE_PAUSES, retries: Retries::None };
        loop {
            world.sleep(every).await;
            // Held while it is written, so that whoever ends the execution goes on from what was written.
            let mut seen = record.lock().await;
            match self.engine.apply(Start::Seen(Box::new(seen.clone())), effort, step).await {
                Ok(Applied::Written((), next)) => *seen = *next,
                Ok(Applied::Stopped(..)) => {
                    let key = seen.key.hash();
                    tracing::warn!(%key, operation = %self.operation().name(), "the lease is lost");
                    return;
                }
                // Perhaps written. The next write finds out: it is refused, and sees whose revision is there.
                Err(unapplied) => {
                    let (key, kind, cause) =
                        (seen.key.hash(), unapplied.error.kind(), unapplied.error.cause());
                    tracing::warn!(%key, operation = %self.operation().name(), ?kind, cause, "a heartbeat failed");
                }
            }
        }
    }
}
