//! The conformance suite against every store.

use lambda_idempotency::{
    domain::Table,
    store::{conformance, dynamodb::DynamoDbStore, memory::MemoryStore},
};
use macro_rules_attribute::apply;

use crate::support::{client::client, on_each_store, tables};

async fn dynamodb(endpoint: &str) -> DynamoDbStore {
    let client = client(endpoint);
    let table = tables::idempotency_table(&client).await;
    DynamoDbStore::from_client(client, table)
}

// T1, T2, T15, T16, T20
#[apply(on_each_store)]
async fn the_dynamodb_store_keeps_every_promise(endpoint: &str) {
    conformance::all(&dynamodb(endpoint).await).await;
}

#[apply(on_each_store)]
async fn the_dynamodb_store_finds_unsettled_records(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    conformance::unsettled(&store).await;
    conformance::references(&store).await;
}

// T63
#[apply(on_each_store)]
async fn the_dynamodb_store_keeps_messages_until_they_are_removed(endpoint: &str) {
    conformance::outbox(&dynamodb(endpoint).await).await;
}

// T10, T11
#[apply(on_each_store)]
async fn the_dynamodb_store_commits_domain_writes_with_their_record(endpoint: &str) {
    let accounts = tables::domain_table(&client(endpoint)).await;
    conformance::domain_writes(&dynamodb(endpoint).await, &accounts).await;
}

#[tokio::test]
async fn the_memory_store_keeps_every_promise() {
    conformance::all(&MemoryStore::new()).await;
}

#[tokio::test]
async fn the_memory_store_finds_unsettled_records() {
    conformance::unsettled(&MemoryStore::new()).await;
    conformance::references(&MemoryStore::new()).await;
    conformance::outbox(&MemoryStore::new()).await;
}

#[tokio::test]
async fn the_memory_store_commits_domain_writes_with_their_record() {
    conformance::domain_writes(&MemoryStore::new(), &Table::new("accounts", "id")).await;
}
