//! The consumer of a stream, as a Lambda function: `cargo build --features lambda --example stream`.
//!
//! The local cloud runs it with a stream of Kinesis by `pollers/example/template.yaml`.

use lambda_idempotency::event::{Consumer, KeyFrom, StreamSource};
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
    let guard = Guard::new(DynamoDbStore::from_env().await?, Operation::new("ship"), Tenant::parse("shop")?);
    let stream = StreamSource::kinesis(&lambda::aws().await, "ORDERS_STREAM", "ORDERS_PARKED_QUEUE_URL")?;
    lambda::run(Consumer::new(stream, KeyFrom::body("/orderId")).each(guard, ship)).await
}
