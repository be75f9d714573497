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
    system_calls::{Kinds, middle},
};

/// How many allocations each call makes in memory, and how many system calls more than the calls of the SDK in it. If one becomes cheaper, its
/// figure goes down here. A figure that must go up needs a reason in the commit's message.
const LIMITS: [(&str, u64, u64); 9] = [
    ("executor", 23, 2),
    ("function", 53, 1),
    ("function, replay", 26, 1),
    ("HTTP layer", 43, 1),
    ("HTTP event", 211, 1),
    ("HTTP event, replay", 173, 1),
    ("batch of ten", 906, 20 + BATCH_VARIES_BY),
    ("function, one phase", 118, 2),
    ("single transaction", 137, 1),
];

/// A batch's messages are sent at once, so how many of its system calls have a use varies.
const BATCH_VARIES_BY: u64 = 5;

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
        let [guarded, raw] = [&counted.guarded, &counted.raw].map(|calls| middle(calls, Kinds::deliberate));
        assert!(raw > 0, "nothing was counted");
        added.push((case.name(), guarded.saturating_sub(raw)));
    }
    within(&added, LIMITS.map(|(name, _, added)| (name, added)));
}

/// Compares all before it fails, so that one run tells all figures.
fn within(measured: &[(String, u64)], limits: [(&str, u64); LIMITS.len()]) {
    assert!(
        measured.iter().map(|(name, _)| &**name).eq(limits.map(|(name, _)| name)),
        "each case has a limit"
    );
    let rows = measured.iter().zip(limits);
    let lines = rows.map(|((name, figure), (_, limit))| format!("{name}: {figure}, at most {limit}"));
    let lines = lines.collect::<Vec<_>>().join("\n");
    assert!(measured.iter().zip(limits).all(|((_, figure), (_, limit))| *figure <= limit), "{lines}");
}
