//! Schedules: a function invoked again and again with one input.

use crate::{
    functions::Function,
    mapping::{Failure, say},
};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::time::{self, Instant, MissedTickBehavior};

/// Invokes the function every `period`, the first time after one. Never two at once: what takes longer than its period is
/// followed by the next that is due, after a rest of this many times as long as it took.
pub async fn run(function: Arc<Function>, input: Value, period: Duration, rest: u32) {
    let mut ticks = time::interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let payload = input.to_string();
    loop {
        ticks.tick().await;
        let begun = Instant::now();
        let ended = Failure::of(function.invoke(payload.clone().into()).await);
        if let Err(failure) = ended {
            say(&function, &format!("{payload}: {failure}"));
        }
        time::sleep(begun.elapsed() * rest).await;
    }
}
