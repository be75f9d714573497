//! An orders API: an operation with two external effects and rows between them, so that it resumes after a crash.
//!
//! | route | what | guarded |
//! | --- | --- | --- |
//! | `POST /orders` | charges a card and takes stock, or gives the money back: 201, `Location`, the order | `create-order` |
//! | `GET /orders/{id}` | the tenant's order | |
//! | `GET /stock/{sku}` | how much is left of the tenant's stock | |
//!
//! A second function takes orders from a FIFO queue, through the same router: see [`queue`].
//!
//! An order that is confirmed publishes `order.placed`, for the service that ships it. The message commits with the order, and with its answer.
//!
//! The client of the payment provider is that of the function `payments`.

mod answer;
mod booking;
mod create;
mod order;
pub mod policy;
pub mod queue;
mod read;
pub mod routes;
mod shop;
mod test_cards;

use aws_config::BehaviorVersion;
use axum::Router;
use lambda_idempotency::{
    bounds::Bounds,
    config::ConfigError,
    domain::Topic,
    event::{Consumer, KeyFrom, SqsSource},
    key::Tenant,
    lambda,
    outbox::Topics,
    queue::SqsQueue,
    store::dynamodb::DynamoDbStore,
};
use payments::{Config, Provider, SealingKeys};

pub use booking::Booking;
pub use order::{Charging, Order, Status};
pub use shop::{OPENING, Shop};

/// Runs the function `orders` until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn run() -> Result<(), lambda::Error> {
    lambda::logs();
    lambda::run_http(router().await.inspect_err(lambda::report)?).await
}

/// Runs the function `order-queue` until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn order_queue() -> Result<(), lambda::Error> {
    lambda::logs();
    let requests = queue::Requests::of(&tenant().inspect_err(lambda::report)?)?;
    let queue =
        SqsSource::from_env(&lambda::aws().await, "ORDERS_QUEUE_URL", "ORDERS_DEAD_LETTERS_QUEUE_URL");
    let consumer = Consumer::new(queue.inspect_err(lambda::report)?, KeyFrom::body("/orderId"));
    let router = router().await.inspect_err(lambda::report)?;
    lambda::run_concurrent(consumer.route(router, move |message| requests.request(message))).await
}

/// The tenant whose orders the queue has: none but its producers may send messages to it.
fn tenant() -> Result<Tenant, ConfigError> {
    const TENANT: &str = "ORDERS_TENANT";
    Tenant::parse(&lambda::text(TENANT)?).map_err(|_| ConfigError::Malformed(TENANT, "a tenant"))
}

/// The topic of orders that are placed. Without a target, they would never be shipped.
fn placed() -> Result<Topic, ConfigError> {
    Ok(Topics::from_env()?.topic(policy::ORDER_PLACED)?)
}

async fn router() -> Result<Router, lambda::Error> {
    let config = Config::from_env()?;
    let (table, sealing_keys) = (lambda::text("ORDERS_TABLE")?, SealingKeys::from_env()?);
    let placed = placed()?;
    let aws = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let deferred_reports = SqsQueue::from_env(&aws, "DEFERRED_REPORTS_QUEUE_URL")?;
    let store = DynamoDbStore::from_env().await?;
    let shop = Shop::new(payments::client().await, &table);
    let services = policy::Services { shop, provider: Provider::new(&config)?, sealing_keys, placed };
    let order = policy::create_order().grace(config.lease_grace);
    let bounds = Bounds::from_env(store.clone())?;
    Ok(routes::router(store, services, order, deferred_reports, bounds))
}
