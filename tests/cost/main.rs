//! What guarded calls may cost, in counts: allocations in memory, and system calls beside those of raw calls. Times are no tests: `just cost`
//! prints them, with the same figures of an optimised build.

#![allow(dead_code, reason = "the benchmark measures more")]

#[path = "../../benches/cost/body.rs"]
mod body;
#[path = "../../benches/cost/case.rs"]
mod case;
#[path = "../../benches/cost/client.rs"]
mod client;
#[path = "../../benches/batches/consumers.rs"]
mod consumers;
#[path = "../../benches/cost/embedded.rs"]
mod embedded;
#[path = "../../benches/batches/messages.rs"]
mod messages;
#[path = "../../benches/cost/meter.rs"]
mod meter;
#[path = "../../benches/cost/one_core.rs"]
mod one_core;
#[path = "../../benches/cost/paired.rs"]
mod paired;
#[path = "../../benches/cost/parts/mod.rs"]
mod parts;
#[path = "../../benches/cost/random.rs"]
mod random;
#[path = "../../benches/cost/raw.rs"]
mod raw;
#[path = "../../benches/cost/spread.rs"]
mod spread;
#[path = "../../benches/cost/system_calls.rs"]
mod system_calls;

use lambda_idempotency::store::memory::MemoryStore;

use crate::{
    client::{config, with_time_outs},
    embedded::{Embedded, create_table},
    one_core::keep_to_one_core,
    paired::{Calling, Pair},
    parts::PAYMENTS,
    spread::median,
    system_calls::middle,
};

/// How many allocations each call makes in memory, and how many system calls more than the calls of the SDK in it. If one becomes cheaper, its
/// figure goes down here. A figure that must go up needs a reason in the commit's message.
const LIMITS: [(&str, u64, u64); 9] = [
    ("executor", 0, 0),
    ("function", 0, 0),
    ("function, replay", 0, 0),
    ("HTTP layer", 0, 0),
    ("HTTP event", 0, 0),
    ("HTTP event, replay", 0, 0),
    ("batch of ten", 0, 0),
    ("function, one phase", 0, 0),
    ("single transaction", 0, 0),
];

/// How many system calls may be added by chance: the server's answer may come in two parts.
const CHANCE: u64 = 1;

const ROUNDS: u64 = 31;

const TABLE: &str = "idempotency";

#[tokio::test]
async fn no_call_allocates_more_than_its_limit_in_memory() {
    let mut allocations = Vec::new();
    for case in case::SMALL {
        let spent = Calling::new(&case, MemoryStore::new()).await.rounds(ROUNDS).await;
        allocations.push((case.name(), median(&spent, |spent| spent.allocations as f64) as u64));
    }
    within(&allocations, LIMITS.map(|(name, allocations, _)| (name, allocations)));
}

#[tokio::test]
async fn no_call_adds_more_system_calls_than_its_limit() {
    keep_to_one_core();
    let mut added = Vec::new();
    for case in case::SMALL {
        let embedded = Embedded::start();
        let config = config(&embedded.endpoint);
        for table in [TABLE, PAYMENTS] {
            create_table(&with_time_outs(&config), table).await;
        }
        let counted = Pair::new(&case, &config, TABLE).await.count(ROUNDS).await;
        assert!(middle(&counted.raw) > 0, "nothing was counted");
        added.push((case.name(), middle(&counted.guarded).saturating_sub(middle(&counted.raw))));
    }
    within(&added, LIMITS.map(|(name, _, added)| (name, added + CHANCE)));
}

/// Compares all before it fails, so that one run tells all figures.
fn within(measured: &[(String, u64)], limits: [(&str, u64); LIMITS.len()]) {
    let limits: Vec<_> = limits.into_iter().map(|(name, limit)| (name.to_owned(), limit)).collect();
    let names = |rows: &[(String, u64)]| rows.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(measured), names(&limits));
    let are_within = measured.iter().zip(&limits).all(|(measured, limit)| measured.1 <= limit.1);
    assert!(are_within, "measured: {measured:#?}\nlimits: {limits:#?}");
}
