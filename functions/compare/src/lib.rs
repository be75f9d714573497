//! Compares our ledger with the provider's, a day at a time: what only one of them has is what no retry, webhook or
//! question has brought to light.
//!
//! A schedule invokes it with `{"job": "compare"}`, for yesterday in UTC and the day before, or with a `"day": "2026-11-20"`. So
//! each day is compared twice: soon, and once more when all questions about its charges are over. Both ledgers are read page by
//! page and compared by the charge's id. What differs goes to the report, to the log and to the metrics; the answer has the
//! summary of each day. Run again, it replaces the day's report by a new one.
//!
//! The report names tenant and idempotency key of a charge, as far as its ledger does; the log has the hash of its record's key.
//!
//! Environment: `PAYMENTS_TABLE`, `PROVIDER_URL`, `SEALING_KEYS` (what opens the way from a charge back to its record), `REPORTS`.

mod comparison;
mod failure;
mod pages;
mod reports;

use std::env;

use futures_util::FutureExt;
use lambda_idempotency::{event, world::SystemWorld};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use payments::{Config, ConfigError, Ledger, Provider, SealingKeys};
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
        sealing_keys: SealingKeys::from_env()?,
        world: Box::new(SystemWorld),
    })
}
