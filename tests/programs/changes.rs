//! A consumer of a table's changes. It counts the effects of each change, in the transaction that completes it.

use std::{env, fs, io::Write, path::Path, time::Duration};

use lambda_idempotency::{
    DynamoDbStore, Execution, Failure, Guard, Operation,
    domain::Table,
    event::{Consumer, KeyFrom, StreamSource},
    key::Tenant,
    lambda,
};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Change {
    dynamodb: Images,
}

#[derive(Deserialize)]
struct Images {
    #[serde(rename = "NewImage")]
    new: Product,
}

#[derive(Deserialize)]
struct Product {
    id: Text,
    version: Text,
    /// A file: as long as it is there, the run of the change waits. A line is written to it when one begins.
    waits_for: Option<Text>,
}

#[derive(Deserialize)]
struct Text {
    #[serde(rename = "S")]
    text: String,
}

async fn wait_for(file: &Path) -> std::io::Result<()> {
    fs::OpenOptions::new().append(true).open(file.with_extension("begun"))?.write_all(b"begun\n")?;
    while file.exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

pub async fn run() -> Result<(), lambda::Error> {
    let effects = Table::new(env::var("EFFECTS_TABLE")?, "id");
    let count = move |execution: Execution, change: Change| {
        let effects = effects.clone();
        async move {
            let Product { id, version, waits_for } = change.dynamodb.new;
            if let Some(file) = waits_for {
                wait_for(Path::new(&file.text)).await?;
            }
            let key = json!({ "id": format!("{} {}", id.text, version.text) });
            execution.write(effects.update(key, "ADD runs :one").value(":one", 1))?;
            Ok::<_, Failure>(())
        }
    };
    // Short, because a test waits for it.
    let operation = Operation::new("count").effects_in_transaction().grace(Duration::from_millis(200));
    let guard = Guard::new(DynamoDbStore::from_env().await?, operation, Tenant::parse("shop")?);
    let table = StreamSource::dynamodb(&lambda::aws().await, "PRODUCTS_TABLE", "PARKED_QUEUE_URL")?;
    lambda::run(Consumer::new(table, KeyFrom::record_id()).each(guard, count)).await
}
