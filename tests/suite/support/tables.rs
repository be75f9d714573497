//! Tables as the template deploys them, one a test.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::client::Waiters;
use lambda_idempotency::store::dynamodb::table;
use std::time::Duration;
use uuid::Uuid;

const READY_WITHIN: Duration = Duration::from_secs(30);

/// Creates an idempotency table of the caller's own and returns its name.
pub async fn idempotency_table(client: &Client) -> String {
    let name = format!("idempotency-{}", Uuid::new_v4());
    create_idempotency_table(client, &name).await;
    name
}

/// Creates an idempotency table with this name: keys, index, time to live and stream.
pub async fn create_idempotency_table(client: &Client, name: &str) {
    let created = table::create(client, name).send().await;
    created.unwrap_or_else(|error| panic!("table {name} could not be created: {error:?}"));
    client
        .wait_until_table_exists()
        .table_name(name)
        .wait(READY_WITHIN)
        .await
        .unwrap_or_else(|error| panic!("table {name} did not become active: {error:?}"));
    let time_to_live = client.update_time_to_live().table_name(name);
    let time_to_live = time_to_live.time_to_live_specification(table::time_to_live()).send().await;
    time_to_live.unwrap_or_else(|error| panic!("table {name} got no time to live: {error:?}"));
}
