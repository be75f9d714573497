//! Runs one sweep at a time. A sweep takes several invocations, one after another.
//!
//! ```text
//! schedule ─▶ take the lease ─▶ sweep until the time is up ─▶ write the progress, end the lease ─▶ queue of sweeps ─┐
//!                 ▲                                                                                                 │
//!                 └─────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! 1. The progress is in the [`Checkpoint`] in the store; a message only asks to continue. If an invocation dies, the next
//!    message or the next schedule repeats its work.
//! 2. An invocation that finds a lease stops. An invocation whose own lease has expired finds another revision when it writes
//!    its progress, and stops too. Two of them may have checked the same records, which does no harm: each check writes by
//!    compare-and-set.
//! 3. A sweep that was not continued for an hour begins anew, because the records that it has checked may have changed.
//! 4. Between two invocations there is no lease, so a message that is lost or comes twice blocks no sweep. An invocation that
//!    stops because of a lease sends a message for the time after it, because the owner of the lease may be dead.

use std::time::Duration;

use super::{Stale, sweep::SweepProgress};
use crate::{
    message::Message,
    queue::WorkError,
    record::Revision,
    store::{Checkpoint, StoreError, StoreErrorKind},
    telemetry::{self, SWEEP_COMPLETED, TABLE_SETTING_OFF},
    time::Timestamp,
    time_budget::{DEFAULT_GRACE, MAX_SWEEP_PAUSE, STORE_TIMEOUT},
};

/// The name of the checkpoint.
const SWEEP: &str = "sweep";

impl Stale {
    /// Begins a sweep, which checks every record of the store, or continues the one under way. If the `time` is up before
    /// it is done, a message to the queue of sweeps continues it.
    ///
    /// A record is read again, consistently, before it is changed. While another invocation is sweeping, nothing is done.
    ///
    /// # Errors
    /// If the store or the queue fails.
    pub async fn sweep(&self, time: Duration) -> Result<(), WorkError> {
        self.run_sweep(true, time).await
    }

    /// Continues the sweep under way, if there is one. If not, begins one if it `begins`.
    pub(super) async fn run_sweep(&self, begins: bool, time: Duration) -> Result<(), WorkError> {
        let begun_at = self.engine.world.instant();
        let current = self.engine.bounded(None, self.records.load_checkpoint(SWEEP)).await?;
        let mut progress = match self.running_sweep(current.as_ref()) {
            Some(progress) => progress,
            None if begins => {
                self.look_at_settings().await;
                SweepProgress::default()
            }
            None => {
                tracing::info!("no sweep is under way: nothing to continue");
                return Ok(());
            }
        };
        let now = self.engine.world.now();
        if let Some(checkpoint) = &current
            && checkpoint.progress.is_some()
            && now < checkpoint.lease_until
        {
            let left = checkpoint.lease_until.since(now);
            let for_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(for_ms, "another sweep is under way: this one stops");
            // Its owner may be dead: this message continues the sweep once the lease has expired, or finds nothing to continue.
            return self.send_sweep(left).await;
        }
        let time = time.saturating_sub(self.engine.world.instant().since(begun_at));
        let ours = self.checkpoint(Some(&progress), now.plus(time).plus(DEFAULT_GRACE));
        let seen = current.map(|checkpoint| checkpoint.revision);
        if !self.write_checkpoint(seen, &ours).await? {
            tracing::info!("another sweep has just begun: this one stops");
            return Ok(());
        }
        let swept = self.steps(&mut progress, time).await;
        progress.log();
        if swept.as_ref().is_err_and(|error| error.kind() == StoreErrorKind::Refused) {
            // The store may refuse the place to continue from, so the next sweep begins anew.
            progress = SweepProgress::default();
        }
        let done = progress.is_done();
        let checkpoint = self.checkpoint(Some(&progress).filter(|_| !done), self.engine.world.now());
        let written = self.write_checkpoint(Some(ours.revision), &checkpoint).await;
        // The first failure is returned. If the checkpoint was not written, its lease expires.
        swept?;
        if !written? {
            tracing::warn!("a sweep's lease has expired: another invocation continues it");
            return Ok(());
        }
        if done {
            progress.record();
            telemetry::count(SWEEP_COMPLETED);
            return Ok(());
        }
        self.send_sweep(Duration::ZERO).await
    }

    /// Tells operators which settings of the table are off.
    async fn look_at_settings(&self) {
        let Some(off) = self.engine.world.within(STORE_TIMEOUT, self.records.settings_off()).await else {
            tracing::warn!("the settings of the table could not be read in time");
            return;
        };
        for setting in &off {
            tracing::error!(setting, "a setting of the table is off, or may not be read");
        }
        telemetry::count_many(TABLE_SETTING_OFF, off.len() as u64);
    }

    async fn send_sweep(&self, delay: Duration) -> Result<(), WorkError> {
        Ok(self.engine.sent(self.sweeps.send(&Message::Sweep.to_json(), delay)).await?)
    }

    fn checkpoint(&self, progress: Option<&SweepProgress>, lease_until: Timestamp) -> Checkpoint {
        Checkpoint {
            name: SWEEP.to_owned(),
            revision: self.engine.world.nonce().into(),
            lease_until,
            // Strings and numbers: this cannot fail.
            progress: progress.map(|progress| serde_json::to_string(progress).unwrap_or_default()),
        }
    }

    /// The progress of the sweep under way; `None` if there is none. If its progress cannot be read, the sweep begins anew.
    fn running_sweep(&self, checkpoint: Option<&Checkpoint>) -> Option<SweepProgress> {
        let checkpoint = checkpoint?;
        let progress = checkpoint.progress.as_deref()?;
        let is_recent = self.engine.world.now() <= checkpoint.lease_until.plus(MAX_SWEEP_PAUSE);
        Some(is_recent.then(|| serde_json::from_str(progress).ok()).flatten().unwrap_or_default())
    }

    async fn write_checkpoint(
        &self,
        seen: Option<Revision>,
        checkpoint: &Checkpoint,
    ) -> Result<bool, StoreError> {
        self.engine.sent_again(|| self.records.write_checkpoint(seen, checkpoint)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        queue::MemoryQueue,
        record::{
            Record,
            tests::{Mint, reservation},
        },
        store::{Store, Unsettled, memory::MemoryStore},
        world::ManualWorld,
    };

    // T50
    #[tokio::test]
    async fn a_sweep_stops_while_another_ones_lease_lasts() {
        let (store, sweeps) = (MemoryStore::new(), MemoryQueue::new());
        let now = Timestamp::from_secs(2_000);
        let dead = Record::reserve(&reservation("k"), Revision::mint(), Timestamp::from_secs(1_000));
        store.put(None, &dead, &[]).await.expect("there is none");
        let left = Duration::from_millis(1);
        let theirs = Checkpoint {
            name: SWEEP.to_owned(),
            revision: Revision::mint(),
            lease_until: now.plus(left),
            progress: Some("{}".to_owned()),
        };
        assert!(store.write_checkpoint(None, &theirs).await.unwrap());
        let stale = Stale::new(store.clone(), MemoryQueue::new(), sweeps.clone(), MemoryQueue::new())
            .world(ManualWorld::at(now));
        stale.sweep(Duration::from_secs(1)).await.unwrap();
        let [(_, delay)] = &sweeps.take()[..] else { panic!("not one message") };
        assert_eq!((*delay, store.load_checkpoint(SWEEP).await.unwrap()), (left, Some(theirs)));
        assert_eq!(store.load(&dead.key).await.unwrap(), Some(dead));
    }
}
