//! Compares our ledger with the provider's, a day at a time. What only one of them has was missed by every retry, webhook and
//! reconciliation.
//!
//! A schedule invokes it with `{"job": "compare"}`, which compares yesterday (in UTC) and the day before; a `"day": "2026-11-20"`
//! compares that day alone. So each day is compared twice: on the next day, and again when reconciliation of its charges is over.
//! Our ledger is the payments, and the charges and refunds of the orders. Theirs is every charge and every refund, whoever asked for it. Both are
//! read page by page and compared by the provider's id. Differences go to the report, the log and the metrics; the answer has the summary of each
//! day. Another run replaces the day's report.
//!
//! What can be in no ledger of ours has a name of its own, instead of `only_theirs`:
//!
//! | difference | what only the provider has |
//! | --- | --- |
//! | `no_record` | its metadata leads to no record: it was made by hand, or by another program |
//! | `unreadable_record` | what should lead to its record opens with none of our keys |
//! | `unknown_operation` | its record's operation has no ledger here |
//! | `other_tenant` | it is another tenant's than its record |
//!
//! The report names tenant, operation and idempotency key if a ledger does; the log has the hash of the record's key.
//!
//! Environment: `PAYMENTS_TABLE`, `ORDERS_TABLE`, `PROVIDER_URL`, `SEALING_KEYS` (which open the correlation from a charge or a refund to its
//! record), `REPORTS`.

mod booked;
mod comparison;
mod failure;
mod pages;
mod reports;

use futures_util::FutureExt;
use lambda_idempotency::{lambda, world::SystemWorld};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use orders::Shop;
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
        shop: Shop::new(payments::client().await, &lambda::text("ORDERS_TABLE")?),
        provider: Provider::new(&config)?,
        sealing_keys: SealingKeys::from_env()?,
        world: Box::new(SystemWorld),
    })
}
