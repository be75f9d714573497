//! The real world: the machine's clocks, random source, timer and tasks.

// The one place that asks the operating system.
#![allow(clippy::disallowed_methods)]

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use futures_util::future::BoxFuture;
use uuid::Uuid;

use super::World;
use crate::time::Timestamp;

/// When this process first asked how long its clock has run.
static BEGINNING: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// The machine's clocks and random source, and tokio's timer and tasks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWorld;

impl World for SystemWorld {
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn running(&self) -> Duration {
        BEGINNING.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    /// From the operating system's random source, asked at each call.
    fn nonce(&self) -> [u8; 16] {
        Uuid::new_v4().into_bytes()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(task);
        }
    }
}
