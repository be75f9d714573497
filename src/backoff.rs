//! The waits between tries: one backoff with jitter, and one loop with a deadline, for everything that is retried.
//!
//! 1. Each wait is the one before it times a factor, up to a maximum. A jitter shortens it by up to a quarter, so that tries that
//!    failed together are not repeated together.
//! 2. Clock and jitter come from the [`World`], so that a simulated run can be repeated.
//! 3. A try that would begin at the deadline, or after it, is not waited for.
//!
//! Below this, the AWS clients retry too, except for the writes of records: see [`STORE_TRY`](crate::time_budget::STORE_TRY) and its
//! neighbours.

use std::{sync::Arc, time::Duration};

use crate::{time::Instant, world::World};

pub use protocol::backoff::Backoff;

/// The tries of one loop: it waits between them, until the deadline.
pub(crate) struct Retry<'a> {
    world: &'a Arc<dyn World>,
    backoff: Backoff,
    until: Option<Instant>,
    tries: u32,
}

impl<'a> Retry<'a> {
    /// Tries that begin before `until`. Without it, their number has no limit.
    pub(crate) fn new(world: &'a Arc<dyn World>, backoff: Backoff, until: Option<Instant>) -> Self {
        Self { world, backoff, until, tries: 0 }
    }

    /// The time until the deadline, if there is one.
    pub(crate) fn left(&self) -> Option<Duration> {
        Some(self.until?.since(self.world.instant()))
    }

    /// Waits before another try. Returns `false` at once if the deadline would come first.
    pub(crate) async fn again(&mut self) -> bool {
        self.again_after(Duration::ZERO).await
    }

    /// The same, but it waits for this long at least.
    pub(crate) async fn again_after(&mut self, at_least: Duration) -> bool {
        let wait = self.next().max(at_least);
        if self.until.is_some_and(|until| self.world.instant().plus(wait) >= until) {
            return false;
        }
        self.world.sleep(wait).await;
        true
    }

    /// Waits for this duration at most. The deadline does not count.
    pub(crate) async fn wait(&mut self, at_most: Duration) {
        let wait = self.next().min(at_most);
        self.world.sleep(wait).await;
    }

    fn next(&mut self) -> Duration {
        self.tries = self.tries.saturating_add(1);
        self.backoff.after(self.tries, self.world.nonce())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        time::Timestamp,
        time_budget::{POLL_BACKOFF, TAKE_BACK_BACKOFF, WRITE_BACKOFF},
        world::ManualWorld,
    };

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(100), factor: 2, max: Duration::from_millis(500) };

    #[tokio::test]
    async fn a_try_that_would_begin_at_the_deadline_is_not_waited_for() {
        let world = ManualWorld::at(Timestamp::from_secs(1_000));
        let shared: Arc<dyn World> = Arc::new(world.clone());
        let even = Backoff { factor: 1, ..BACKOFF };
        // The first wait is 75 to 100 ms, and so is the second.
        let mut retry = Retry::new(&shared, even, Some(shared.instant().plus(Duration::from_millis(150))));
        let mut first = Box::pin(retry.again());
        assert_eq!(first.as_mut().now_or_never(), None);
        world.advance(even.first);
        assert!(first.as_mut().now_or_never().unwrap());
        drop(first);
        assert_eq!(retry.again().now_or_never(), Some(false));
        // A wait with a bound ignores the deadline.
        let mut look = Box::pin(retry.wait(Duration::from_millis(10)));
        assert_eq!(look.as_mut().now_or_never(), None);
        world.advance(Duration::from_millis(10));
        assert!(look.now_or_never().is_some());
    }

    proptest! {
        #[test]
        fn every_wait_stays_within_its_bounds(tries: u32, nonce: [u8; 16], first: u32, max: u64) {
            let own = Backoff { first: Duration::from_millis(first.into()), factor: 2, max: Duration::from_millis(max) };
            for backoff in [WRITE_BACKOFF, POLL_BACKOFF, TAKE_BACK_BACKOFF, own] {
                let (full, wait) = (backoff.after(tries, [0; 16]), backoff.after(tries, nonce));
                prop_assert!(backoff.first.min(backoff.max) <= full && full <= backoff.max);
                prop_assert!(full * 3 / 4 <= wait && wait <= full);
            }
        }
    }
}
