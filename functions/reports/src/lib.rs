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
    domain::Table,
    event::{Consumer, SqsSource},
    lambda::{self, Error},
    queue::SqsQueue,
};

/// How often a report is continued. A page takes a second at most, and each worker has time for some.
const MAX_RESUMED: u32 = 100;

/// Runs the function `reports` until Lambda ends it.
///
/// Environment: `IDEMPOTENCY_TABLE`, `ORDERS_TABLE`, which has the reports too, `DEFERRED_REPORTS_QUEUE_URL`; `LEASE_GRACE_MS`.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn run() -> Result<(), Error> {
    lambda::logs();
    let (_, router) = configured().await.inspect_err(lambda::report)?;
    lambda::run_http(router).await
}

/// Runs the function `report-worker` until Lambda ends it.
///
/// Environment: the same, and `WORK_QUEUE_URL`, `WORK_DEAD_LETTERS_QUEUE_URL`.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn worker() -> Result<(), Error> {
    lambda::logs();
    let (store, router) = configured().await.inspect_err(lambda::report)?;
    let queue = SqsSource::from_env(&lambda::aws().await, "WORK_QUEUE_URL", "WORK_DEAD_LETTERS_QUEUE_URL");
    let consumer = Consumer::worker(queue.inspect_err(lambda::report)?).max_attempts(MAX_RESUMED);
    lambda::run_concurrent(consumer.work(store, router)).await
}

async fn configured() -> Result<(DynamoDbStore, Router), Error> {
    let table = lambda::text("ORDERS_TABLE")?;
    let grace = lambda::millis("LEASE_GRACE_MS", Duration::from_secs(10))?;
    let aws = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let deferred_reports = SqsQueue::from_env(&aws, "DEFERRED_REPORTS_QUEUE_URL")?;
    let store = DynamoDbStore::from_env().await?;
    let reports = Table::new(table, "pk").sort_key("sk");
    let router =
        routes::router(store.clone(), policy::create_report().grace(grace), reports, deferred_reports);
    Ok((store, router))
}
