//! Measures whether the local cloud keeps its pace: the rate of payments 1,000 to 2,000, that of payments 19,000 to 20,000, and
//! their ratio, which must be at least 0.9. Run `cargo bench -p local --bench payments`; append `-- PROGRAM` for another build.
//! Linux only: it reads the local cloud's processor time, without its functions, from `/proc`. On a busy machine that says more
//! than the rate.

mod cloud;

use cloud::{Cloud, Outcome};
use futures_util::{StreamExt, stream};
use serde_json::json;
use std::{
    fs,
    process::ExitCode,
    time::{Duration, Instant},
};

/// The payments whose rate counts.
const EARLY: (usize, usize) = (1_000, 2_000);
const LATE: (usize, usize) = (19_000, 20_000);
/// The lowest ratio of the late rate to the early one.
const MIN_RATIO: f64 = 0.9;
/// Payments at once: as many as `payments` has environments.
const AT_ONCE: usize = 4;
const ATTEMPTS: u32 = 100;
/// The wait between two attempts.
const BACKOFF: Duration = Duration::from_millis(500);
/// Payments per line of progress.
const SHOWN: usize = 1_000;
/// Linux counts processor time in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<ExitCode> {
    // A busy machine is slow, which must not count as a time-out.
    let cloud = Cloud::start(&[
        ("FUNCTION_TIMEOUT_MS", "60000".to_owned()),
        ("PROVIDER_TIMEOUT_MS", "50000".to_owned()),
    ])?;
    let (url, http) = (&format!("{}/payments", cloud.url), &reqwest::Client::new());

    let payments = stream::iter(0..LATE.1).map(async |number| pay(http, url, number).await);
    let payments = payments.buffer_unordered(AT_ONCE);
    futures_util::pin_mut!(payments);
    println!("| payments | a second | processor time of the local cloud alone, a payment |");
    println!("| --- | --- | --- |");
    let (mut checkpoints, mut done) = (vec![Checkpoint::now(&cloud)?], 0);
    while let Some(paid) = payments.next().await {
        paid?;
        done += 1;
        if done % SHOWN == 0 {
            let checkpoint = Checkpoint::now(&cloud)?;
            let (rate, cpu) = checkpoint.since(&checkpoints[checkpoints.len() - 1], SHOWN);
            println!("| {} to {done} | {rate:.0} | {:.2} ms |", done - SHOWN, cpu.as_secs_f64() * 1e3);
            checkpoints.push(checkpoint);
        }
    }
    let of =
        |(from, to): (usize, usize)| checkpoints[to / SHOWN].since(&checkpoints[from / SHOWN], to - from);
    let ((early, early_cpu), (late, late_cpu)) = (of(EARLY), of(LATE));
    let ratio = late / early;
    println!(
        "\nrate {late:.0}/s of {early:.0}/s: {ratio:.2}; processor time a payment: {:.2}",
        late_cpu.as_secs_f64() / early_cpu.as_secs_f64()
    );
    if ratio < MIN_RATIO {
        eprintln!("the local cloud slows down: {ratio:.2} is less than {MIN_RATIO}");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends the payment until it is made, like a client of a busy server.
async fn pay(http: &reqwest::Client, url: &str, number: usize) -> Outcome<()> {
    let order = json!({ "customerId": "c-1", "amountCents": 1999, "currency": "EUR", "source": "tok_ok" });
    for _ in 0..ATTEMPTS {
        let request = http.post(url).bearer_auth("acme").header("Idempotency-Key", format!("order-{number}"));
        match request.json(&order).send().await?.status().as_u16() {
            201 => return Ok(()),
            409 | 500.. => tokio::time::sleep(BACKOFF).await,
            status => return Err(format!("payment {number}: {status}").into()),
        }
    }
    Err(format!("payment {number} is not made after {ATTEMPTS} attempts").into())
}

/// A point in the run.
struct Checkpoint {
    time: Instant,
    cpu: Duration,
}

impl Checkpoint {
    fn now(cloud: &Cloud) -> Outcome<Self> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", cloud.process.id()))?;
        // After the program's name, which may hold anything, come the state and ten numbers, then user and system time.
        let behind = stat.rsplit_once(')').ok_or("no such process")?.1;
        let ticks = behind.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
        let ticks = ticks.sum::<Result<u32, _>>()?;
        Ok(Self { time: Instant::now(), cpu: TICK * ticks })
    }

    /// Payments per second, and processor time per payment.
    fn since(&self, earlier: &Self, payments: usize) -> (f64, Duration) {
        let rate = payments as f64 / (self.time - earlier.time).as_secs_f64();
        (rate, (self.cpu - earlier.cpu) / payments as u32)
    }
}
