//! An orders API: an operation with two external effects and rows between them, so that it resumes after a crash.
//!
//! | route | what | guarded |
//! | --- | --- | --- |
//! | `POST /orders` | charges a card and takes stock, or gives the money back: 201, `Location`, the order | `create-order` |
//! | `GET /orders/{id}` | the tenant's order | |
//! | `GET /stock/{sku}` | how much is left of the tenant's stock | |
//!
//! The client of the payment provider is that of the function `payments`.

mod answer;
mod create;
mod order;
pub mod policy;
mod read;
pub mod routes;
mod shop;
mod test_cards;

use aws_config::BehaviorVersion;
use axum::Router;
use lambda_http::{Adapter, Error};
use lambda_idempotency::{lambda, queue::SqsQueue, store::dynamodb::DynamoDbStore};
use payments::{Config, Provider, SealingKeys};

pub use order::{Charging, Order, Status};
pub use shop::{OPENING, Shop};

/// Runs the function until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn run() -> Result<(), Error> {
    lambda::logs();
    lambda::run(Adapter::from(router().await.inspect_err(lambda::report)?)).await
}

async fn router() -> Result<Router, Error> {
    let config = Config::from_env()?;
    let (table, sealing_keys) = (lambda::text("ORDERS_TABLE")?, SealingKeys::from_env()?);
    let aws = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let deferred_reports = SqsQueue::from_env(&aws, "RECONCILE_QUEUE_URL")?;
    let store = DynamoDbStore::from_env().await?;
    let shop = Shop::new(payments::client().await, &table);
    let services = policy::Services { shop, provider: Provider::new(&config)?, sealing_keys };
    let order = policy::create_order().grace(config.lease_grace);
    Ok(routes::router(store, services, order, deferred_reports))
}
