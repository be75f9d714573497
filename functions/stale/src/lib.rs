//! Finds records whose worker died, without anybody retrying, and gives them up.
//!
//! | trigger | what |
//! | --- | --- |
//! | the table's stream | [`stream`]: what a batch leaves open goes to the queue of checks |
//! | the queue of checks | [`checks`]: looks at records, or goes on with a sweep |
//! | a schedule, `{"job":"sweep"}` | begins a sweep |
//!
//! Environment: `IDEMPOTENCY_TABLE`, `CHECKS_QUEUE_URL`, `DEAD_LETTERS_QUEUE_URL`; `PENDING_BOUND_MS` (how long accepted work
//! may wait for a worker), `SWEEP_UNITS_PER_SECOND` (what a sweep may read).

#![deny(missing_docs)]

pub mod checks;
pub mod stream;

use std::sync::Arc;

use aws_config::BehaviorVersion;
use lambda_idempotency::{
    lease::plausible_deadline,
    queue::{Queue, SqsQueue},
    stale::{Check, DEFAULT_PENDING_BOUND, Stale, Sweep, SweepProgress},
    store::dynamodb::DynamoDbStore,
    time::Timestamp,
};
use lambda_runtime::{Context, Error, LambdaEvent, service_fn};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// How long before its deadline the function stops to take up work.
const LAST_ORDERS: std::time::Duration = std::time::Duration::from_secs(3);

/// What the function works with.
pub struct Function<S> {
    /// Looks at records.
    pub stale: Stale<S>,
    /// Where checks go.
    pub checks: Arc<dyn Queue>,
    /// Where stream records go that cannot be read.
    pub dead_letters: Arc<dyn Queue>,
}

/// What triggers the function.
#[derive(Debug, Deserialize)]
pub struct Event {
    /// Stream records, or messages of a queue; each is read by itself, so that one which cannot be read holds no other up.
    #[serde(rename = "Records", default)]
    records: Vec<Box<RawValue>>,
    #[serde(default)]
    job: Option<String>,
}

/// Which records of a batch are to be delivered again
/// ([streams](https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html),
/// [queues](https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html)).
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchFailures {
    /// Each by its sequence number or message id.
    pub batch_item_failures: Vec<Failure>,
}

/// One record that is to be delivered again.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Its sequence number or message id.
    pub item_identifier: String,
}

impl FromIterator<String> for BatchFailures {
    fn from_iter<I: IntoIterator<Item = String>>(identifiers: I) -> Self {
        let failure = |item_identifier| Failure { item_identifier };
        Self { batch_item_failures: identifiers.into_iter().map(failure).collect() }
    }
}

/// Runs the function until Lambda ends it.
///
/// # Errors
/// Where the configuration is wrong, by the name of what is wrong.
pub async fn run() -> Result<(), Error> {
    start::logs();
    let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let store = DynamoDbStore::from_env().await.inspect_err(start::report)?;
    let pending_bound =
        start::millis("PENDING_BOUND_MS", DEFAULT_PENDING_BOUND).inspect_err(start::report)?;
    let units = start::count("SWEEP_UNITS_PER_SECOND", 50).inspect_err(start::report)?;
    let sweep = Sweep { units_per_second: units.into(), ..Sweep::default() };
    let queue = |variable| SqsQueue::from_env(&config, variable).inspect_err(start::report);
    let function = Function {
        stale: Stale::new(store).pending_bound(pending_bound),
        checks: Arc::new(queue("CHECKS_QUEUE_URL")?),
        dead_letters: Arc::new(queue("DEAD_LETTERS_QUEUE_URL")?),
    };
    let (function, sweep) = (&function, &sweep);
    let handle =
        async |event: LambdaEvent<Event>| function.handle(event.payload, &event.context, sweep).await;
    lambda_runtime::run(service_fn(handle)).await
}

impl Function<DynamoDbStore> {
    async fn handle(&self, event: Event, context: &Context, sweep: &Sweep) -> Result<BatchFailures, Error> {
        let until = self.until(context);
        match (event.job.as_deref(), event.records.first()) {
            (Some("sweep"), _) => {
                self.sweep(sweep, SweepProgress::default(), until).await?;
                Ok(BatchFailures::default())
            }
            (Some(other), _) => Err(format!("no such job: {other}").into()),
            (None, None) => Ok(BatchFailures::default()),
            (None, Some(first)) if is_message(first) => {
                Ok(self.check_all(&event.records, sweep, until).await)
            }
            (None, Some(_)) => Ok(self.stream(&event.records).await),
        }
    }

    fn until(&self, context: &Context) -> Timestamp {
        let now = self.stale.now();
        let deadline = plausible_deadline(Timestamp::from_millis(context.deadline), now);
        deadline.unwrap_or_else(|| now.plus(LAST_ORDERS * 4)).minus(LAST_ORDERS)
    }

    /// Sweeps until it is done or the time is up; then a message says where to go on.
    async fn sweep(&self, sweep: &Sweep, mut progress: SweepProgress, until: Timestamp) -> Result<(), Error> {
        let swept = self.stale.sweep(sweep, &mut progress, until, |_, _| ()).await;
        let (done, segments) = progress.segments();
        let SweepProgress { scanned, units, given_up, abandoned, unreadable, .. } = progress;
        tracing::info!(done, segments, scanned, units, given_up, abandoned, unreadable, "sweep");
        if progress.is_done() {
            return Ok(());
        }
        let pause = match &swept {
            Ok(()) => std::time::Duration::ZERO,
            Err(error) => {
                let error: &dyn std::error::Error = error;
                tracing::error!(error, "the sweep stops, and goes on in a minute");
                std::time::Duration::from_secs(60)
            }
        };
        let message = serde_json::to_string(&Check::Sweep { progress })?;
        Ok(self.checks.send(&message, pause).await?)
    }
}

/// Whether a batch is one of a queue.
fn is_message(record: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Source {
        #[serde(rename = "eventSource")]
        event_source: String,
    }
    serde_json::from_str(record.get()).is_ok_and(|source: Source| source.event_source == "aws:sqs")
}
