//! A reports API: an operation that takes longer than a client waits, so that it is accepted now and executed later.
//!
//! | route | what | guarded |
//! | --- | --- | --- |
//! | `POST /reports` | accepts a report: 202, `Location`, `Retry-After`. Its status is that of the operation `create-report` | `create-report` |
//!
//! A second function, the worker, executes what was accepted, through the same router. A report is written page by page, each in a phase: a
//! worker that ends midway is followed by another one, which goes on behind the pages that are kept.

#![deny(missing_docs)]

mod accept;
pub mod policy;
mod report;
pub mod routes;
mod row;

use std::time::Duration;

use aws_config::BehaviorVersion;
use axum::Router;
use lambda_idempotency::{
    DynamoDbStore,
    bounds::Bounds,
    domain::Table,
    event::{Consumer, SqsSource},
    lambda::{self, Error},
    queue::SqsQueue,
};

/// How often a report is continued. A page takes a second at most, and each worker has time for some.
const MAX_RESUMED: u32 = 100;

/// Runs the function `reports` until Lambda ends it.
///
/// Environment: `IDEMPOTENCY_TABLE`, `ORDERS_TABLE`, which has the reports too, `DEFERRED_REPORTS_QUEUE_URL`; `LEASE_GRACE_MS`,
/// `TENANT_NEW_KEYS_PER_SECOND`, `TENANT_OPEN_RECORDS`.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn run() -> Result<(), Error> {
    lambda::logs();
    let configured = configured().await.inspect_err(lambda::report)?;
    let bounds = Bounds::from_env(configured.store.clone()).inspect_err(lambda::report)?;
    lambda::run_http(configured.router(bounds)).await
}

/// Runs the function `report-worker` until Lambda ends it.
///
/// Environment: `IDEMPOTENCY_TABLE`, `ORDERS_TABLE`, `DEFERRED_REPORTS_QUEUE_URL`, `WORK_QUEUE_URL`, `WORK_DEAD_LETTERS_QUEUE_URL`;
/// `LEASE_GRACE_MS`.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn worker() -> Result<(), Error> {
    lambda::logs();
    let configured = configured().await.inspect_err(lambda::report)?;
    let queue = SqsSource::from_env(&lambda::aws().await, "WORK_QUEUE_URL", "WORK_DEAD_LETTERS_QUEUE_URL");
    let consumer = Consumer::worker(queue.inspect_err(lambda::report)?).max_attempts(MAX_RESUMED);
    // What was accepted has had its bounds. Operators can stop it.
    let bounds = Bounds::of(configured.store.clone());
    lambda::run_concurrent(consumer.work(configured.store.clone(), configured.router(bounds))).await
}

/// What both functions have.
struct Configured {
    store: DynamoDbStore,
    deferred_reports: SqsQueue,
    reports: Table,
    grace: Duration,
}

impl Configured {
    fn router(self, bounds: Bounds) -> Router {
        let operation = policy::create_report().grace(self.grace);
        routes::router(self.store, operation, self.reports, self.deferred_reports, bounds)
    }
}

async fn configured() -> Result<Configured, Error> {
    let table = lambda::text("ORDERS_TABLE")?;
    let grace = lambda::millis("LEASE_GRACE_MS", Duration::from_secs(10))?;
    let aws = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let deferred_reports = SqsQueue::from_env(&aws, "DEFERRED_REPORTS_QUEUE_URL")?;
    let store = DynamoDbStore::from_env().await?;
    Ok(Configured { store, deferred_reports, reports: Table::new(table, "pk").sort_key("sk"), grace })
}
