//! A payments API behind the guard: the sample of this repository, and a function to deploy.
//!
//! | route | what | guarded |
//! | --- | --- | --- |
//! | `POST /payments` | charges a card: 201, `Location`, the payment | `create-payment` |
//! | `GET /payments`, `GET /payments/{id}` | the tenant's payments | |
//! | `GET /operations/{key}` | the state of an operation, for pollers | |

mod answer;
mod config;
mod create;
mod error;
mod ledger;
mod payment;
pub mod policy;
mod provider;
mod read;
pub mod routes;
#[cfg(feature = "test-cards")]
mod test_cards;

use lambda_http::Error;
use lambda_idempotency::store::dynamodb::DynamoDbStore;
use tracing_subscriber::EnvFilter;

pub use answer::{Answer, created, declined};
pub use config::{Config, ConfigError};
pub use ledger::{After, DayPage, Ledger};
pub use payment::Payment;
pub use provider::{Charge, ChargesPage, Found, Listed, Provider, ProviderError};

/// Runs the function until Lambda ends it.
///
/// # Errors
/// Where the configuration is wrong, by the name of what is wrong.
pub async fn run() -> Result<(), Error> {
    start_log()?;
    let config = Config::from_env().inspect_err(report)?;
    let store = DynamoDbStore::from_env().await.inspect_err(report)?;
    let ledger = Ledger::from_env(config.payments_table.clone()).await;
    let provider = Provider::new(&config).inspect_err(report)?;
    let payment = policy::create_payment().grace(config.lease_grace);
    lambda_http::run(routes::router(store, ledger, provider, payment)).await
}

/// Logs to standard error, as JSON, what `RUST_LOG` asks for; once a process.
///
/// # Errors
/// Where it was called before.
pub fn start_log() -> Result<(), Error> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // What these log below that holds whole requests: keys, bodies, tokens of cards.
    let quiet = [
        "aws_smithy_runtime=info",
        "aws_sdk_dynamodb=info",
        "aws_sdk_s3=info",
        "hyper_util=info",
        "reqwest=info",
    ];
    let filter = quiet
        .into_iter()
        .try_fold(filter, |filter, quiet| Ok::<_, Error>(filter.add_directive(quiet.parse()?)))?;
    // CloudWatch stamps the time.
    tracing_subscriber::fmt()
        .json()
        .with_span_list(false)
        .with_env_filter(filter)
        .without_time()
        .with_writer(std::io::stderr)
        .try_init()
}

/// Lambda shows an error of the start-up as one long line of debug output; the log gets a readable one.
fn report(error: &impl std::fmt::Display) {
    tracing::error!(%error, "the function cannot start");
}
