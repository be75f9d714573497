//! A function that is invoked directly, with a payload as Lambda hands it over: `cargo run --example invocation`.

use lambda_http::{Context, Error, LambdaEvent, tower::Service};
use lambda_idempotency::event::{KeyFrom, invocation};
use lambda_idempotency::{Execution, Failure, Guard, MemoryStore, Operation, key::Tenant};
use serde_json::{Value, json};

async fn ship(execution: Execution, order: Value) -> Result<Value, Failure> {
    println!("{} is shipped, attempt {}", order["orderId"], execution.attempts());
    Ok(json!({ "order": order["orderId"] }))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let guard = Guard::new(MemoryStore::new(), Operation::new("ship"), Tenant::parse("shop")?);
    let mut function = invocation(guard, KeyFrom::body("/orderId"), ship);
    // In a function: `lambda::run(function).await`.
    for payload in [r#"{"orderId":"o-1"}"#, r#"{"orderId":"o-1"}"#, r#"{"orderId":""}"#] {
        let event = LambdaEvent::new(serde_json::from_str(payload)?, Context::default());
        match function.call(event).await {
            Ok(shipped) => println!("{shipped}"),
            Err(error) => println!("{}: {}", error.error_type, error.error_message),
        }
    }
    Ok(())
}
