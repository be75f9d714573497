//! A payments API behind the guard: the sample of this repository, and a function to deploy. The sample's other functions share its
//! client of the payment provider.
//!
//! | route | what | guarded |
//! | --- | --- | --- |
//! | `POST /payments` | charges a card: 201, `Location`, the payment | `create-payment` |
//! | `POST /transfers` | moves money between two accounts, in one transaction | `transfer` |
//! | `GET /accounts` | the tenant's accounts | |
//! | `GET /payments`, `GET /payments/{id}` | the tenant's payments | |
//! | `GET /operations?key=…`, `GET /operations/{key}` | the state of an operation, for pollers | |

mod accounts;
mod answer;
mod config;
mod correlation;
mod create;
mod error;
mod ledger;
mod listed;
mod order;
mod payment;
pub mod policy;
mod provider;
mod read;
mod refund;
pub mod routes;
#[cfg(feature = "test-cards")]
mod test_cards;
mod transfer;

use aws_config::BehaviorVersion;
use axum::Router;
use lambda_idempotency::{
    bounds::Bounds, http::LookUps, lambda, queue::SqsQueue, store::dynamodb::DynamoDbStore,
};

pub use accounts::{Accounts, OPENING_CENTS};
pub use answer::created;
pub use config::{Config, ConfigError};
pub use correlation::SealingKeys;
pub use error::{declined, malformed, problem, rejected};
pub use ledger::{After, DayPage, Ledger, client, of_day};
pub use listed::{Kind, Listed, ListedPage};
pub use order::NewPayment;
pub use payment::Payment;
pub use provider::{Charge, Found, NotCharged, Provider, ProviderError};
pub use read::{Caller, MAX_ID, failed};
pub use refund::Refund;

/// Runs the function until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn run() -> Result<(), lambda::Error> {
    lambda::logs();
    lambda::run_http(router().await.inspect_err(lambda::report)?).await
}

async fn router() -> Result<Router, lambda::Error> {
    let config = Config::from_env()?;
    let sealing_keys = SealingKeys::from_env()?;
    let (payments, accounts) = (lambda::text("PAYMENTS_TABLE")?, lambda::text("ACCOUNTS_TABLE")?);
    let provider = Provider::new(&config)?;
    let aws = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let deferred_reports = SqsQueue::from_env(&aws, "DEFERRED_REPORTS_QUEUE_URL")?;
    let store = DynamoDbStore::from_env().await?;
    let ledger = Ledger::from_env(payments).await;
    let accounts = Accounts::from_env(accounts).await;
    let bounds = Bounds::from_env(store.clone())?;
    let payment = policy::create_payment().grace(config.lease_grace);
    let look_ups = LookUps::from_env()?;
    let services = policy::Services { ledger, accounts, provider, sealing_keys, look_ups };
    Ok(routes::router(store, services, payment, deferred_reports, bounds))
}
