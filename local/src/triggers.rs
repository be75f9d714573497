//! The triggers that invoke functions without a client: streams, queues, schedules.

use crate::{
    functions::Function,
    mapping::{Reports, batch, queue, stream},
    pollers,
    queues::Queues,
    schedules::{self, Scheduled},
    settings::Settings,
    store::Store,
    template::{KINESIS, Mapping, Schedule, Stack, StreamMapping},
    variables::IDEMPOTENCY_TABLE,
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::task::JoinSet;

/// Pollers of each queue.
const POLLERS: usize = 2;
/// A sweep reads the whole table: on AWS once a day, here for a twentieth of the time at most.
const SWEEP_REST: u32 = 19;

/// Starts the triggers of the cloud at `url`, which run until the result is dropped. `streams` has the streams' ARNs, by the names of their
/// tables. A schedule at a certain time of the day does nothing here: invoke its function by hand.
pub async fn start(
    functions: &[Arc<Function>],
    stack: &Stack,
    store: &Store,
    streams: &HashMap<String, String>,
    queues: &Queues,
    settings: &Settings,
    url: &str,
) -> JoinSet<()> {
    let function = |name: &str| {
        let found = functions.iter().find(|function| function.definition.name == name);
        found.expect("the stack has it").clone()
    };
    let queue_of = |arn: &str| queues.with_arn(arn).expect("the stack was checked").clone();
    let reports = |name: &str, event: &str, are_read| {
        let reports = Reports { event: event.to_owned(), are_read };
        reports.warn(&function(name));
        reports
    };
    let failed_runs =
        |name: &str| queues.failed_runs(stack.functions.iter().find(|known| known.name == name)?);
    let mut triggers = JoinSet::new();
    let client = store.streams().await;
    for mapping in &stack.streams {
        let StreamMapping { function: name, event, stream_arn, filters, gathers, dead_letters_arn, .. } =
            mapping;
        let table = stack.streamed(stream_arn).expect("the stack was checked");
        triggers.spawn(stream::run(Arc::new(batch::Stream {
            client: client.clone(),
            changes: store.embedded.then(|| store.changes.all.clone()),
            arn: streams[&table.full_name].clone(),
            region: store.region.clone(),
            filters: filters.clone(),
            reports: reports(name, event, mapping.reports_failures),
            window: if *gathers { settings.window } else { Duration::ZERO },
            policy: batch::RetryPolicy {
                bisects: mapping.bisects,
                max_retries: mapping.max_retries,
                max_age: mapping.max_age.unwrap_or(Duration::MAX).min(settings.record_age),
            },
            function: function(name),
            dead_letters: dead_letters_arn.as_deref().map(|arn| queue_of(arn).url),
            sqs: queues.client.clone(),
        })));
    }
    for Mapping { function: name, event, queue_arn, batch, reports_failures } in &stack.mappings {
        let source = queue::Source {
            client: queues.client.clone(),
            queue: queue_of(queue_arn),
            changes: queues.changes.of(&queue_of(queue_arn).full_name),
            visibility: queues.visibility,
            region: store.region.clone(),
            function: function(name),
            batch: *batch,
            reports: reports(name, event, *reports_failures),
        };
        for _ in 0..POLLERS {
            triggers.spawn(queue::run(source.clone()));
        }
    }
    for poller in &stack.pollers {
        // A mapping of Kafka without reports is right for a function that fails as a whole.
        if poller.program == KINESIS {
            reports(&poller.function, &poller.event, poller.reports_failures);
        }
        let dropped = poller.dropped_arn.as_deref().map(|arn| queue_of(arn).url);
        triggers.spawn(pollers::run(poller.clone(), function(&poller.function), url.to_owned(), dropped));
    }
    for Schedule { function: name, period, input } in &stack.schedules {
        let function = function(name);
        // The jobs of this project run more often than on AWS, so that you can watch them.
        // It uses this project's table.
        let is_ours = function.definition.variables.contains_key(IDEMPOTENCY_TABLE);
        let job = input["job"].as_str().filter(|_| is_ours);
        let is_poll = job == Some("poll");
        let (period, rest) = match job {
            Some("poll") => (Some(settings.poll), 0),
            Some("sweep") => (Some(settings.sweep), SWEEP_REST),
            _ => (*period, 0),
        };
        if let Some(period) = period {
            let scheduled = Scheduled { function, input: input.clone(), failed_runs: failed_runs(name) };
            let records = (is_poll && store.embedded).then(|| store.changes.records.subscribe());
            triggers.spawn(schedules::run(scheduled, period, rest, records));
        }
    }
    triggers
}
