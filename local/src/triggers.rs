//! The triggers that invoke functions without a client: the table's stream, the queues, the schedules.

use crate::{
    functions::Function,
    mapping::{batch, queue, stream},
    queues::Queues,
    schedules,
    settings::Settings,
    store::Store,
};
use aws_sdk_dynamodbstreams::types::{AttributeValue, OperationType, Record};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

/// Pollers of each queue.
const POLLERS: usize = 2;
/// A sweep reads the whole table: on AWS once a day, here for a twentieth of the time at most.
const SWEEP_REST: u32 = 19;

/// The sort keys of messages in the outbox.
const MESSAGE: &str = "message#";

/// Whether a record of the stream is a new message in the outbox.
fn is_published(record: &Record) -> bool {
    let keys = record.dynamodb().and_then(|change| change.keys());
    let sort_key = keys.and_then(|keys| keys.get("sk")).map(AttributeValue::as_s);
    record.event_name() == Some(&OperationType::Insert)
        && matches!(sort_key, Some(Ok(key)) if key.starts_with(MESSAGE))
}

/// Whether a record of the stream shows accepted work without a worker.
fn is_waiting(record: &Record) -> bool {
    let image = record.dynamodb().and_then(|change| change.new_image());
    let state = image.and_then(|image| image.get("state")).map(AttributeValue::as_s);
    image.is_some_and(|image| image.contains_key("request_id"))
        && matches!(state, Some(Ok(state)) if ["pending", "between_workers"].contains(&state.as_str()))
}

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
    let client = store.streams().await;
    let stream = |filter, window, name| batch::Stream {
        client: client.clone(),
        arn: store.stream.clone(),
        region: store.region.clone(),
        filter,
        window,
        max_age: settings.record_age,
        function: function(name),
        queues: queues.clone(),
    };
    // Two, the most that a stream of DynamoDB can bear. `stale` ignores what its filter on AWS leaves out.
    triggers.spawn(stream::run(Arc::new(stream(|_| true, settings.window, "stale"))));
    triggers.spawn(stream::run(Arc::new(stream(
        |record| is_published(record) || is_waiting(record),
        Duration::ZERO,
        "outbox",
    ))));
    let mappings = [
        (&queues.checks, "stale"),
        (&queues.sweeps, "stale"),
        (&queues.reconcile, "reconcile"),
        (&queues.deferred_reports, "reconcile"),
        (&queues.orders, "order-queue"),
        (&queues.outbox, "outbox"),
        (&queues.shipments, "shipping"),
        (&queues.work, "report-worker"),
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
