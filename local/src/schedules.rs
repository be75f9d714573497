//! Schedules: invoke a function periodically, always with the same input.

use crate::{
    functions::Function,
    mapping::{Failure, warn},
};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::time::{self, Instant, MissedTickBehavior};

/// Invokes the function every `period`, first after one period. Invocations never overlap: the next one waits for the last to
/// end, then rests for `rest` times its duration, and skips the runs that it missed.
pub async fn run(function: Arc<Function>, input: Value, period: Duration, rest: u32) {
    let mut ticks = time::interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let payload = input.to_string();
    loop {
        ticks.tick().await;
        let begun = Instant::now();
        let ended = Failure::of(function.invoke(payload.clone().into()).await);
        if let Err(failure) = ended {
            warn(&function, &format!("{payload}: {failure}"));
        }
        time::sleep(begun.elapsed() * rest).await;
    }
}
