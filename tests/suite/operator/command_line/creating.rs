//! `create-table`: for development.

use std::time::Duration;

use aws_sdk_dynamodb::client::Waiters;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, StreamSpecification,
    StreamViewType, TimeToLiveSpecification, TimeToLiveStatus,
};
use lambda_idempotency::store::dynamodb::{DynamoDbStore, table};
use macro_rules_attribute::apply;
use serde_json::json;
use uuid::Uuid;

use crate::support::{client::client, command::CommandLine, on_each_store};

fn named(endpoint: &str) -> (String, CommandLine) {
    let name = format!("created-{}", Uuid::new_v4());
    let cli = CommandLine::new(endpoint, &name);
    (name, cli)
}

#[apply(on_each_store)]
async fn functions_accept_a_created_table(endpoint: &str) {
    let (name, cli) = named(endpoint);
    cli.run(&["list"]).await.assert_refused(1, &name);
    assert_eq!(cli.json(&["create-table"]).await, json!({ "table": name, "created": true }));
    DynamoDbStore::from_client(client(endpoint), name.as_str()).check().await.expect("nothing is wrong");
    assert_eq!(cli.json(&["list"]).await, json!([]), "it has the index");
    let described = client(endpoint).describe_time_to_live().table_name(&name).send().await.unwrap();
    let expires = described.time_to_live_description().unwrap();
    assert_eq!(expires.attribute_name(), Some("expires_at"));
    assert!(matches!(
        expires.time_to_live_status(),
        Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
    ));
    // The second time, with readable output.
    assert_eq!(cli.json(&["create-table"]).await, json!({ "table": name, "created": false }));
    let again = cli.run(&["create-table"]).await;
    assert!(again.code == Some(0) && again.stdout.contains("already complete"), "{again:?}");
    cli.run(&["create-table", "--table", ""]).await.assert_refused(2, "which table?");
    cli.run(&["create-table", "--table", "no name"]).await.assert_refused(1, "");
}

#[apply(on_each_store)]
async fn a_table_of_another_shape_is_refused_with_the_differences(endpoint: &str) {
    let client = client(endpoint);
    let definition = |name: &str, kind| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap()
    };
    let key =
        |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
    let text = ScalarAttributeType::S;

    let (name, cli) = named(endpoint);
    let other = client.create_table().table_name(&name).billing_mode(BillingMode::PayPerRequest);
    let other =
        other.attribute_definitions(definition("id", text.clone())).key_schema(key("id", KeyType::Hash));
    other.send().await.expect("a table of another owner");
    cli.run(&["create-table"]).await.assert_refused(3, "other keys than `pk` and `sk`");

    let (name, cli) = named(endpoint);
    let other = client.create_table().table_name(&name).billing_mode(BillingMode::PayPerRequest);
    let other =
        other.attribute_definitions(definition("pk", text.clone())).key_schema(key("pk", KeyType::Hash));
    let other = other.attribute_definitions(definition("sk", text)).key_schema(key("sk", KeyType::Range));
    other.send().await.expect("a table without its index");
    cli.run(&["create-table"]).await.assert_refused(3, "no index `reconcile`");

    let (name, cli) = named(endpoint);
    let images = StreamSpecification::builder().stream_enabled(true);
    let images = images.stream_view_type(StreamViewType::KeysOnly).build().unwrap();
    table::create(&client, &name)
        .stream_specification(images)
        .send()
        .await
        .expect("a table with another stream");
    cli.run(&["create-table"]).await.assert_refused(3, "no stream of new and old images");

    let (name, cli) = named(endpoint);
    table::create(&client, &name).send().await.expect("a table that deletes by something else");
    client.wait_until_table_exists().table_name(&name).wait(Duration::from_secs(30)).await.unwrap();
    let other =
        TimeToLiveSpecification::builder().enabled(true).attribute_name("deleted_at").build().unwrap();
    client.update_time_to_live().table_name(&name).time_to_live_specification(other).send().await.unwrap();
    cli.run(&["create-table"]).await.assert_refused(3, "time to live is not on `expires_at`");
}
