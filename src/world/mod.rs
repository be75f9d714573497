//! The world around the library: clocks, randomness, and tasks in the background.
//!
//! 1. Nothing in the library asks the operating system past it (a lint forbids that), so that a test or a simulator can
//!    hold all of it in the hand.
//! 2. Spans are measured, and waited for, by [`running`](World::running). [`now`](World::now) is for what records keep.
//! 3. A clock decides only *when to look* at a record; who may change it is decided by the record's revision. So a wrong
//!    clock costs a detour through reconciliation, and never a second effect.
//!
//! The AWS SDK's clients are outside of it: a store or a queue brings its own clock, for its own time-outs.

mod manual;
mod system;

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;

pub use manual::ManualWorld;
pub use system::SystemWorld;

use crate::time::{Instant, Timestamp};

/// What the library asks of the machine that it runs on.
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
    /// The wall clock's time. It can be set, forward and backward.
    fn now(&self) -> Timestamp;

    /// How long a clock has run that nobody sets, since a beginning of its own. It may stand still while the machine is
    /// suspended.
    fn running(&self) -> Duration;

    /// Ends once [`running`](Self::running) has gone on by `span`.
    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()>;

    /// Sixteen bytes that no other call returns, here or anywhere. Never from memory alone: SnapStart clones memory.
    fn nonce(&self) -> [u8; 16];

    /// Runs `task` to its end, whatever becomes of the caller.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// A moment to come, by both clocks. It has come once either says so: one stands still while the machine is suspended, and
/// the other can be set back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) wall: Timestamp,
    pub(crate) running: Instant,
}

impl dyn World {
    /// The instant by the clock that nobody sets.
    pub(crate) fn instant(&self) -> Instant {
        Instant::from_beginning(self.running())
    }

    /// The moment after this span.
    pub(crate) fn term(&self, span: Duration) -> Term {
        Term { wall: self.now().plus(span), running: self.instant().plus(span) }
    }

    /// How long it is until that moment at most; nothing if it has come.
    pub(crate) fn left(&self, term: Term) -> Duration {
        term.wall.since(self.now()).min(term.running.since(self.instant()))
    }
}
