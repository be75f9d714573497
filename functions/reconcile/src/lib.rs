//! Finds out what became of payments whose outcome is unknown.
//!
//! | function | trigger | what |
//! | --- | --- | --- |
//! | `reconcile` | a schedule, `{"job":"poll"}` | asks the provider about what is due |
//! | `reconcile` | the queue of the same name | [`Message`]: writes endings that their workers could not, and asks at once |
//! | `webhook` | `POST /webhooks/provider` | [`webhook`]: settles what the provider tells |
//!
//! Environment: `IDEMPOTENCY_TABLE`, `PAYMENTS_TABLE`, `PROVIDER_URL`, `DEAD_LETTERS_QUEUE_URL`; `RECONCILE_FIRST_MS`,
//! `RECONCILE_LONGEST_MS` and `RECONCILE_ASKS` (how questions are repeated), `NOT_FOUND_GRACE_MS` (how long a charge that is
//! not found is waited for); the webhook also `WEBHOOK_SECRETS`.

#![deny(missing_docs)]

mod payment;
pub mod webhook;

use std::{collections::HashSet, sync::Arc};

use aws_config::BehaviorVersion;
use futures_util::{StreamExt, stream};
use lambda_idempotency::{
    key::RecordKey,
    queue::SqsQueue,
    reconcile::{BackOff, DEFAULT_NOT_FOUND_GRACE, Message, Reconciled, Reconciliation},
    store::dynamodb::{DynamoDbStore, RECONCILE_SHARDS},
    time::{Clock, SystemClock, Timestamp},
};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use payments::{Config, Ledger, Provider};
use serde::Serialize;
use shell::{BatchFailures, Event, Trigger};

pub use payment::{PaymentReconciler, Said};

/// How many questions are due in one round of the index, and how many are asked at once: a provider that was down is not to
/// be brought down again.
const ROUND: usize = 200;
const AT_ONCE: usize = 8;

/// What the function answers.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Reply {
    /// To a queue.
    Failures(BatchFailures),
    /// To a schedule.
    Polled(Polled),
}

/// What a poll came to.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Polled {
    /// How many questions were due.
    pub due: usize,
    /// How many outcomes are settled now.
    pub resolved: usize,
    /// How many are asked about again.
    pub scheduled: usize,
    /// How many are for people now.
    pub escalated: usize,
    /// How many questions failed before they were asked.
    pub failed: usize,
}

/// Runs the function until Lambda ends it.
///
/// # Errors
/// Where the configuration is wrong, by the name of what is wrong.
pub async fn run() -> Result<(), Error> {
    shell::logs();
    let (store, reconciliation, _) = build().await.inspect_err(shell::report)?;
    let (store, reconciliation) = (&store, &reconciliation);
    let handle = async |event: LambdaEvent<Event>| {
        let until = shell::until(&event.context);
        match event.payload.into() {
            Trigger::Job(job) if job == "poll" => {
                Ok(Reply::Polled(poll(store, reconciliation, until).await?))
            }
            Trigger::Job(job) => Err(Error::from(format!("no such job: {job}"))),
            Trigger::Messages(messages) | Trigger::Stream(messages) => {
                let work = async |body: &str| receive(reconciliation, body).await;
                Ok(Reply::Failures(shell::each_message(&messages, work).await))
            }
        }
    };
    lambda_runtime::run(service_fn(handle)).await
}

/// The reconciliation of payments, as the environment says; with the ledger of payments, for who is told of charges.
pub(crate) async fn build() -> Result<(Arc<DynamoDbStore>, Reconciliation<DynamoDbStore>, Ledger), Error> {
    let aws = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let config = Config::from_env()?;
    let back_off = BackOff::default();
    let back_off = BackOff {
        first: shell::millis("RECONCILE_FIRST_MS", back_off.first)?,
        longest: shell::millis("RECONCILE_LONGEST_MS", back_off.longest)?,
        most: shell::count("RECONCILE_ASKS", back_off.most)?,
    };
    let grace = shell::millis("NOT_FOUND_GRACE_MS", DEFAULT_NOT_FOUND_GRACE)?;
    let dead_letters = SqsQueue::from_env(&aws, "DEAD_LETTERS_QUEUE_URL")?;
    let store = Arc::new(DynamoDbStore::from_env().await?);
    let ledger = Ledger::from_env(config.payments_table.clone()).await;
    let payments = PaymentReconciler::new(Provider::new(&config)?, ledger.clone());
    let reconciliation = Reconciliation::new(store.clone(), dead_letters)
        .back_off(back_off)
        .not_found_grace(grace)
        .operation(payments::policy::create_payment(), payments);
    Ok((store, reconciliation, ledger))
}

/// Asks about everything that is due, round after round, until nothing is or the time is up.
pub async fn poll(
    store: &DynamoDbStore,
    reconciliation: &Reconciliation<DynamoDbStore>,
    until: Timestamp,
) -> Result<Polled, Error> {
    let mut polled = Polled::default();
    // What was asked about and is due all the same: it failed, or the index has not taken it out yet. It is left to the
    // next poll, and does not stand in front of what comes after it in its partition.
    let mut left: HashSet<RecordKey> = HashSet::new();
    loop {
        let mut due = store.due(reconciliation.now(), ROUND + RECONCILE_SHARDS * left.len()).await?;
        due.retain(|key| !left.contains(key));
        if due.is_empty() || SystemClock.now() >= until {
            break;
        }
        let mut asked = stream::iter(due.iter().take_while(|_| SystemClock.now() < until))
            .map(|key| async move { (key, reconciliation.ask_if_due(key).await) })
            .buffer_unordered(AT_ONCE);
        while let Some((key, answer)) = asked.next().await {
            polled.due += 1;
            match answer {
                Ok(Reconciled::Resolved(_)) => polled.resolved += 1,
                Ok(Reconciled::Scheduled(_)) => polled.scheduled += 1,
                Ok(Reconciled::Escalated) => polled.escalated += 1,
                Ok(_) => {
                    left.insert(key.clone());
                }
                Err(error) => {
                    polled.failed += 1;
                    left.insert(key.clone());
                    let (key, operation) = (key.hash(), key.operation());
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(%key, %operation, error, cause = error.source(), "a question could not be asked");
                }
            }
        }
    }
    if polled != Polled::default() {
        let Polled { due, resolved, scheduled, escalated, failed } = polled;
        tracing::info!(due, resolved, scheduled, escalated, failed, "poll");
    }
    Ok(polled)
}

/// Does what one message of the queue says.
pub async fn receive(reconciliation: &Reconciliation<DynamoDbStore>, body: &str) -> Result<(), Error> {
    // Not the parser's own words: they may repeat what the message says.
    let message: Message =
        serde_json::from_str(body).map_err(|_| "the message says nothing that can be done")?;
    match message {
        Message::Ending(lost) => Ok(reconciliation.apply(&lost).await?),
        Message::Ask { key } => {
            let key = RecordKey::from_partition_key(&key).ok_or("the message names no record")?;
            match reconciliation.ask(&key).await? {
                Reconciled::Busy => Err("others change the record at this moment".into()),
                _ => Ok(()),
            }
        }
    }
}
