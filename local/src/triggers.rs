//! The triggers that invoke functions without a client: the table's stream, the queues, the schedules.

use crate::{
    functions::Function,
    mapping::{batch, queue, stream},
    queues::Queues,
    schedules,
    settings::Settings,
    store::Store,
};
use serde_json::json;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Pollers of each queue.
const POLLERS: usize = 2;
/// A sweep reads the whole table: on AWS once a day, here for a twentieth of the time at most.
const SWEEP_REST: u32 = 19;

/// Starts the triggers, which run until the result is dropped. `compare` has a daily schedule on AWS; here it is invoked by
/// hand.
pub async fn start(
    functions: &[Arc<Function>],
    store: &Store,
    queues: Arc<Queues>,
    settings: &Settings,
) -> JoinSet<()> {
    let function = |name| {
        let found = functions.iter().find(|function| function.definition.name == name);
        found.expect("it is one of this cloud's").clone()
    };
    let mut triggers = JoinSet::new();
    let stream = batch::Stream {
        client: store.streams().await,
        arn: store.stream.clone(),
        region: store.region.clone(),
        window: settings.window,
        function: function("stale"),
        queues: queues.clone(),
    };
    triggers.spawn(stream::run(Arc::new(stream)));
    let mappings = [
        (&queues.checks, "stale"),
        (&queues.sweeps, "stale"),
        (&queues.reconcile, "reconcile"),
        (&queues.orders, "order-queue"),
    ];
    for (queue, name) in mappings {
        for _ in 0..POLLERS {
            let (client, region) = (queues.client.clone(), store.region.clone());
            triggers.spawn(queue::run(client, queue.clone(), region, function(name)));
        }
    }
    triggers.spawn(schedules::run(function("reconcile"), json!({ "job": "poll" }), settings.poll, 0));
    triggers.spawn(schedules::run(function("stale"), json!({ "job": "sweep" }), settings.sweep, SWEEP_REST));
    triggers
}
