//! What the guard costs: `cargo bench --bench guard`.
//!
//! Criterion tracks a guarded call on the store in memory, in CPU time of its thread, from run to run. The tables at the
//! end compare the guard with the raw SDK calls that it makes, in one run, in turn. `ROUNDS` is the number of rounds.
//! `DYNAMODB_ENDPOINT` names another store than the embedded one, such as DynamoDB Local. Run nothing else meanwhile. The noise
//! is printed.

mod body;
mod client;
mod embedded;
mod guarded;
mod meter;
mod paired;
mod random;
mod raw;
mod report;
mod spread;
mod watched;

use std::{env, time::Duration};

use criterion::{
    BenchmarkId, Criterion,
    measurement::{Measurement, ValueFormatter, WallTime},
};
use lambda_idempotency::store::memory::MemoryStore;
use tokio::runtime::{self, Runtime};

use crate::{
    body::{Answer, answers},
    client::client,
    embedded::Embedded,
    guarded::{Front, PAYMENTS},
};

const DEFAULT_ROUNDS: u64 = 500;

const TABLE: &str = "idempotency";

fn main() {
    // One thread does all the work, so its CPU time and allocations are those of the call.
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut criterion = Criterion::default().with_measurement(CpuTime).configure_from_args();
    watch(&mut criterion, &runtime);
    criterion.final_summary();

    // `cargo test --benches` does not pass `--bench`, and only checks that this runs.
    let rounds = match env::args().any(|argument| argument == "--bench") {
        true => {
            env::var("ROUNDS").map_or(DEFAULT_ROUNDS, |rounds| rounds.parse().expect("ROUNDS is a number"))
        }
        false => 1,
    };
    runtime.block_on(tabulate(rounds));
}

/// Lets criterion compare a guarded call on the store in memory with the run before.
fn watch(criterion: &mut Criterion<CpuTime>, runtime: &Runtime) {
    let mut group = criterion.benchmark_group("memory");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    for (front, answer) in rows() {
        group.bench_function(BenchmarkId::new(front.name(), &answer.name), |bencher| {
            bencher.to_async(runtime).iter_custom(async |calls| {
                let guarded = front.guard(MemoryStore::new(), answer.body.clone());
                let mut cpu = Duration::ZERO;
                for number in 0..calls {
                    cpu += guarded(number).await.cpu;
                }
                cpu
            });
        });
    }
    group.finish();
}

async fn tabulate(rounds: u64) {
    report::memory_head();
    for (front, answer) in rows() {
        let guarded = front.guard(MemoryStore::new(), answer.body.clone());
        let mut spent = Vec::new();
        for number in 0..rounds {
            spent.push(guarded(number).await);
        }
        report::memory_row(front.name(), &answer.name, &spent);
    }

    report::watched_head(rounds);
    for answer in rows().filter(|(front, _)| matches!(front, Front::Http)).map(|(_, answer)| answer).take(1) {
        report::watched_row(&answer.name, &watched::measure(&answer, rounds).await);
    }

    report::paired_head(rounds);
    for (front, answer) in rows() {
        let (client, _embedded) = match env::var("DYNAMODB_ENDPOINT") {
            Ok(endpoint) => (client(&endpoint), None),
            Err(_) => {
                let embedded = Embedded::start();
                (client(&embedded.endpoint), Some(embedded))
            }
        };
        for table in [TABLE, PAYMENTS] {
            embedded::create_table(&client, table).await;
        }
        let measured = paired::measure(&client, TABLE, front, &answer.body, rounds).await;
        report::paired_row(front.name(), &answer.name, &measured);
    }
}

/// The rows that were selected by name, as with criterion: `cargo bench --bench guard -- "http/1 KB"`.
fn rows() -> impl Iterator<Item = (Front, Answer)> {
    let asked = env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    Front::ALL
        .into_iter()
        .flat_map(|front| answers().into_iter().map(move |answer| (front, answer)))
        .filter(move |(front, answer)| format!("{}/{}", front.name(), answer.name).contains(&asked))
}

/// CPU time of this thread as criterion's measure: other processes on the machine do not count.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        meter::cpu_time()
    }

    fn end(&self, start: Duration) -> Duration {
        meter::cpu_time() - start
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}
