//! Finds records whose worker died, even if nobody retries, and gives them up.
//!
//! | trigger | what |
//! | --- | --- |
//! | the table's stream | queues a check for each execution that a batch leaves open |
//! | the queue of checks | looks at records |
//! | a schedule, `{"job":"sweep"}` | begins a sweep, or continues one that died |
//! | the queue of sweeps | continues the sweep |
//!
//! Environment: `IDEMPOTENCY_TABLE`, `CHECKS_QUEUE_URL`, `SWEEP_QUEUE_URL`, `DEAD_LETTERS_QUEUE_URL`; `PENDING_BOUND_MS` (how
//! long accepted work may wait for a worker), `SWEEP_UNITS_PER_SECOND` (what a sweep may read).

#![deny(missing_docs)]

use std::error::Error as _;

use aws_config::BehaviorVersion;
use lambda_idempotency::{
    event::{self, BatchFailures, Event, Trigger},
    queue::SqsQueue,
    stale::Stale,
    store::dynamodb::DynamoDbStore,
    time_budget::{DEFAULT_PENDING_BOUND, MAX_CHECK_TIME},
};
use lambda_runtime::{Context, Error, LambdaEvent, service_fn};

/// Runs the function until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn run() -> Result<(), Error> {
    event::logs();
    let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let store = DynamoDbStore::from_env().await.inspect_err(event::report)?;
    let pending_bound =
        event::millis("PENDING_BOUND_MS", DEFAULT_PENDING_BOUND).inspect_err(event::report)?;
    let units = event::count("SWEEP_UNITS_PER_SECOND", 50).inspect_err(event::report)?;
    let queue = |variable| SqsQueue::from_env(&config, variable).inspect_err(event::report);
    let (checks, sweeps) = (queue("CHECKS_QUEUE_URL")?, queue("SWEEP_QUEUE_URL")?);
    let stale = Stale::new(store, checks, sweeps, queue("DEAD_LETTERS_QUEUE_URL")?)
        .pending_bound(pending_bound)
        .sweep_units_per_second(units.into());
    let stale = &stale;
    let handle = async |event: LambdaEvent<Event>| handle(stale, event.payload, &event.context).await;
    event::run(service_fn(handle)).await
}

/// Handles one event.
///
/// # Errors
/// If the event is not one of this function's, or a sweep fails. Either is logged.
pub async fn handle(stale: &Stale, event: Event, context: &Context) -> Result<BatchFailures, Error> {
    let time = event::time(context);
    match event.trigger()? {
        Trigger::Job(job) if job == "sweep" => {
            stale.sweep(time).await.inspect_err(|error| {
                let cause = error.source().map(ToString::to_string);
                tracing::error!(%error, cause, "the sweep failed");
            })?;
            Ok(BatchFailures::default())
        }
        Trigger::Job(_) => Err(event::refuse("there is no such job")),
        Trigger::Messages(messages) => {
            let work = async |body: &str, left| Ok(stale.receive(body, left).await?);
            Ok(event::each_message(&messages, time, MAX_CHECK_TIME, work).await)
        }
        Trigger::Stream(records) => Ok(stale.stream(&records, time).await.into_iter().collect()),
    }
}
