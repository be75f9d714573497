//! The conformance suite against every store.

use lambda_idempotency::store::{conformance, dynamodb::DynamoDbStore, memory::MemoryStore};

use crate::support::{client::client, on_each_store, tables};

on_each_store!(the_dynamodb_store_keeps_every_promise);

// R2, R7, R10, R12, R14, T1, T2, T15, T16, T20
async fn the_dynamodb_store_keeps_every_promise(endpoint: &str) {
    let client = client(endpoint);
    let table = tables::idempotency_table(&client).await;
    conformance::all(&DynamoDbStore::from_client(client, table)).await;
}

// R7
#[tokio::test]
async fn the_memory_store_keeps_every_promise() {
    conformance::all(&MemoryStore::new()).await;
}
