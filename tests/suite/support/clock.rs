//! A clock that stands still and knows its sleepers. A test advances it exactly when the code under test waits.

use futures_util::future::BoxFuture;
use lambda_idempotency::{
    time::Timestamp,
    world::{ManualWorld, World},
};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// How long a test waits for an event, by the machine's clock. Far beyond what any test needs, and less than the test client's timeouts.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The executor's own timeout for one step with the store, if no deadline is nearer.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// The wait before a write that got no answer is sent again a second time. The first time it is sent at once.
pub const SENT_AGAIN: Duration = Duration::from_millis(25);

/// The backoffs between two tries, in milliseconds. All other sleeps are timeouts of steps, which begin and end with the step.
const BACKOFFS: [u128; 7] = [25, 50, 100, 200, 400, 800, 1000];

/// Fails if `work` ends only through the timeouts of the test client or of the machine.
pub async fn in_time<T>(work: impl Future<Output = T>) -> T {
    // Boxed, because without optimisation futures that hold a request to the store are large.
    tokio::time::timeout(TIMEOUT, Box::pin(work)).await.expect("this should have ended by now")
}

#[derive(Clone, Copy, Debug)]
struct Sleep {
    span: Duration,
    /// When it ends, by [`World::running`].
    ends: Duration,
}

/// A manual clock with a list of all sleeps that have begun. Clones share the clock.
#[derive(Clone, Debug)]
pub struct WatchedClock {
    clock: ManualWorld,
    begun: watch::Sender<Vec<Sleep>>,
}

impl WatchedClock {
    pub fn at(now: Timestamp) -> Self {
        Self { clock: ManualWorld::at(now), begun: watch::Sender::default() }
    }

    /// A clock that stands at the machine's time, so that a store does not delete items by its own clock.
    pub fn now_standing() -> Self {
        Self::at(SystemTime::now().into())
    }

    pub fn advance(&self, span: Duration) {
        self.clock.advance(span);
    }

    pub fn set(&self, now: Timestamp) {
        self.clock.set(now);
    }

    /// Returns when `number` sleeps of this length have begun since the clock was made.
    pub async fn slept(&self, span: Duration, number: usize) {
        let mut begun = self.begun.subscribe();
        let enough = |begun: &Vec<Sleep>| begun.iter().filter(|begun| begun.span == span).count() >= number;
        let reached = tokio::time::timeout(TIMEOUT, begun.wait_for(enough)).await;
        assert!(reached.is_ok(), "{number} sleeps of {span:?} should have begun by now");
    }

    /// How many sleeps on this clock are pending.
    pub fn sleepers(&self) -> usize {
        self.clock.sleepers()
    }

    /// Returns when no sleep on this clock is pending.
    pub async fn no_sleepers(&self) {
        let ended = async {
            while self.clock.sleepers() > 0 {
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::time::timeout(TIMEOUT, ended).await;
        assert!(ended.is_ok(), "{} still sleep", self.clock.sleepers());
    }

    /// Runs `work`, in which these sleeps begin one after another, and advances the clock to the end of each. No other time passes.
    pub async fn through<T>(&self, sleeps: &[Duration], work: impl Future<Output = T>) -> T {
        let before = self.begun.borrow().len();
        let time_passes = async {
            for (place, span) in sleeps.iter().enumerate() {
                let earlier = sleeps[..place].iter().filter(|earlier| *earlier == span).count();
                let new = |begun: &Vec<Sleep>| begun[before..].iter().filter(|new| new.span == *span).count();
                let reached = |begun: &Vec<Sleep>| new(begun) > earlier;
                let mut begun = self.begun.subscribe();
                let slept = tokio::time::timeout(TIMEOUT, begun.wait_for(reached)).await;
                assert!(slept.is_ok(), "sleep {place} of {sleeps:?} should have begun by now");
                self.advance(*span);
            }
        };
        tokio::join!(work, time_passes).0
    }

    /// Runs `work`, and advances the clock whenever it waits between two tries: to the end of that wait, however many wait at once.
    pub async fn passing<T>(&self, work: impl Future<Output = T>) -> T {
        let mut begun = self.begun.subscribe();
        let mut known = begun.borrow_and_update().len();
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                changed = begun.changed() => changed.expect("the clock lives"),
            }
            let new = begun.borrow_and_update()[known..].to_vec();
            known += new.len();
            for backoff in new.into_iter().filter(|sleep| BACKOFFS.contains(&sleep.span.as_millis())) {
                self.advance(backoff.ends.saturating_sub(self.running()));
            }
        }
    }
}

impl World for WatchedClock {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn running(&self) -> Duration {
        self.clock.running()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        let ends = self.running().saturating_add(span);
        let sleep = self.clock.sleep(span);
        self.begun.send_modify(|begun| begun.push(Sleep { span, ends }));
        // What waits longer than its test expects would hang, because nothing advances the clock.
        Box::pin(async move {
            let ended = tokio::time::timeout(TIMEOUT, sleep).await;
            assert!(ended.is_ok(), "a sleep of {span:?} should have ended by now");
        })
    }

    /// With a first byte of zero, for which a backoff has no jitter. Tests know its sleeps by their length.
    fn nonce(&self) -> [u8; 16] {
        let mut nonce = self.clock.nonce();
        nonce[0] = 0;
        nonce
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.clock.spawn(task);
    }
}
