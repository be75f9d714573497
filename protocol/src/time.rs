//! Time as values.
//!
//! 1. Records compare instants of different machines, so a record keeps wall-clock time ([`Timestamp`]).
//! 2. Clocks may be apart by [`CLOCK_SKEW`].
//! 3. No clock decides who may change a record; its revision does.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Clocks may differ by this much. If one is further ahead, a kept answer counts as expired too early, and the operation runs
/// again.
pub const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// A request may still arrive after this: it is on its way for 5 minutes, by clocks that are 5 minutes apart.
pub const ARRIVAL_TIME: Duration = Duration::from_secs(10 * 60);

/// An older effect without a record raises no alarm: providers retry an unacknowledged event for days.
pub const OLD_EFFECT: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// An instant of the wall clock, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The end of time.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant this many milliseconds after 1970.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// The instant this many seconds after 1970.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since 1970, as DynamoDB's time to live counts them. Rounded up, so that nothing is deleted before its time.
    pub const fn as_secs_rounded_up(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// The instant `by` later; the end of time if that does not fit.
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The instant `by` earlier; 1970 if that is before it.
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }

    /// This instant if it is a whole second, else the next one: a time to live has whole seconds.
    pub const fn rounded_up_to_second(self) -> Self {
        Self::from_secs(self.as_secs_rounded_up())
    }

    /// How long after `earlier` this is; zero if it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self(0).plus(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}
