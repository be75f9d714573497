//! Takes reservations back that run nothing: their owner has learned of them too late, or not at all.

use tokio::sync::oneshot;

use super::{Effort, Executor, Moment, Retries, Start, Step, Tried};
use crate::{record::Record, time_budget::TAKE_BACK_PAUSES};

/// How a reservation is taken back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeBack {
    /// At once: it stands.
    Now,
    /// After a pause, again and again: it may land later.
    UntilItStands,
    /// After a pause, by one try: the store has enough to do, or refuses us.
    Once,
}

impl Executor {
    /// Releases a reservation that was perhaps applied and is certainly not executed, so that a passing fault of the
    /// store leaves nothing to reconcile. In the background, for as long as the operation's patience: the caller has its
    /// answer. If the reservation lands later still, its lease ends it as `unknown`. Tells when it is done.
    pub(super) fn take_back(&self, tried: Tried, how: TakeBack) -> oneshot::Receiver<()> {
        let (done, is_done) = oneshot::channel();
        let executor = self.clone();
        self.engine.world.spawn(Box::pin(async move {
            executor.release_untouched(tried, how).await;
            // Nobody has to wait for it.
            let _ = done.send(());
        }));
        is_done
    }

    async fn release_untouched(&self, Tried { record, over }: Tried, how: TakeBack) {
        let world = &self.engine.world;
        let give_up_at = world.instant().plus(self.operation().patience_span());
        if how != TakeBack::Now {
            world.sleep(TAKE_BACK_PAUSES.first).await;
        }
        let attempt = record.attempt;
        let perhaps_later = || match give_up_at.since(world.instant()) {
            left if left.is_zero() || how != TakeBack::UntilItStands => Step::Stop(()),
            left => Step::Wait(left),
        };
        let step = |there: Option<&Record>, Moment { revision, now }: Moment| match there {
            // While what it was to replace still stands, it can still land (T47).
            Some(there) if over == Some(there.revision) => perhaps_later(),
            None if over.is_none() => perhaps_later(),
            None => Step::Stop(()),
            Some(there) => match there.release(attempt, revision, now) {
                Ok(released) => Step::Write(released.into(), ()),
                Err(_) => Step::Stop(()),
            },
        };
        let retries = if how == TakeBack::Once { Retries::None } else { Retries::Quietly };
        let effort = Effort { until: Some(give_up_at), pauses: TAKE_BACK_PAUSES, retries };
        // What is not taken back is ended by its lease.
        let _ = self.engine.apply(Start::Seen(record), effort, step).await;
    }
}
