//! Time as values.
//!
//! 1. Records compare instants of different machines, so a record keeps wall-clock time ([`Timestamp`]).
//! 2. Waits within one process use a monotonic clock: setting the wall clock ends no wait early, and makes none endless.
//! 3. Neither decides who may change a record; its revision does.
//!
//! Both come from the [`World`](crate::world::World).

use std::time::Duration;

pub use protocol::time::Timestamp;

/// An instant of a monotonic clock. Valid within one process, and never part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    /// The instant at which the clock has run for this long.
    pub(crate) const fn from_beginning(running: Duration) -> Self {
        Self(running)
    }

    /// The instant `by` later.
    pub(crate) fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// How long after `earlier` this is; zero if it is not later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
