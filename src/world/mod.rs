//! The library's access to the machine: clocks, randomness and background tasks.
//!
//! 1. The library asks the operating system only through it (a lint forbids other calls), so that a test or a simulator controls
//!    everything.
//! 2. Durations are measured, and waited for, by [`running`](World::running). Records hold times of [`now`](World::now).
//! 3. A clock decides only *when to look* at a record; the record's revision decides who may change it. So a wrong clock
//!    costs a detour through reconciliation, never a second effect.
//!
//! It does not cover the AWS SDK's clients: they use the machine's clock for their time-outs.

mod manual;
mod system;

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;

pub use manual::ManualWorld;
pub use system::SystemWorld;

use crate::time::{Instant, Timestamp};

/// Everything that the library asks of the machine it runs on.
///
/// ```
/// use std::time::Duration;
/// use lambda_idempotency::{time::Timestamp, world::{ManualWorld, World}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let world = ManualWorld::at(Timestamp::from_secs(1_000));
/// let nap = world.sleep(Duration::from_secs(60));
/// world.advance(Duration::from_secs(60));
/// nap.await;
/// assert_eq!(world.now(), Timestamp::from_secs(1_060));
/// # }
/// ```
pub trait World: fmt::Debug + Send + Sync + 'static {
    /// The wall clock's time. That clock can be set, forward and backward.
    fn now(&self) -> Timestamp;

    /// How long a monotonic clock has run since it began. It may stand still while the machine is suspended.
    fn running(&self) -> Duration;

    /// Completes once [`running`](Self::running) has advanced by `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Sixteen bytes that no other call returns, in any process. They never come from memory alone: SnapStart clones memory.
    fn nonce(&self) -> [u8; 16];

    /// Runs `task` to its end, even if the caller is dropped. It is called while a caller is dropped, too: if no task can begin then, it drops
    /// the task, and must not panic.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// A future moment, by both clocks. It has come once either clock shows it: one stands still while the machine is suspended, and
/// the other can be set back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) wall: Timestamp,
    pub(crate) running: Instant,
}

impl dyn World {
    /// The instant by the monotonic clock.
    pub(crate) fn instant(&self) -> Instant {
        Instant::from_beginning(self.running())
    }

    /// What `work` returns; `None` if it takes longer than `time`.
    pub(crate) async fn within<T>(&self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        let ends = self.instant().plus(time);
        tokio::select! {
            biased;
            done = work => Some(done),
            // Lazy: work that is done at once needs no timer. Work that blocks at first gets no more time for that.
            () = async { self.sleep(ends.since(self.instant())).await } => None,
        }
    }

    /// The moment after this duration.
    pub(crate) fn term(&self, duration: Duration) -> Term {
        Term { wall: self.now().plus(duration), running: self.instant().plus(duration) }
    }

    /// How long it is until that moment, by the clock that is closer to it; zero if it has come.
    pub(crate) fn left(&self, term: Term) -> Duration {
        term.wall.since(self.now()).min(term.running.since(self.instant()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // T39, T51
    #[test]
    fn a_moment_has_come_once_either_clock_shows_it() {
        const SECOND: Duration = Duration::from_secs(1);
        let manual = ManualWorld::at(Timestamp::from_secs(1_000));
        let world: &dyn World = &manual;
        let term = world.term(60 * SECOND);
        // A process that was suspended: its monotonic clock stood still.
        manual.set(Timestamp::from_secs(1_059));
        assert_eq!(world.left(term), SECOND);
        // The wall clock is set back.
        manual.set(Timestamp::from_secs(500));
        manual.advance(20 * SECOND);
        assert_eq!(world.left(term), 40 * SECOND);
        manual.advance(40 * SECOND);
        assert_eq!(world.left(term), Duration::ZERO);
    }
}
