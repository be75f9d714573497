//! The same function for a batch, guarded and bare: from the event's text to the answer's.

use std::{
    cell::Cell,
    time::{Duration, SystemTime},
};

use lambda_http::{Context, LambdaEvent};
use lambda_idempotency::{
    Execution, Failure, Guard, Operation,
    event::{BatchFunction, Consumer, KeyFrom, MemorySource},
    key::Tenant,
    store::Store,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tower::ServiceExt;

use crate::messages::{Change, QUEUE, Source};

/// The answer to a batch of which nothing comes again.
const ALL_DONE: &str = r#"{"batchItemFailures":[]}"#;

/// How long an invocation may take.
const TIMEOUT: Duration = Duration::from_secs(600);

thread_local! {
    static RUNS: Cell<u64> = const { Cell::new(0) };
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    id: String,
    customer_id: String,
    amount_cents: u64,
    currency: String,
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    sku: String,
    quantity: u64,
}

#[derive(Debug, Deserialize, Serialize)]
struct Shipment {
    tracking: String,
    parcels: u64,
}

/// How often the function ran, guarded or bare.
pub fn runs() -> u64 {
    RUNS.get()
}

/// The function, which has no effect.
async fn ship(order: Order) -> Result<Shipment, Failure> {
    RUNS.set(RUNS.get() + 1);
    let Order { id, customer_id, amount_cents, currency, items } = order;
    if amount_cents == 0 || currency.is_empty() || items.iter().any(|item| item.sku.is_empty()) {
        return Err(Failure::permanent("nothing was ordered"));
    }
    let parcels = items.iter().map(|item| item.quantity).sum();
    Ok(Shipment { tracking: format!("{customer_id}-{id}"), parcels })
}

/// What a message holds.
pub trait Ordered: DeserializeOwned + Send + 'static {
    const KEY: &str;

    fn order(self) -> Result<Order, Failure>;
}

impl Ordered for Order {
    const KEY: &str = "/id";

    fn order(self) -> Result<Order, Failure> {
        Ok(self)
    }
}

/// The change of an item that holds an order.
#[derive(Deserialize)]
pub struct Changed {
    dynamodb: Change,
}

impl Ordered for Changed {
    const KEY: &str = "/dynamodb/Keys/id/S";

    fn order(self) -> Result<Order, Failure> {
        Ok(serde_json::from_str(&self.dynamodb.order())?)
    }
}

/// The consumer, as in production, but for its source.
pub fn guarded<I: Ordered>(store: impl Store, source: Source) -> impl BatchFunction {
    let tenant = Tenant::parse("shop").expect("a tenant");
    let guard = Guard::new(store, Operation::new("ship"), tenant);
    let consumer = Consumer::new(MemorySource::of(source.kind(), QUEUE), KeyFrom::body(I::KEY));
    consumer.each(guard, async |_: Execution, order: I| ship(order.order()?).await)
}

/// Hands a batch to the consumer.
pub async fn deliver(consumer: &impl BatchFunction, event: &str) {
    let mut context = Context::default();
    let deadline = SystemTime::now() + TIMEOUT;
    let since = deadline.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    context.deadline = since.as_millis() as u64;
    let event = serde_json::from_str(event).expect("an event");
    let answer = consumer.clone().oneshot(LambdaEvent::new(event, context)).await.expect("an answer");
    assert_eq!(serde_json::to_string(&answer).expect("JSON"), ALL_DONE);
}

/// The bare handler: the function for each message.
pub async fn deliver_bare(event: &str, source: Source) {
    for body in source.orders(event) {
        let order = serde_json::from_str(&body).expect("an order");
        ship(order).await.expect("a shipment");
    }
}
