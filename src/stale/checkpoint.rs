//! Runs one sweep at a time, in turns of one invocation each.
//!
//! ```text
//! schedule ─▶ take the mark ─▶ sweep until the time is up ─▶ give it back, with the progress ─▶ queue of sweeps ─┐
//!                  ▲                                                                                             │
//!                  └─────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! 1. The [`Checkpoint`] in the store has the progress of the sweep; a message says only *go on*. So if a turn dies, whoever
//!    comes next (the message again, or the next schedule) repeats it from where it began.
//! 2. Whoever comes while a turn's lease lasts stops. A turn whose lease had expired finds another revision when it gives the
//!    mark back, and stops too. Both may have checked the same records, which does no harm: each check writes by
//!    compare-and-set.
//! 3. A sweep that nobody has continued for an hour begins anew: what it has checked may have changed.
//! 4. Between two turns nobody holds the lease, so a message that is lost or comes twice blocks nobody. Whoever stops
//!    because of a lease sends a message for when it is over: its holder may be dead.

use std::time::Duration;

use super::{Stale, sweep::SweepProgress};
use crate::{
    message::Message,
    queue::WorkError,
    record::Revision,
    store::{Checkpoint, StoreError, StoreErrorKind},
    telemetry::{self, SWEEP_COMPLETED},
    time::Timestamp,
    time_budget::{DEFAULT_GRACE, MAX_SWEEP_PAUSE},
};

/// The name of the mark.
const SWEEP: &str = "sweep";

impl Stale {
    /// Begins a sweep, which checks every record of the store, or continues the one under way. If the `time` is up before
    /// it is done, a message to the queue of sweeps continues it.
    ///
    /// What it finds is read again, consistently, before it is changed. While another invocation is sweeping, nothing is
    /// done.
    ///
    /// # Errors
    /// If the store or the queue fails.
    pub async fn sweep(&self, time: Duration) -> Result<(), WorkError> {
        let current = self.load_checkpoint().await?;
        let progress = self.running_sweep(current.as_ref()).unwrap_or_default();
        self.run_turn(current, progress, time).await
    }

    /// Continues the sweep under way, if there is one.
    pub(super) async fn go_on(&self, time: Duration) -> Result<(), WorkError> {
        let current = self.load_checkpoint().await?;
        let Some(progress) = self.running_sweep(current.as_ref()) else {
            tracing::info!("no sweep is under way: nothing to continue");
            return Ok(());
        };
        self.run_turn(current, progress, time).await
    }

    async fn run_turn(
        &self,
        current: Option<Checkpoint>,
        mut progress: SweepProgress,
        time: Duration,
    ) -> Result<(), WorkError> {
        let now = self.engine.world.now();
        if let Some(checkpoint) = &current
            && checkpoint.progress.is_some()
            && now < checkpoint.lease_until
        {
            let left = checkpoint.lease_until.since(now);
            let for_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(for_ms, "another sweep is under way: this one stops");
            // Its turn may be dead: this message continues the sweep once the lease has expired, or finds nothing to continue.
            return self.send_go_on(left).await;
        }
        let ours = self.checkpoint(Some(&progress), now.plus(time).plus(DEFAULT_GRACE));
        if !self.write_checkpoint(seen(current.as_ref()), &ours).await? {
            tracing::info!("another sweep has just begun: this one stops");
            return Ok(());
        }
        let swept = self.steps(&mut progress, time).await;
        progress.log();
        if swept.as_ref().is_err_and(|error| error.kind() == StoreErrorKind::Refused) {
            // The store may refuse the place to continue from: the next sweep begins at the beginning.
            progress = SweepProgress::default();
        }
        let done = progress.is_done();
        let checkpoint = self.checkpoint(Some(&progress).filter(|_| !done), self.engine.world.now());
        let given_back = self.write_checkpoint(Some(ours.revision), &checkpoint).await;
        // The first failure is returned. If the mark could not be given back, its lease runs out.
        swept?;
        if !given_back? {
            tracing::warn!("a sweep's lease had expired before its turn ended: another continues it");
            return Ok(());
        }
        if done {
            telemetry::count(SWEEP_COMPLETED);
            return Ok(());
        }
        self.send_go_on(Duration::ZERO).await
    }

    async fn send_go_on(&self, delay: Duration) -> Result<(), WorkError> {
        Ok(self.sweeps.send(&Message::Sweep.to_json(), delay).await?)
    }

    fn checkpoint(&self, progress: Option<&SweepProgress>, lease_until: Timestamp) -> Checkpoint {
        let revision = self.engine.world.nonce().into();
        Checkpoint {
            name: SWEEP.to_owned(),
            revision,
            lease_until,
            progress: progress.map(SweepProgress::to_json),
        }
    }

    /// The progress of the sweep under way; `None` if there is none. One whose progress cannot be read begins anew.
    fn running_sweep(&self, checkpoint: Option<&Checkpoint>) -> Option<SweepProgress> {
        let checkpoint = checkpoint?;
        let progress = checkpoint.progress.as_deref()?;
        let forgotten = self.engine.world.now() > checkpoint.lease_until.plus(MAX_SWEEP_PAUSE);
        Some(if forgotten {
            SweepProgress::default()
        } else {
            serde_json::from_str(progress).unwrap_or_default()
        })
    }

    async fn load_checkpoint(&self) -> Result<Option<Checkpoint>, StoreError> {
        self.engine.bounded(None, self.records.load_checkpoint(SWEEP)).await
    }

    async fn write_checkpoint(
        &self,
        seen: Option<Revision>,
        checkpoint: &Checkpoint,
    ) -> Result<bool, StoreError> {
        self.engine.bounded(None, self.records.write_checkpoint(seen, checkpoint)).await
    }
}

fn seen(current: Option<&Checkpoint>) -> Option<Revision> {
    current.map(|checkpoint| checkpoint.revision)
}
