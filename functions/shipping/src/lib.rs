//! Ships what was ordered: a consumer of the events `order.placed`, which the outbox delivers at least once. Each order is shipped once.
//!
//! ```text
//! orders ─▶ outbox ─▶ event bus ─▶ rule: detail-type order.placed ─▶ queue shipments ─▶ this function ─▶ table of orders
//! ```
//!
//! 1. The key is the CloudEvent's `source` and `id`, which are the same in each delivery. EventBridge's own id is another one each time.
//! 2. The tenant is in the event. That is safe only because the queue's policy lets none but the event bus's rule send to the queue, and the
//!    bus's policy none but the outbox.
//! 3. The effect is one write, in the transaction that completes the message: its outcome is never unknown.
//!
//! Environment: `IDEMPOTENCY_TABLE`, `ORDERS_TABLE`, `SHIPMENTS_QUEUE_URL`, `SHIPMENTS_DEAD_LETTERS_QUEUE_URL`.

#![deny(missing_docs)]

mod event;
mod shipments;

use std::time::Duration;

use lambda_idempotency::{
    Execution, Failure, Guard,
    bounds::Bounds,
    event::{Consumer, Envelope, KeyFrom, SqsSource},
    key::Tenant,
    lambda::{self, Error},
    operation::Operation,
    store::dynamodb::DynamoDbStore,
};

use event::Event;
use shipments::Shipments;

/// The operation of a shipment.
const SHIP: &str = "ship";

/// As long as a message can come again: 14 days in the dead letters, and 14 more in the queue to which it was sent back.
const RETENTION: Duration = Duration::from_secs(28 * 24 * 60 * 60);

/// Runs the function until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn run() -> Result<(), Error> {
    lambda::logs();
    let (consumer, guard, shipments) = configured().await.inspect_err(lambda::report)?;
    let ship = move |execution, event| ship(shipments.clone(), execution, event);
    lambda::run(consumer.each_of_tenants(|message| event::tenant(&message.body), guard, ship)).await
}

async fn configured() -> Result<(Consumer, Guard, Shipments), Error> {
    let shipments = Shipments::new(&lambda::text("ORDERS_TABLE")?);
    let aws = lambda::aws().await;
    let queue = SqsSource::from_env(&aws, "SHIPMENTS_QUEUE_URL", "SHIPMENTS_DEAD_LETTERS_QUEUE_URL")?;
    let consumer = Consumer::new(queue, KeyFrom::cloud_event()).envelopes([Envelope::EventBridge]);
    let operation = Operation::new(SHIP).retain(RETENTION).effects_in_transaction();
    let store = DynamoDbStore::from_env().await?;
    // What was ordered is shipped, however much it is. Operators can stop it.
    let bounds = Bounds::of(store.clone());
    // Each message has its own tenant in place of this one.
    let guard = Guard::new(store, operation, Tenant::parse("none")?).bounds(bounds);
    Ok((consumer, guard, shipments))
}

async fn ship(shipments: Shipments, execution: Execution, event: Event) -> Result<(), Failure> {
    let placed = event.order_placed().map_err(Failure::permanent)?;
    execution.write(shipments.shipping(execution.tenant().as_str(), &placed))?;
    Ok(())
}
