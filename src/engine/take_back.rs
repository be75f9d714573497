//! Takes back reservations that will run nothing: the store's answer to their owner came too late, or not at all.

use tokio::sync::oneshot;
use tracing::Instrument;

use super::{Applied, Effort, Executor, Moment, Retries, Start, Step, Tried};
use crate::{
    record::{Record, Report},
    telemetry,
    time::Instant,
    time_budget::{ANSWER_TIME, TAKE_BACK_BACKOFF},
};

/// How a reservation is taken back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeBack {
    /// It was applied.
    Now,
    /// Repeatedly: it may be applied later.
    UntilApplied,
    /// By one try: the store throttles or refuses us.
    Once,
}

impl Executor {
    /// Takes a reservation back before its caller is answered: on Lambda, nothing may run after the answer. So the client's retry finds
    /// the key free. If one try does not settle it, the queue of deferred reports gets what is certain: that nothing has started.
    pub(super) async fn take_back_now(&self, tried: Tried, how: TakeBack, ends_at: Option<Instant>) {
        let world = &self.engine.world;
        let (record, executor) = (tried.record.clone(), self.clone());
        let (done, is_done) = oneshot::channel();
        self.take_back_by(&record, async move {
            let stop_at = executor.stop_taking_back_at();
            let is_settled = executor.release_untouched(&tried, how, Retries::None, stop_at).await;
            // The caller may have stopped waiting.
            let _ = done.send(is_settled);
            if !is_settled {
                executor.release_later(tried, how).await;
            }
        });
        let left = ends_at.map_or(ANSWER_TIME, |ends_at| ends_at.since(world.instant()) / 2);
        if let Some(Ok(true)) = world.within(ANSWER_TIME.min(left), is_done).await {
            return;
        }
        // The task continues as long as this process runs.
        self.defer_not_started(&record, ends_at).await;
    }

    /// Takes a reservation back in the background: the caller has its answer.
    pub(super) fn take_back(&self, tried: Tried, how: TakeBack) {
        let (record, executor) = (tried.record.clone(), self.clone());
        self.take_back_by(&record, async move { executor.release_later(tried, how).await });
    }

    fn take_back_by(&self, record: &Record, task: impl Future<Output = ()> + Send + 'static) {
        let span = telemetry::task_span(&record.key);
        self.engine.world.spawn(Box::pin(task.instrument(span)));
    }

    fn stop_taking_back_at(&self) -> Instant {
        self.engine.world.instant().plus(self.operation().completion_timeout)
    }

    /// Releases a reservation after a wait, for up to the operation's completion time-out. If it is applied after that, or the store
    /// fails, the lease ends it: it becomes `unknown`.
    async fn release_later(&self, tried: Tried, how: TakeBack) {
        let (world, stop_at) = (&self.engine.world, self.stop_taking_back_at());
        world.sleep(TAKE_BACK_BACKOFF.after(1, world.nonce())).await;
        let retries = if how == TakeBack::Once { Retries::None } else { Retries::Quietly };
        self.release_untouched(&tried, how, retries, stop_at).await;
    }

    /// Releases a reservation that may have been applied and was certainly not executed. So a passing fault of the store leaves nothing
    /// to reconcile. Returns whether nothing is left to be taken back.
    async fn release_untouched(
        &self,
        tried: &Tried,
        how: TakeBack,
        retries: Retries,
        stop_at: Instant,
    ) -> bool {
        let (world, worker, over) = (&self.engine.world, &tried.record, tried.over);
        let perhaps_later = || match stop_at.since(world.instant()) {
            _ if how == TakeBack::Now => Step::Stop(true),
            left if left.is_zero() || retries == Retries::None => Step::Stop(false),
            left => Step::Wait(left),
        };
        let step = |current: Option<&Record>, Moment { revision, now }: Moment| match current {
            // It can still be applied while the record that it replaces is current (T47).
            Some(current) if over == Some(current.revision) => perhaps_later(),
            None if over.is_none() => perhaps_later(),
            None => Step::Stop(true),
            Some(current) => Report::NotStarted
                .of(current, worker, revision, now)
                .map_or(Step::Stop(true), |released| Step::Write(released.into(), true)),
        };
        let effort = Effort { until: Some(stop_at), backoff: TAKE_BACK_BACKOFF, retries };
        match self.engine.apply(Start::Seen(worker.clone()), effort, step).await {
            Ok(Applied::Written(is_settled, _) | Applied::Stopped(is_settled, _)) => is_settled,
            Err(_) => false,
        }
    }
}
