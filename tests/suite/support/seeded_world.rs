//! A world in virtual time with one thread and one seed. Every run in it is the same.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use lambda_idempotency::{time::Timestamp, world::World};
use tokio::task::AbortHandle;

/// Runs on tokio's paused clock, which advances to the next sleeper when there is nothing else to do. Clones share the world.
#[derive(Clone, Debug)]
pub struct SeededWorld {
    began: tokio::time::Instant,
    began_at: Timestamp,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    random: u64,
    running: Vec<AbortHandle>,
}

impl SeededWorld {
    /// A world whose wall clock shows `now`. The runtime's clock must be paused.
    pub fn new(seed: u64, now: Timestamp) -> Self {
        let state = State { random: seed, running: Vec::new() };
        Self { began: tokio::time::Instant::now(), began_at: now, state: Arc::new(Mutex::new(state)) }
    }

    /// The process dies. None of its tasks continues.
    pub fn crash(&self) {
        self.state.lock().unwrap().running.drain(..).for_each(|task| task.abort());
    }
}

impl World for SeededWorld {
    fn now(&self) -> Timestamp {
        self.began_at.plus(self.began.elapsed())
    }

    fn running(&self) -> Duration {
        self.began.elapsed()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(span))
    }

    fn nonce(&self) -> [u8; 16] {
        let mut state = self.state.lock().unwrap();
        let mut next = || {
            // splitmix64
            state.random = state.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state.random ^ (state.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
        };
        let (high, low) = (next(), next());
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let running = tokio::spawn(task).abort_handle();
        self.state.lock().unwrap().running.push(running);
    }
}
