//! Schedules: invoke a function periodically, always with the same input.
//!
//! A run that fails goes to the queue that the function names for it. Lambda would try it twice more before; here, the next run is near.

use crate::{
    functions::Function,
    mapping::{Failure, warn},
};
use aws_sdk_sqs::Client;
use lambda_idempotency::telemetry::error_chain;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{self, Instant, MissedTickBehavior},
};

/// If no record has changed for this long, nothing is about to be asked about.
const QUIET_AFTER: Duration = Duration::from_secs(30);
/// How much longer the next poll waits then, unless a record changes.
const QUIET: Duration = Duration::from_secs(15);

/// When a record was changed last.
pub type Records = watch::Receiver<Option<Instant>>;

/// What a schedule invokes.
pub struct Scheduled {
    pub function: Arc<Function>,
    pub input: Value,
    /// Where runs go that fail: a client, and the URL of a queue.
    pub failed_runs: Option<(Client, String)>,
}

/// Invokes the function every `period`, first after one period. Invocations never overlap: the next one waits for the last to
/// end, then rests for `rest` times its duration, and skips the runs that it missed. A poll of `records` runs less often while they stay as they are.
pub async fn run(scheduled: Scheduled, period: Duration, rest: u32, mut records: Option<Records>) {
    let mut ticks = time::interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if let Some(records) = &mut records {
            let changed = *records.borrow_and_update();
            if is_quiet(changed, Instant::now()) {
                let _ = time::timeout(QUIET, records.changed()).await;
            }
        }
        let begun = Instant::now();
        scheduled.once().await;
        time::sleep(begun.elapsed() * rest).await;
    }
}

fn is_quiet(changed: Option<Instant>, now: Instant) -> bool {
    changed.is_none_or(|changed| now.duration_since(changed) > QUIET_AFTER)
}

impl Scheduled {
    /// Invokes the function once.
    pub async fn once(&self) {
        let Self { function, input, failed_runs } = self;
        let Err(failure) = Failure::of(function.invoke(input.to_string().into()).await) else { return };
        warn(function, &format!("{input}: {failure}"));
        if let Some((client, url)) = failed_runs {
            let send = client.send_message().queue_url(url).message_body(record(input, &failure).to_string());
            if let Err(error) = send.send().await {
                warn(function, &format!("the queue of failed runs: {}", error_chain(&error)));
            }
        }
    }
}

/// Lambda's record of an invocation, as far as operators read it.
fn record(input: &Value, failure: &Failure) -> Value {
    json!({
        "version": "1.0",
        "requestContext": { "condition": "RetriesExhausted", "approximateInvokeCount": 1 },
        "requestPayload": input,
        "responsePayload": { "errorMessage": failure.to_string() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_quiet_until_one_changes_and_half_a_minute_later() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        assert!(is_quiet(None, now));
        assert!(!is_quiet(Some(now), now + QUIET_AFTER));
        assert!(is_quiet(Some(now), now + QUIET_AFTER + second));
    }
}
