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

use std::{sync::Arc, time::Duration};

use aws_config::BehaviorVersion;
use lambda_idempotency::{
    queue::{Queue, SqsQueue},
    stale::{Check, DEFAULT_PENDING_BOUND, Stale, Sweep, SweepProgress},
    store::dynamodb::DynamoDbStore,
    time::Timestamp,
};
use lambda_runtime::{Context, Error, LambdaEvent, service_fn};
use shell::{BatchFailures, Event, Trigger};

/// What the function works with.
pub struct Function<S> {
    /// Looks at records.
    pub stale: Stale<S>,
    /// Where checks go.
    pub checks: Arc<dyn Queue>,
    /// Where stream records go that cannot be read.
    pub dead_letters: Arc<dyn Queue>,
}

/// Runs the function until Lambda ends it.
///
/// # Errors
/// Where the configuration is wrong, by the name of what is wrong.
pub async fn run() -> Result<(), Error> {
    shell::logs();
    let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let store = DynamoDbStore::from_env().await.inspect_err(shell::report)?;
    let pending_bound =
        shell::millis("PENDING_BOUND_MS", DEFAULT_PENDING_BOUND).inspect_err(shell::report)?;
    let units = shell::count("SWEEP_UNITS_PER_SECOND", 50).inspect_err(shell::report)?;
    let sweep = Sweep { units_per_second: units.into(), ..Sweep::default() };
    let queue = |variable| SqsQueue::from_env(&config, variable).inspect_err(shell::report);
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
        let until = shell::until(context);
        match event.into() {
            Trigger::Job(job) if job == "sweep" => {
                self.sweep(sweep, SweepProgress::default(), until).await?;
                Ok(BatchFailures::default())
            }
            Trigger::Job(other) => Err(format!("no such job: {other}").into()),
            Trigger::Messages(messages) => {
                Ok(shell::each_message(&messages, async |body| self.check_one(body, sweep, until).await)
                    .await)
            }
            Trigger::Stream(records) => Ok(self.stream(&records).await),
        }
    }

    /// Sweeps until it is done or the time is up; then a message says where to go on. A sweep that fails is delivered again
    /// as it came, and begins where that one began.
    async fn sweep(&self, sweep: &Sweep, mut progress: SweepProgress, until: Timestamp) -> Result<(), Error> {
        let swept = self.stale.sweep(sweep, &mut progress, until, |_, _| ()).await;
        let (done, segments) = progress.segments();
        let SweepProgress { scanned, units, given_up, abandoned, unreadable, .. } = progress;
        tracing::info!(done, segments, scanned, units, given_up, abandoned, unreadable, "sweep");
        swept?;
        if progress.is_done() {
            return Ok(());
        }
        let message = serde_json::to_string(&Check::Sweep { progress })?;
        Ok(self.checks.send(&message, Duration::ZERO).await?)
    }
}
