//! The function that settles unknown outcomes. It needs a reconciler for each operation.
//!
//! ```no_run
//! use lambda_idempotency::{async_trait, lambda, operation::Operation, reconcile::{Finding, Question, Reconciler}};
//!
//! struct Payments;
//!
//! #[async_trait]
//! impl Reconciler for Payments {
//!     async fn ask(&self, _: &Question) -> Result<Finding, Box<dyn std::error::Error + Send + Sync>> {
//!         Ok(Finding::NotFound) // Ask your provider.
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), lambda::Error> {
//!     lambda::logs();
//!     let reconciliation = lambda::reconciliation().await?;
//!     lambda::reconcile(reconciliation.operation(Operation::new("create-payment"), Payments)).await
//! }
//! ```
//!
//! | trigger | what it does |
//! | --- | --- |
//! | a schedule, `{"job":"poll"}` | asks each question that is due |
//! | the queue of deferred reports | writes them |
//! | the queue `reconcile` | processes provider reports, and asks about single records at once |

use lambda_runtime::{Context, Error, LambdaEvent, service_fn};

use super::{
    aws,
    deferred_reports::DeferredReports,
    log::report,
    run::run,
    trigger::{BatchFailures, Event, Trigger, each_message, refuse, time},
};
use crate::{
    config,
    queue::SqsQueue,
    reconcile::Reconciliation,
    store::dynamodb::DynamoDbStore,
    time_budget::{
        DEFAULT_FIRST_BACKOFF, DEFAULT_MAX_BACKOFF, DEFAULT_MAX_UNKNOWN_AGE, DEFAULT_NOT_FOUND_GRACE,
        DEFAULT_QUESTIONS, MAX_QUESTION_TIME,
    },
    world::SystemWorld,
};

/// A reconciliation configured by the environment, without operations.
///
/// Environment: `IDEMPOTENCY_TABLE`, `CONTRADICTIONS_QUEUE_URL`, `RECONCILE_QUEUE_URL`; `RECONCILE_FIRST_BACKOFF_MS`,
/// `RECONCILE_MAX_BACKOFF_MS`, `RECONCILE_ASKS` and `MAX_UNKNOWN_AGE_MS` (how questions are repeated, and for how long),
/// `NOT_FOUND_GRACE_MS` (how long to wait before "not found" counts).
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn reconciliation() -> Result<Reconciliation, Error> {
    configured().await.inspect_err(report)
}

async fn configured() -> Result<Reconciliation, Error> {
    let aws = aws().await;
    let first = config::millis("RECONCILE_FIRST_BACKOFF_MS", DEFAULT_FIRST_BACKOFF)?;
    let max = config::millis("RECONCILE_MAX_BACKOFF_MS", DEFAULT_MAX_BACKOFF)?;
    let questions = config::count("RECONCILE_ASKS", DEFAULT_QUESTIONS)?;
    let max_age = config::millis("MAX_UNKNOWN_AGE_MS", DEFAULT_MAX_UNKNOWN_AGE)?;
    let grace = config::millis("NOT_FOUND_GRACE_MS", DEFAULT_NOT_FOUND_GRACE)?;
    let contradictions = SqsQueue::from_env(&aws, "CONTRADICTIONS_QUEUE_URL")?;
    let queue = SqsQueue::from_env(&aws, "RECONCILE_QUEUE_URL")?;
    let store = DynamoDbStore::from_env().await?;
    Ok(Reconciliation::new(store, contradictions)
        .questions_to(queue)
        .backoff(first, max, questions)
        .max_unknown_age(max_age)
        .not_found_grace(grace))
}

/// Runs the function until Lambda ends it.
///
/// Environment: `DEFERRED_REPORTS_QUEUE_URL` and `DEFERRED_REPORTS_DEAD_LETTERS_QUEUE_URL`.
///
/// # Errors
/// If the configuration is wrong (the error names what is wrong), or if the runtime fails.
pub async fn reconcile(reconciliation: Reconciliation) -> Result<(), Error> {
    let reports = &DeferredReports::from_env(&aws().await).inspect_err(report)?;
    let reconciliation = &reconciliation;
    let handle = async |event: LambdaEvent<Event>| {
        reconcile_event(reconciliation, reports, event.payload, &event.context).await
    };
    run(service_fn(handle)).await
}

/// Handles one event.
///
/// # Errors
/// If the event is not for this function, or the due questions cannot be read.
pub async fn reconcile_event(
    reconciliation: &Reconciliation,
    reports: &DeferredReports,
    event: Event,
    context: &Context,
) -> Result<BatchFailures, Error> {
    let time = time(&SystemWorld, context);
    match event.trigger("poll")? {
        Trigger::Job => {
            reconciliation.poll(time).await?;
            Ok(BatchFailures::default())
        }
        Trigger::Stream(_) => Err(refuse("this function takes no stream records")),
        Trigger::Messages(messages) if reports.has_sent(&messages) => {
            reports.receive(&SystemWorld, reconciliation, &messages, time).await
        }
        Trigger::Messages(messages) => {
            let work = async |body: &str, left| reconciliation.receive_within(body, left).await;
            each_message(&SystemWorld, &messages, time, MAX_QUESTION_TIME, work).await
        }
    }
}
