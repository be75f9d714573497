//! Tables as the template deploys them, one a test.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::client::Waiters;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, StreamSpecification, StreamViewType, TimeToLiveSpecification,
};
use lambda_idempotency::store::dynamodb::RECONCILE_INDEX;
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
    client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(vec![
            attribute("pk", ScalarAttributeType::S),
            attribute("sk", ScalarAttributeType::S),
            attribute("reconcile_shard", ScalarAttributeType::S),
            attribute("reconcile_at", ScalarAttributeType::N),
        ]))
        .set_key_schema(Some(vec![key("pk", KeyType::Hash), key("sk", KeyType::Range)]))
        .global_secondary_indexes(
            GlobalSecondaryIndex::builder()
                .index_name(RECONCILE_INDEX)
                .key_schema(key("reconcile_shard", KeyType::Hash))
                .key_schema(key("reconcile_at", KeyType::Range))
                .projection(Projection::builder().projection_type(ProjectionType::All).build())
                .build()
                .expect("the index's definition is complete"),
        )
        .stream_specification(
            StreamSpecification::builder()
                .stream_enabled(true)
                .stream_view_type(StreamViewType::NewAndOldImages)
                .build()
                .expect("the stream's specification is complete"),
        )
        .send()
        .await
        .unwrap_or_else(|error| panic!("table {name} could not be created: {error:?}"));
    client
        .wait_until_table_exists()
        .table_name(name)
        .wait(READY_WITHIN)
        .await
        .unwrap_or_else(|error| panic!("table {name} did not become active: {error:?}"));
    client
        .update_time_to_live()
        .table_name(name)
        .time_to_live_specification(
            TimeToLiveSpecification::builder()
                .attribute_name("expires_at")
                .enabled(true)
                .build()
                .expect("the time to live's specification is complete"),
        )
        .send()
        .await
        .unwrap_or_else(|error| panic!("table {name} got no time to live: {error:?}"));
}

fn attribute(name: &str, kind: ScalarAttributeType) -> AttributeDefinition {
    AttributeDefinition::builder()
        .attribute_name(name)
        .attribute_type(kind)
        .build()
        .expect("the attribute's definition is complete")
}

fn key(name: &str, kind: KeyType) -> KeySchemaElement {
    KeySchemaElement::builder()
        .attribute_name(name)
        .key_type(kind)
        .build()
        .expect("the key's definition is complete")
}
