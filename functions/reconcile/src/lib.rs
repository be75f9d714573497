//! Finds out what became of payments whose outcome is unknown.
//!
//! | function | trigger | what |
//! | --- | --- | --- |
//! | `reconcile` | a schedule, `{"job":"poll"}` | asks the provider about what is due |
//! | `reconcile` | the queue of the same name | writes endings that their workers could not, and asks at once |
//! | `webhook` | `POST /webhooks/provider` | [`webhook`]: settles what the provider tells |
//!
//! Environment: `IDEMPOTENCY_TABLE`, `PAYMENTS_TABLE`, `PROVIDER_URL`, `DEAD_LETTERS_QUEUE_URL`; `RECONCILE_FIRST_MS`,
//! `RECONCILE_LONGEST_MS` and `RECONCILE_ASKS` (how questions are repeated), `NOT_FOUND_GRACE_MS` (how long a charge that is
//! not found is waited for); the webhook also `WEBHOOK_SECRETS` and `SEALING_KEYS`.

#![deny(missing_docs)]

mod payment;
pub mod webhook;

use aws_config::BehaviorVersion;
use lambda_idempotency::{
    event::{self, BatchFailures, Event, Trigger},
    queue::SqsQueue,
    reconcile::{Polled, Reconciliation},
    store::dynamodb::DynamoDbStore,
    time_budget::{DEFAULT_FIRST_PAUSE, DEFAULT_LONGEST_PAUSE, DEFAULT_NOT_FOUND_GRACE, DEFAULT_QUESTIONS},
};
use lambda_runtime::{Context, Error, LambdaEvent, service_fn};
use payments::{Config, Ledger, Provider};
use serde::Serialize;

pub use payment::{PaymentReconciler, Said};

/// What the function answers.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Reply {
    /// To a queue.
    Failures(BatchFailures),
    /// To a schedule.
    Polled(Polled),
}

/// Runs the function until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong, by the name of what is wrong.
pub async fn run() -> Result<(), Error> {
    event::logs();
    let (reconciliation, _) = build().await.inspect_err(event::report)?;
    let reconciliation = &reconciliation;
    let handle =
        async |event: LambdaEvent<Event>| handle(reconciliation, event.payload, &event.context).await;
    lambda_runtime::run(service_fn(handle)).await
}

/// Does what one event asks for.
///
/// # Errors
/// If there is no such job, or the table does not say what is due.
pub async fn handle(
    reconciliation: &Reconciliation,
    event: Event,
    context: &Context,
) -> Result<Reply, Error> {
    match event.into() {
        Trigger::Job(job) if job == "poll" => {
            Ok(Reply::Polled(reconciliation.poll(event::time(context)).await?))
        }
        Trigger::Job(job) => Err(Error::from(format!("no such job: {job}"))),
        Trigger::Messages(messages) | Trigger::Stream(messages) => {
            let work = async |body: &str| Ok(reconciliation.receive(body).await?);
            Ok(Reply::Failures(event::each_message(&messages, work).await))
        }
    }
}

/// The reconciliation of payments, as the environment says; with the ledger of payments, for who is told of charges.
pub(crate) async fn build() -> Result<(Reconciliation, Ledger), Error> {
    let aws = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let config = Config::from_env()?;
    let first = event::millis("RECONCILE_FIRST_MS", DEFAULT_FIRST_PAUSE)?;
    let longest = event::millis("RECONCILE_LONGEST_MS", DEFAULT_LONGEST_PAUSE)?;
    let most = event::count("RECONCILE_ASKS", DEFAULT_QUESTIONS)?;
    let grace = event::millis("NOT_FOUND_GRACE_MS", DEFAULT_NOT_FOUND_GRACE)?;
    let dead_letters = SqsQueue::from_env(&aws, "DEAD_LETTERS_QUEUE_URL")?;
    let store = DynamoDbStore::from_env().await?;
    let ledger = Ledger::from_env(config.payments_table.clone()).await;
    let payments = PaymentReconciler::new(Provider::new(&config)?, ledger.clone());
    let reconciliation = Reconciliation::new(store, dead_letters)
        .back_off(first, longest, most)
        .not_found_grace(grace)
        .operation(payments::policy::create_payment(), payments);
    Ok((reconciliation, ledger))
}
