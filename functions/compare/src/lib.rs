//! Compares our ledger with the provider's, a day at a time. What only one of them has was missed by every retry, webhook and
//! reconciliation.
//!
//! A schedule invokes it with `{"job": "compare"}`, which compares yesterday (in UTC) and the day before; a `"day": "2026-11-20"`
//! compares that day alone. So each day is compared twice: on the next day, and again when reconciliation of its charges is over.
//! Both ledgers are read page by page and compared by the charge's id. Differences go to the report, the log and the metrics; the
//! answer has the summary of each day. Another run replaces the day's report.
//!
//! Charges of orders are left out: they are in no ledger of payments.
//!
//! The report names the tenant and idempotency key of a charge if its ledger does; the log has the hash of its record's key.
//!
//! Environment: `PAYMENTS_TABLE`, `PROVIDER_URL`, `SEALING_KEYS` (which open the correlation from a charge to its record), `REPORTS`.

mod comparison;
mod failure;
mod pages;
mod reports;

use futures_util::FutureExt;
use lambda_idempotency::{lambda, world::SystemWorld};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use payments::{Config, ConfigError, Ledger, Provider, SealingKeys};
use serde_json::Value;

pub use comparison::{Compared, Comparison};
pub use failure::Failure;
pub use reports::Reports;

/// Runs the function until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn run() -> Result<(), Error> {
    lambda::logs();
    let comparison = from_env().await.inspect_err(lambda::report)?;
    // Boxed, because the compiler cannot follow the future's type through the layers of the runtime.
    let run = |event: LambdaEvent<Value>| comparison.run(event.payload).boxed_local();
    lambda::run(service_fn(run)).await
}

async fn from_env() -> Result<Comparison, ConfigError> {
    let config = Config::from_env()?;
    let reports = lambda::text("REPORTS").unwrap_or_default();
    Ok(Comparison {
        reports: Reports::parse(&reports).await?,
        ledger: Ledger::from_env(lambda::text("PAYMENTS_TABLE")?).await,
        provider: Provider::new(&config)?,
        sealing_keys: SealingKeys::from_env()?,
        world: Box::new(SystemWorld),
    })
}
