//! A world for tests, whose time stands still until a test advances it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::{SystemWorld, World};
use crate::time::Timestamp;

/// Clocks that stand still until a test advances them. Randomness and tasks are the system's. Clones are one world.
#[derive(Clone, Debug)]
pub struct ManualWorld {
    running: Arc<watch::Sender<Duration>>,
    now: Arc<Mutex<Timestamp>>,
}

impl ManualWorld {
    /// A world whose wall clock shows `now`.
    pub fn at(now: Timestamp) -> Self {
        Self { running: Arc::new(watch::Sender::new(Duration::ZERO)), now: Arc::new(Mutex::new(now)) }
    }

    /// Advances both clocks, and wakes each sleeper whose time has come.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().plus(by));
        self.running.send_modify(|running| *running = running.saturating_add(by));
    }

    /// Sets the wall clock alone, backward too, as a correction by NTP would.
    pub fn set(&self, now: Timestamp) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// How many sleepers wait: lets a test advance the clocks only once the code under test sleeps.
    pub fn sleepers(&self) -> usize {
        self.running.receiver_count()
    }
}

impl World for ManualWorld {
    fn now(&self) -> Timestamp {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> Duration {
        *self.running.borrow()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let mut running = self.running.subscribe();
        let until = running.borrow().saturating_add(duration);
        Box::pin(async move {
            // An error means that all clones of the world are dropped: then no test can advance the clock.
            let _ = running.wait_for(|running| *running >= until).await;
        })
    }

    fn nonce(&self) -> [u8; 16] {
        SystemWorld.nonce()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        SystemWorld.spawn(task);
    }
}

#[cfg(test)]
impl ManualWorld {
    /// Runs `work`, and lets time pass while it waits. Fails if it has not ended after an hour of this world.
    pub(crate) async fn passing<T>(&self, work: impl Future<Output = T>) -> T {
        let (mut work, began) = (std::pin::pin!(work), self.running());
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::task::yield_now() => self.advance(Duration::from_millis(5)),
            }
            assert!(self.running() - began < Duration::from_secs(3600), "this should have ended by now");
        }
    }
}
