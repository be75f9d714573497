//! What metrics, span and log lines cost: the same calls in memory, unwatched and watched, in turn.

use std::io;

use lambda_idempotency::store::memory::MemoryStore;
use metrics_cloudwatch_embedded::Builder;
use tracing::{Dispatch, subscriber::NoSubscriber};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::layer,
    layer::{Layer, SubscriberExt},
    registry,
};

use crate::{body::Answer, guarded::Front, meter::Spent, meter::spent};

/// Runs each pair once unwatched and once watched, in alternating order. A watched call is an invocation: its metrics are
/// written when it ends. The output is discarded: a pipe would take time of its own.
///
/// The recorder is global, so the unwatched calls count too. That part of the cost is in both, and is measured
/// separately, against calls before the recorder was installed.
pub async fn measure(answer: &Answer, rounds: u64) -> Watched {
    let guarded = Front::Http.guard(MemoryStore::new(), answer.body.clone());
    let mut number = 0..;
    let mut next = || number.next().expect("there are enough numbers");
    let mut bare = Vec::new();
    for _ in 0..rounds {
        bare.push(guarded(next()).await);
    }
    let collector = Builder::new().cloudwatch_namespace("bench").init().expect("there is no other recorder");
    // As in `lambda::logs`.
    let lines = layer()
        .json()
        .with_current_span(false)
        .without_time()
        .with_writer(io::sink)
        .with_filter(Targets::new().with_default(LevelFilter::INFO));
    let lines = registry().with(lines);
    let (watching, silent) = (Dispatch::new(lines), Dispatch::new(NoSubscriber::new()));
    let mut watched = Vec::new();
    let mut counted = Vec::new();
    for round in 0..rounds {
        for watches in [round % 2 == 0, round % 2 != 0] {
            let dispatch = if watches { &watching } else { &silent };
            let guard = tracing::dispatcher::set_default(dispatch);
            let mut call = guarded(next()).await;
            drop(guard);
            let (flushed, flush) = spent(async { collector.flush(io::sink()) }).await;
            flushed.expect("a sink takes everything");
            if watches {
                call.cpu += flush.cpu;
                call.allocations += flush.allocations;
                watched.push(call);
            } else {
                counted.push(call);
            }
        }
    }
    Watched { bare, counted, watched }
}

/// What the calls used.
pub struct Watched {
    /// Without recorder and subscriber.
    pub bare: Vec<Spent>,
    /// With a recorder whose metrics are written outside the call.
    pub counted: Vec<Spent>,
    /// With both, and the metrics written.
    pub watched: Vec<Spent>,
}
