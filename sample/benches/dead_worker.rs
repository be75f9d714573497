//! Measures how long after the end of its lease a dead worker is found, in the local cloud. Each payment's process is aborted
//! right after the charge, and no client retries. Run `cargo bench -p local --bench dead_worker`; append `-- PROGRAM` for another
//! build.

mod cloud;

use cloud::{Cloud, Outcome};
use serde_json::{Value, json};
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

const DEATHS: usize = 20;
/// Shorter than the local cloud's defaults, so that a run is short.
const LEASE: Duration = Duration::from_secs(3);
const GRACE: Duration = Duration::from_secs(2);
const WINDOW: Duration = Duration::from_secs(1);
/// The time that stream, queue and check may take on top.
const MAX_DELAY: Duration = Duration::from_secs(2);
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<ExitCode> {
    let millis = |span: Duration| span.as_millis().to_string();
    let cloud = Cloud::start(&[
        ("FUNCTION_TIMEOUT_MS", millis(LEASE)),
        ("LEASE_GRACE_MS", millis(GRACE)),
        ("WINDOW_MS", millis(WINDOW)),
        // Nothing else may find the record or settle it.
        ("SWEEP_MS", millis(NEVER)),
        ("POLL_MS", millis(NEVER)),
    ])?;
    let http = reqwest::Client::new();

    let mut all = Vec::new();
    for number in 0..DEATHS {
        let after = expired_after(&http, &cloud.url, &format!("order-{number}")).await?;
        println!("{number}: unknown {:.2} s after the end of the lease", after.as_secs_f64());
        all.push(after);
    }
    all.sort();
    let (median, longest, max) = (all[all.len() / 2], all[all.len() - 1], GRACE + WINDOW + MAX_DELAY);
    println!(
        "\nmedian {:.2} s, longest {:.2} s, of {:.0} s: grace {:.0} s, window {:.0} s, and {:.0} s",
        median.as_secs_f64(),
        longest.as_secs_f64(),
        max.as_secs_f64(),
        GRACE.as_secs_f64(),
        WINDOW.as_secs_f64(),
        MAX_DELAY.as_secs_f64(),
    );
    if longest > max {
        eprintln!("a dead worker was found too late");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Has a worker die after the charge, and waits until its record is `unknown`.
async fn expired_after(http: &reqwest::Client, url: &str, key: &str) -> Outcome<Duration> {
    let order =
        json!({ "customerId": "c-1", "amountCents": 1999, "currency": "EUR", "source": "tok_crash_after" });
    // The deadline, as far as the caller knows it. It is later if the environment has to start first.
    let over = Instant::now() + LEASE;
    let pay = http.post(format!("{url}/payments")).bearer_auth("acme").header("Idempotency-Key", key);
    let status = pay.json(&order).send().await?.status();
    if status != 502 {
        return Err(format!("{key}: {status} instead of a crash").into());
    }
    loop {
        let state = http.get(format!("{url}/operations/{key}?operation=create-payment")).bearer_auth("acme");
        let document: Value = state.send().await?.json().await?;
        match document["state"].as_str() {
            Some("in_progress") => tokio::time::sleep(POLL_INTERVAL).await,
            Some("unknown") => return Ok(Instant::now().saturating_duration_since(over)),
            other => return Err(format!("{key}: {other:?}").into()),
        }
        if over.elapsed() > 10 * (GRACE + WINDOW + MAX_DELAY) {
            return Err(format!("{key}: never").into());
        }
    }
}
