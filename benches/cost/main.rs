//! What the guard costs: `cargo bench --features lambda --bench cost`, or `just cost`.
//!
//! CPU time, allocations and system calls of guarded calls, in memory, and on a DynamoDB beside the calls of the SDK that they make, in one
//! run, in turn. A part of a row's name selects rows: `just cost replay`. `ROUNDS` is the number of rounds, `DYNAMODB_ENDPOINT` names another
//! store than the embedded one. Run nothing else meanwhile. Linux only.
//!
//! `tests/cost` asserts the counts.

mod body;
mod case;
mod client;
#[path = "../batches/consumers.rs"]
#[expect(dead_code, reason = "the other benchmark measures the bare function too")]
mod consumers;
mod embedded;
#[path = "../batches/messages.rs"]
#[expect(dead_code, reason = "the other benchmark has batches of many sizes")]
mod messages;
mod meter;
mod one_core;
mod paired;
mod parts;
mod random;
mod raw;
mod report;
mod spread;
mod system_calls;
mod watched;

use std::env;

use lambda_idempotency::store::memory::MemoryStore;
use tokio::runtime;

use crate::{
    case::Case,
    client::{config, with_time_outs},
    embedded::{Embedded, create_table},
    one_core::keep_to_one_core,
    paired::{Calling, Pair},
    parts::{PAYMENTS, Part},
};

const DEFAULT_ROUNDS: u64 = 500;

/// System calls vary less than times.
const COUNTED_ROUNDS: u64 = 50;

const TABLE: &str = "idempotency";

fn main() {
    // `cargo test --benches` does not pass `--bench`, and only checks that this runs.
    let rounds = match env::args().any(|argument| argument == "--bench") {
        true => {
            env::var("ROUNDS").map_or(DEFAULT_ROUNDS, |rounds| rounds.parse().expect("ROUNDS is a number"))
        }
        false => 1,
    };
    keep_to_one_core();
    // One thread does all the work, so its CPU time, allocations and system calls are those of the call.
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        on_dynamodb(rounds).await;
        in_memory(rounds).await;
    });
}

async fn in_memory(rounds: u64) {
    report::memory_head(rounds);
    for case in chosen(case::in_memory()) {
        let calling = Calling::new(&case, MemoryStore::new()).await;
        let spent = calling.rounds(rounds).await;
        let counted = calling.count(rounds.min(COUNTED_ROUNDS)).await;
        report::memory_row(&case.name(), &spent, Some(&counted));
    }
    for case in chosen([Case::first(Part::Event)]) {
        report::memory_row("the same with metrics, log", &watched::measure(&case, rounds).await, None);
    }
    report::memory_goals();
}

async fn on_dynamodb(rounds: u64) {
    report::paired_head(rounds);
    for case in chosen(case::on_dynamodb()) {
        // One for each row, because it gets slower as it fills.
        let (config, _embedded) = match env::var("DYNAMODB_ENDPOINT") {
            Ok(endpoint) => (config(&endpoint), None),
            Err(_) => {
                let embedded = Embedded::start();
                (config(&embedded.endpoint), Some(embedded))
            }
        };
        for table in [TABLE, PAYMENTS] {
            create_table(&with_time_outs(&config), table).await;
        }
        let mut pair = Pair::new(&case, &config, TABLE).await;
        let measured = pair.measure(rounds).await;
        let counted = pair.count(rounds.min(COUNTED_ROUNDS)).await;
        report::paired_row(&case, pair.calls(), &measured, &counted);
    }
}

fn chosen(cases: impl IntoIterator<Item = Case>) -> impl Iterator<Item = Case> {
    let asked = env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    cases.into_iter().filter(move |case| case.name().contains(&asked))
}
