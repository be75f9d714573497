//! What the guard costs for batches of messages: `cargo bench --features lambda --bench batches`.
//!
//! The consumer takes batches of 1 to 1,000 messages, of which none, half or all are duplicates of completed ones, on the embedded store,
//! which a child process serves. CPU time is that of this program's one thread. `MESSAGES` is the number of messages of a row,
//! `SOURCE` is `queue`, `stream`, `table` or `topic`, `DYNAMODB_ENDPOINT` names another store. A part of a row's name selects rows: `-- "1000 50"`.
//!
//! `powertools.py` measures the same batches through Powertools for AWS Lambda (Python). For both on one store, `-- --serve` serves the
//! embedded one until its input ends, and prints its address, for `DYNAMODB_ENDPOINT`.

#[path = "../cost/client.rs"]
mod client;
mod consumers;
#[path = "../cost/embedded.rs"]
mod embedded;
mod messages;
#[path = "../cost/meter.rs"]
mod meter;
mod report;
mod served;
#[path = "../cost/spread.rs"]
mod spread;
mod trips;

use std::{env, time::Duration};

use lambda_idempotency::store::dynamodb::DynamoDbStore;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime;

use crate::{
    client::{config, with_time_outs},
    consumers::{Changed, Order, Ordered, deliver, deliver_bare, guarded, runs},
    messages::{Load, Source},
    meter::{cpu_time, spent},
    report::Samples,
    served::{SERVE, Served, serve},
    trips::Trips,
};

const TABLE: &str = "idempotency";

const SIZES: [u64; 4] = [1, 10, 100, 1_000];
const DUPLICATES: [u64; 3] = [0, 50, 100];

/// How many messages a row has, and how many samples at least.
const DEFAULT_MESSAGES: u64 = 4_000;
const MIN_SAMPLES: u64 = 5;

/// The largest batch if this is only checked to run.
const CHECKED: u64 = 10;

/// Samples before the measurement, which warm up connections, caches and the allocator.
const WARM_UP: u64 = 3;

fn main() {
    if env::args().any(|argument| argument == SERVE) {
        return serve();
    }
    // One thread does all the work, so its CPU time and allocations are those of the batch.
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    // `cargo test --benches` does not pass `--bench`, and only checks that this runs.
    let measures = env::args().any(|argument| argument == "--bench");
    let messages = env::var("MESSAGES")
        .map_or(DEFAULT_MESSAGES, |messages| messages.parse().expect("MESSAGES is a number"));
    report::head();
    runtime.block_on(async {
        for load in rows().filter(|load| measures || load.size <= CHECKED) {
            let samples = if measures { (messages / load.messages()).max(MIN_SAMPLES) } else { 1 };
            let measured = match load.source {
                Source::Table => measure::<Changed>(load, samples).await,
                _ => measure::<Order>(load, samples).await,
            };
            report::row(load, &measured);
        }
    });
    println!("\nCPU time of this process outside of its one thread: {:.1} %", elsewhere() * 100.0);
}

/// The rows that were selected by name.
fn rows() -> impl Iterator<Item = Load> {
    let source = Source::from_env();
    let asked = env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    SIZES
        .into_iter()
        .flat_map(move |size| DUPLICATES.map(|duplicates| Load { source, size, duplicates }))
        .filter(move |load| format!("{} {}", load.size, load.duplicates).contains(&asked))
}

async fn measure<I: Ordered>(load: Load, number: u64) -> Samples {
    let (endpoint, _served) = match env::var("DYNAMODB_ENDPOINT") {
        Ok(endpoint) => (endpoint, None),
        Err(_) => {
            let served = Served::start();
            (served.endpoint.clone(), Some(served))
        }
    };
    let (client, trips) = (with_time_outs(&config(&endpoint)), Trips::default());
    embedded::create_table(&client, TABLE).await;
    let consumer = guarded::<I>(DynamoDbStore::from_client(trips.counting(&client), TABLE), load.source);
    deliver(&consumer, &load.completed()).await;

    let mut samples = Samples::default();
    for sample in 0..WARM_UP + number {
        let batches = load.batches(sample);
        let (ran, asked) = (runs(), trips.count());
        let (_, guarded) = spent(async {
            for batch in &batches {
                deliver(&consumer, batch).await;
            }
        })
        .await;
        assert_eq!(runs() - ran, load.fresh(), "a duplicate ran, or a message did not");
        let asked = trips.count() - asked;
        let (_, bare) = spent(async {
            for batch in &batches {
                deliver_bare(batch, load.source).await;
            }
        })
        .await;
        if sample >= WARM_UP {
            samples.guarded.push(guarded);
            samples.bare.push(bare);
            samples.trips += asked;
        }
    }
    samples
}

/// The share of this process's CPU time that other threads used.
fn elsewhere() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let process = Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32);
    process.saturating_sub(cpu_time()).as_secs_f64() / process.as_secs_f64()
}
