//! Time, as a value and as a source that tests can hold in the hand.
//!
//! Records compare instants of different machines, so time is wall-clock time in milliseconds. A clock decides only
//! *when to look* at a record; who may change it is decided by the record's revision, so a wrong clock costs a detour
//! through reconciliation and never a second effect.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::sync::watch;

/// An instant in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

    /// Whole seconds since 1970, rounded up, as DynamoDB's time to live counts them. Up, so that nothing is deleted
    /// before its time.
    pub const fn as_secs_rounded_up(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// The instant `by` later; the end of time where that does not fit.
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The instant `by` earlier; 1970 where that is before it.
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The next whole second, or this instant where it is one: what a time to live can express.
    pub const fn rounded_up_to_second(self) -> Self {
        Self::from_secs(self.as_secs_rounded_up())
    }

    /// How long after `earlier` this is; zero where it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The instant as an HTTP date (RFC 9110, section 5.6.7), which ends with the year 9999.
    pub fn to_http_date(self) -> String {
        const LAST: u64 = 253_402_300_799_000;
        httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(self.0.min(LAST)))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self(0).plus(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

/// A future that ends when a span of a [`Clock`]'s time is over.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where the library takes the time from.
///
/// ```
/// use std::time::Duration;
/// use lambda_idempotency::time::{Clock, ManualClock, Timestamp};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let clock = ManualClock::at(Timestamp::from_secs(1_000));
/// let nap = clock.sleep(Duration::from_secs(60));
/// clock.advance(Duration::from_secs(60));
/// nap.await;
/// assert_eq!(clock.now(), Timestamp::from_secs(1_060));
/// # }
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Ends once this clock has gone on by `span`.
    fn sleep(&self, span: Duration) -> Sleep;
}

/// The machine's clock, and tokio's timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn sleep(&self, span: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(span))
    }
}

/// A clock that stands still until a test advances it. Clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<watch::Sender<Timestamp>>);

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(watch::Sender::new(now)))
    }

    /// Moves the clock on, and wakes what sleeps up to there.
    pub fn advance(&self, span: Duration) {
        self.0.send_modify(|now| *now = now.plus(span));
    }

    /// Sets the clock, backwards too, as a correction by NTP would.
    pub fn set(&self, now: Timestamp) {
        self.0.send_replace(now);
    }

    /// How many sleepers wait for this clock: lets a test advance it only once the code under test has come to its
    /// sleep.
    pub fn sleepers(&self) -> usize {
        self.0.receiver_count()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    fn sleep(&self, span: Duration) -> Sleep {
        let until = self.now().plus(span);
        let mut time = self.0.subscribe();
        Box::pin(async move {
            // The sender lives as long as a clone of the clock; without one nobody can wake us, and nobody waits.
            let _ = time.wait_for(|now| *now >= until).await;
        })
    }
}
