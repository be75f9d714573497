//! Measures how long after its commit a message is delivered, in the local cloud: orders are placed, and each publishes one message to
//! the event bus. The median must be at most two seconds. Run `cargo bench -p local --bench deliveries`; append `-- PROGRAM` for
//! another build.

mod cloud;

use cloud::{Cloud, Outcome};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

const ORDERS: usize = 500;
/// Orders at once: none, so that each message is alone; and as many as `orders` has environments.
const AT_ONCE: [usize; 2] = [1, 4];
/// The median that is the goal, in milliseconds.
const MAX_MEDIAN: u64 = 2_000;
/// If a message is not delivered by then, it will not be.
const DELIVERED_WITHIN: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<ExitCode> {
    println!("| orders at once | median | 95 % | longest |");
    println!("| --- | --- | --- | --- |");
    let mut worst = 0;
    for at_once in AT_ONCE {
        let ages = ages(at_once).await?;
        let (median, most) = (ages[ages.len() / 2], ages[ages.len() * 95 / 100]);
        println!("| {at_once} | {median} ms | {most} ms | {} ms |", ages[ages.len() - 1]);
        worst = worst.max(median);
    }
    if worst > MAX_MEDIAN {
        eprintln!("messages are delivered late");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Places orders, so many at once, and returns how long after their commits they were delivered, in milliseconds, sorted.
async fn ages(at_once: usize) -> Outcome<Vec<u64>> {
    let (cloud, http) = (Cloud::start(&[])?, reqwest::Client::new());
    let orders = stream::iter(0..ORDERS).map(|number| place(&http, &cloud.url, number));
    orders.buffer_unordered(at_once).try_collect::<Vec<_>>().await?;
    let deadline = Instant::now() + DELIVERED_WITHIN;
    loop {
        let delivered = http.get(format!("{}/outbox/delivered", cloud.url)).send().await?;
        let delivered: Value = delivered.json().await?;
        let messages = delivered["messages"].as_array().ok_or("no list")?;
        if messages.len() == ORDERS {
            let mut ages: Vec<_> = messages.iter().filter_map(|message| message["age_ms"].as_u64()).collect();
            ages.sort_unstable();
            return Ok(ages);
        }
        if Instant::now() > deadline {
            return Err(format!("{} of {ORDERS} messages are delivered", messages.len()).into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn place(http: &reqwest::Client, url: &str, number: usize) -> Outcome<()> {
    let order = json!({
        "customerId": "c-1", "sku": format!("sku-{number}"), "quantity": 1, "amountCents": 1999, "currency": "EUR", "source": "tok_ok",
    });
    let request = http.post(format!("{url}/orders")).bearer_auth("acme");
    let request = request.header("Idempotency-Key", format!("order-{number}"));
    match request.json(&order).send().await?.status().as_u16() {
        201 => Ok(()),
        status => Err(format!("order {number}: {status}").into()),
    }
}
