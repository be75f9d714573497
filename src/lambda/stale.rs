//! The function that finds records with dead workers, even if no client retries.
//!
//! ```no_run
//! use lambda_idempotency::lambda;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), lambda::Error> {
//!     lambda::logs();
//!     lambda::stale().await
//! }
//! ```
//!
//! | trigger | what it does |
//! | --- | --- |
//! | the table's stream | queues a check for each execution that a batch leaves open |
//! | the queue of checks | checks records |
//! | a schedule, `{"job":"sweep"}` | begins a sweep, or continues one that died |
//! | the queue of sweeps | continues the sweep |

use lambda_runtime::{Context, Error, LambdaEvent, service_fn};

use super::{
    aws,
    log::report,
    run::run,
    trigger::{BatchFailures, Event, Trigger, each_message, time},
};
use crate::{
    config,
    error_chain::error_chain,
    queue::SqsQueue,
    stale::{DEFAULT_SWEEP_UNITS, Stale},
    store::dynamodb::DynamoDbStore,
    time_budget::MAX_CHECK_TIME,
    world::SystemWorld,
};

/// Runs the function until Lambda ends it.
///
/// Environment: `IDEMPOTENCY_TABLE`, `CHECKS_QUEUE_URL`, `SWEEP_QUEUE_URL`, `CONTRADICTIONS_QUEUE_URL`; `SWEEP_UNITS_PER_SECOND` (how many read units a second a sweep takes), `OUTBOX_QUEUE_URL` (the
/// queue of wakes of the outbox function, if there is one),
/// `WORK_QUEUE_URL` (the queue of accepted work, if there is one).
///
/// # Errors
/// If the configuration is wrong (the error names what is wrong), or if the runtime fails.
pub async fn stale() -> Result<(), Error> {
    let stale = &configured().await.inspect_err(report)?;
    let handle = async |event: LambdaEvent<Event>| stale_event(stale, event.payload, &event.context).await;
    run(service_fn(handle)).await
}

async fn configured() -> Result<Stale, Error> {
    let aws = aws().await;
    let units = config::count("SWEEP_UNITS_PER_SECOND", DEFAULT_SWEEP_UNITS)?;
    let checks = SqsQueue::from_env(&aws, "CHECKS_QUEUE_URL")?;
    let sweeps = SqsQueue::from_env(&aws, "SWEEP_QUEUE_URL")?;
    let contradictions = SqsQueue::from_env(&aws, "CONTRADICTIONS_QUEUE_URL")?;
    let optional =
        |variable| config::text(variable).is_ok().then(|| SqsQueue::from_env(&aws, variable)).transpose();
    let (outbox, work) = (optional("OUTBOX_QUEUE_URL")?, optional("WORK_QUEUE_URL")?);
    let store = DynamoDbStore::from_env().await?;
    let stale = Stale::new(store, checks, sweeps, contradictions).sweep_units_per_second(units.into());
    let stale = match outbox {
        Some(outbox) => stale.outbox(outbox),
        None => stale,
    };
    Ok(match work {
        Some(work) => stale.work_to(work),
        None => stale,
    })
}

/// Handles one event.
///
/// # Errors
/// If the event is not for this function, or a sweep fails. Either is logged.
pub async fn stale_event(stale: &Stale, event: Event, context: &Context) -> Result<BatchFailures, Error> {
    let time = time(&SystemWorld, context);
    match event.trigger("sweep")? {
        Trigger::Job => {
            let swept = stale.sweep(time).await;
            swept.inspect_err(|error| tracing::error!(error = error_chain(error), "the sweep failed"))?;
            Ok(BatchFailures::default())
        }
        Trigger::Stream(records) => BatchFailures::of(stale.stream(&records, time).await),
        Trigger::Messages(messages) => {
            let work = async |body: &str, left| stale.receive(body, left).await;
            each_message(&SystemWorld, &messages, time, MAX_CHECK_TIME, work).await
        }
    }
}
