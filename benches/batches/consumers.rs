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
use serde::{Deserialize, Serialize};
use tower::ServiceExt;

use crate::messages::QUEUE;

/// The answer to a batch of which nothing comes again.
const ALL_DONE: &str = r#"{"batchItemFailures":[]}"#;

/// How long an invocation may take.
const TIMEOUT: Duration = Duration::from_secs(600);

thread_local! {
    static RUNS: Cell<u64> = const { Cell::new(0) };
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Order {
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

/// The consumer, as in production, but for its queue.
pub fn guarded(store: impl Store) -> impl BatchFunction {
    let tenant = Tenant::parse("shop").expect("a tenant");
    let guard = Guard::new(store, Operation::new("ship"), tenant);
    let consumer = Consumer::new(MemorySource::new(QUEUE), KeyFrom::body("/id"));
    consumer.each(guard, async |_: Execution, order: Order| ship(order).await)
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
pub async fn deliver_bare(event: &str) {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Batch {
        records: Vec<Record>,
    }
    #[derive(Deserialize)]
    struct Record {
        body: String,
    }
    let batch: Batch = serde_json::from_str(event).expect("an event");
    for Record { body } in batch.records {
        let order = serde_json::from_str(&body).expect("an order");
        ship(order).await.expect("a shipment");
    }
}
