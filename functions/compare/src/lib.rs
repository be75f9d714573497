//! Compares our ledger with the provider's, a day at a time: what only one of them has is what no retry, webhook or
//! question has brought to light.
//!
//! A schedule invokes it with `{"job": "compare"}`, for yesterday in UTC, or with a `"day": "2026-11-20"`. Both ledgers
//! are read page by page and compared by the charge's id. What differs goes to the report, to the log and to the
//! metrics; the answer is the report's summary. Run again, it replaces the day's report by a new one.

mod comparison;
mod failure;
mod pages;
mod reports;

use std::env;

use futures_util::FutureExt;
use lambda_idempotency::{event, world::SystemWorld};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use payments::{Config, ConfigError, Ledger, Provider};
use serde_json::Value;

pub use comparison::{Compared, Comparison};
pub use failure::Failure;
pub use reports::Reports;

/// Runs the function until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong, by the name of what is wrong.
pub async fn run() -> Result<(), Error> {
    event::logs();
    let comparison = from_env().await.inspect_err(event::report)?;
    // Boxed: the compiler does not follow a comparison's type through the layers of the runtime.
    let run = |event: LambdaEvent<Value>| comparison.run(event.payload).boxed_local();
    event::run(service_fn(run)).await
}

async fn from_env() -> Result<Comparison, ConfigError> {
    let config = Config::from_env()?;
    let reports = env::var("REPORTS").unwrap_or_default();
    Ok(Comparison {
        reports: Reports::parse(&reports).await?,
        ledger: Ledger::from_env(config.payments_table.clone()).await,
        provider: Provider::new(&config)?,
        world: Box::new(SystemWorld),
    })
}
