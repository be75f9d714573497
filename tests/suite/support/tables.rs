//! Tables as the template deploys them, one for each test.

use super::client::client;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::client::Waiters;
use aws_sdk_dynamodb::operation::create_table::CreateTableOutput;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, TableStatus,
};
use lambda_idempotency::domain::Table;
use lambda_idempotency::store::dynamodb::table;
use std::time::Duration;
use uuid::Uuid;

const READY_WITHIN: Duration = Duration::from_secs(180);

/// Creates a new idempotency table and returns its name.
pub async fn idempotency_table(client: &Client) -> String {
    let name = format!("idempotency-{}", Uuid::new_v4());
    create_idempotency_table(client, &name).await;
    name
}

/// Creates an idempotency table with this name: keys, index, time to live and stream.
pub async fn create_idempotency_table(client: &Client, name: &str) {
    let created = table::create(client, name).send().await;
    let created = created.unwrap_or_else(|error| panic!("table {name} could not be created: {error:?}"));
    until_active(client, name, created).await;
    let time_to_live = client.update_time_to_live().table_name(name);
    let time_to_live = time_to_live.time_to_live_specification(table::time_to_live()).send().await;
    time_to_live.unwrap_or_else(|error| panic!("table {name} got no time to live: {error:?}"));
}

/// Waits for a new table. The stores of the tests return it active, and then it is not asked for again.
async fn until_active(client: &Client, name: &str, created: CreateTableOutput) {
    let status = created.table_description.and_then(|table| table.table_status);
    if status != Some(TableStatus::Active) {
        let ready = client.wait_until_table_exists().table_name(name).wait(READY_WITHIN).await;
        ready.unwrap_or_else(|error| panic!("table {name} did not become active: {error:?}"));
    }
}

/// Creates a table of the user's, with the string `id` as its key.
pub async fn domain_table(client: &Client) -> Table {
    let name = format!("domain-{}", Uuid::new_v4());
    let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let created = client
        .create_table()
        .table_name(&name)
        .attribute_definitions(id.build().expect("an attribute"))
        .key_schema(key.build().expect("a key"))
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await;
    let created = created.unwrap_or_else(|error| panic!("table {name} could not be created: {error:?}"));
    until_active(client, &name, created).await;
    Table::new(name, "id")
}

/// Creates a table with the index `days`, as those of payments and of orders, and returns its name.
pub async fn ledger_table(endpoint: &str) -> String {
    let name = format!("ledger-{}", Uuid::new_v4());
    let text = |name| {
        let text = AttributeDefinition::builder().attribute_name(name);
        text.attribute_type(ScalarAttributeType::S).build().unwrap()
    };
    let key = |name, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
    let days = GlobalSecondaryIndex::builder().index_name("days");
    let days = days.set_key_schema(Some(vec![key("day", KeyType::Hash), key("sk", KeyType::Range)]));
    let days = days.projection(Projection::builder().projection_type(ProjectionType::All).build());
    let table = client(endpoint).create_table().table_name(&name).billing_mode(BillingMode::PayPerRequest);
    let table = table.set_attribute_definitions(Some(["pk", "sk", "day"].map(text).into()));
    let table = table.set_key_schema(Some(vec![key("pk", KeyType::Hash), key("sk", KeyType::Range)]));
    table.global_secondary_indexes(days.build().unwrap()).send().await.expect("a table with the index");
    name
}
