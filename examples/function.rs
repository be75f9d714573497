//! Any async function behind the guard: `cargo run --example function`.

use lambda_idempotency::{Execution, Failure, Guard, MemoryStore, Operation, Ran, key::Tenant};
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize)]
struct Parcel {
    to: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Label(String);

async fn ship(execution: Execution, parcel: Parcel) -> Result<Label, Failure> {
    println!("a parcel to {} is shipped", parcel.to);
    Ok(Label(execution.downstream_key("carrier")))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let guard = Guard::new(MemoryStore::new(), Operation::new("ship"), Tenant::parse("shop")?);
    for to in ["Bern", "Bern", "Basel"] {
        match guard.run(&["order-1"], Parcel { to: to.to_owned() }, ship).await {
            Ok(Ran { value: Label(label), how, .. }) => {
                println!("{label}, {}", if how.is_replay() { "replayed" } else { "executed" })
            }
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}
