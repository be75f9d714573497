//! The consumer of a queue, and a batch as Lambda hands it over: `cargo run --example queue`.
//!
//! In a function: `SqsSource::from_env` and `DynamoDbStore::from_env`; and `lambda::run(consumer)`.

use lambda_http::{Context, Error, LambdaEvent, tower::ServiceExt};
use lambda_idempotency::event::{Consumer, KeyFrom, MemorySource};
use lambda_idempotency::{Execution, Failure, Guard, MemoryStore, Operation, key::Tenant};
use serde_json::Value;

const BATCH: &str = include_str!("../functions/orders/events/orders.json");

async fn ship(execution: Execution, order: Value) -> Result<String, Failure> {
    if order["quantity"] == 0 {
        return Err(Failure::permanent("nothing was ordered"));
    }
    println!("{} is shipped", order["orderId"]);
    Ok(execution.downstream_key("carrier"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let queue = MemorySource::new("payments-orders.fifo");
    let guard = Guard::new(MemoryStore::new(), Operation::new("ship"), Tenant::parse("shop")?);
    let consumer = Consumer::new(queue.clone(), KeyFrom::body("/orderId")).each(guard, ship);
    let batch = LambdaEvent::new(serde_json::from_str(BATCH)?, Context::default());
    println!("{} come again", consumer.oneshot(batch).await?.identifiers().len());
    queue.take_dead().iter().for_each(|dead| println!("dead: {}", dead.reason));
    Ok(())
}
