//! The consumer of a stream or of a topic, as a Lambda function: `cargo build --features lambda --example stream`.
//!
//! The local cloud runs it with Kinesis and with Kafka by the templates in `pollers/example`.

use std::env;

use lambda_idempotency::event::{Answers, Consumer, KeyFrom, StreamSource};
use lambda_idempotency::{DynamoDbStore, Execution, Failure, Guard, Operation, key::Tenant, lambda};
use serde_json::Value;

async fn ship(execution: Execution, order: Value) -> Result<(), Failure> {
    if order["quantity"] == 0 {
        return Err(Failure::permanent("nothing was ordered"));
    }
    println!("{} is shipped, the carrier's key is {}", order["orderId"], execution.downstream_key("carrier"));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    lambda::logs();
    let (aws, parked) = (lambda::aws().await, "ORDERS_PARKED_QUEUE_URL");
    let orders = match env::var_os("ORDERS_TOPIC") {
        Some(_) => StreamSource::kafka(&aws, Answers::Partial, "ORDERS_TOPIC", parked)?,
        None => StreamSource::kinesis(&aws, "ORDERS_STREAM", parked)?,
    };
    let guard = Guard::new(DynamoDbStore::from_env().await?, Operation::new("ship"), Tenant::parse("shop")?);
    lambda::run(Consumer::new(orders, KeyFrom::body("/orderId")).each(guard, ship)).await
}
