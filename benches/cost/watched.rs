//! What metrics, span and log lines cost: the same calls in memory, in a function that writes them.

use std::io;

use lambda_idempotency::store::memory::MemoryStore;
use metrics_cloudwatch_embedded::Builder;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::layer,
    layer::{Layer, SubscriberExt},
    registry,
};

use crate::{case::Case, meter::Spent, meter::spent, paired::Calling};

/// Installs the recorder for the whole process, so this is measured last. Each call is an invocation: its metrics are written when it ends.
/// The output is discarded: a pipe would take time of its own.
pub async fn measure(case: &Case, rounds: u64) -> Vec<Spent> {
    let collector = Builder::new().cloudwatch_namespace("bench").init().expect("there is no other recorder");
    // As in `lambda::logs`.
    let lines = layer()
        .json()
        .with_current_span(false)
        .without_time()
        .with_writer(io::sink)
        .with_filter(Targets::new().with_default(LevelFilter::INFO));
    let _lines = tracing::subscriber::set_default(registry().with(lines));
    let calling = Calling::new(case, MemoryStore::new()).await;
    let mut calls = Vec::new();
    for number in 0..rounds {
        let mut call = calling.call(number).await;
        let (flushed, flush) = spent(async { collector.flush(io::sink()) }).await;
        flushed.expect("a sink takes everything");
        call.cpu += flush.cpu;
        call.allocations += flush.allocations;
        call.allocated_bytes += flush.allocated_bytes;
        calls.push(call);
    }
    calls
}
