//! Takes back reservations that will run nothing: the store's answer to their owner came too late, or not at all.

use tokio::sync::oneshot;
use tracing::Instrument;

use super::{Effort, Executor, Moment, Retries, Start, Step, Tried};
use crate::{
    record::{Ended, Record},
    telemetry,
    time_budget::TAKE_BACK_BACKOFF,
};

/// How a reservation is taken back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeBack {
    /// At once: it was applied.
    Now,
    /// After a wait, repeatedly: it may be applied later.
    UntilApplied,
    /// After a wait, by one try: the store throttles or refuses us.
    Once,
}

impl Executor {
    /// Releases a reservation that may have been applied and was certainly not executed. So a passing fault of the store leaves
    /// nothing to reconcile.
    ///
    /// It runs in the background, for up to the operation's completion time-out: the caller has its answer. If the reservation is
    /// applied after that, it becomes `unknown` once its lease has expired. The receiver resolves when the task is done.
    pub(super) fn take_back(&self, tried: Tried, how: TakeBack) -> oneshot::Receiver<()> {
        let span = telemetry::task_span(&tried.record.key);
        let (done, is_done) = oneshot::channel();
        let executor = self.clone();
        let task = async move {
            executor.release_untouched(tried, how).await;
            // The caller may have stopped waiting.
            let _ = done.send(());
        };
        self.engine.world.spawn(Box::pin(task.instrument(span)));
        is_done
    }

    async fn release_untouched(&self, Tried { record, over }: Tried, how: TakeBack) {
        let world = &self.engine.world;
        let stop_at = world.instant().plus(self.operation().completion_timeout);
        if how != TakeBack::Now {
            world.sleep(TAKE_BACK_BACKOFF.after(1, world.nonce())).await;
        }
        let worker = record.clone();
        let perhaps_later = || match stop_at.since(world.instant()) {
            left if left.is_zero() || how != TakeBack::UntilApplied => Step::Stop(()),
            left => Step::Wait(left),
        };
        let step = |current: Option<&Record>, Moment { revision, now }: Moment| match current {
            // It can still be applied while the record that it replaces is current (T47).
            Some(current) if over == Some(current.revision) => perhaps_later(),
            None if over.is_none() => perhaps_later(),
            None => Step::Stop(()),
            Some(current) => Ended::NotStarted
                .of(current, &worker, revision, now)
                .map_or(Step::Stop(()), |released| Step::Write(released.into(), ())),
        };
        let retries = if how == TakeBack::Once { Retries::None } else { Retries::Quietly };
        let effort = Effort { until: Some(stop_at), backoff: TAKE_BACK_BACKOFF, retries };
        // If this fails, the lease ends the reservation.
        let _ = self.engine.apply(Start::Seen(record), effort, step).await;
    }
}
