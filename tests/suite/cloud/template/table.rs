//! The deployed table is the one that the library defines. All tests run on it.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::{AttributeDefinition, KeySchemaElement};
use serde_json::Value;

use super::{list, resource};
use crate::support::{client::client, embedded, tables::idempotency_table};

/// A list of objects as strings `first second`.
fn pairs(value: &Value, first: &str, second: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    list(value).iter().map(|pair| format!("{} {}", text(&pair[first]), text(&pair[second]))).collect()
}

fn key_schema(value: &Value) -> Vec<String> {
    pairs(&value["KeySchema"], "AttributeName", "KeyType")
}

fn keys(schema: &[KeySchemaElement]) -> Vec<String> {
    schema.iter().map(|key| format!("{} {}", key.attribute_name(), key.key_type())).collect()
}

fn attributes(definitions: &[AttributeDefinition]) -> BTreeSet<String> {
    let text = |attribute: &AttributeDefinition| {
        format!("{} {}", attribute.attribute_name(), attribute.attribute_type())
    };
    definitions.iter().map(text).collect()
}

#[tokio::test]
async fn the_template_defines_the_table_that_the_library_creates() {
    let client = client(embedded::endpoint());
    let name = idempotency_table(&client).await;
    let described = client.describe_table().table_name(&name).send().await.expect("the table is described");
    let table = described.table.expect("the table exists");
    let ttl = client.describe_time_to_live().table_name(&name).send().await.expect("it has a time to live");
    let ttl = ttl.time_to_live_description.expect("a description");

    let template = resource("AWS::DynamoDB::Table", "IdempotencyTable");
    let defined = pairs(&template["AttributeDefinitions"], "AttributeName", "AttributeType");
    assert_eq!(defined.into_iter().collect::<BTreeSet<_>>(), attributes(table.attribute_definitions()));
    assert_eq!(key_schema(&template), keys(table.key_schema()));

    let [index] = list(&template["GlobalSecondaryIndexes"])[..] else { panic!("{template}") };
    let [created] = table.global_secondary_indexes() else { panic!("{table:?}") };
    assert_eq!(index["IndexName"].as_str(), created.index_name());
    assert_eq!(key_schema(index), keys(created.key_schema()));
    let projection = created.projection().and_then(|projection| projection.projection_type());
    let projection = projection.map(|projection| projection.as_str());
    assert_eq!(index["Projection"]["ProjectionType"].as_str(), projection);

    let stream = table.stream_specification().expect("a stream");
    assert!(stream.stream_enabled());
    let view = stream.stream_view_type().map(|view| view.as_str());
    assert_eq!(template["StreamSpecification"]["StreamViewType"].as_str(), view);

    let time_to_live = &template["TimeToLiveSpecification"];
    assert_eq!(time_to_live["AttributeName"].as_str(), ttl.attribute_name());
    assert_eq!(time_to_live["Enabled"], true);
    assert_eq!(ttl.time_to_live_status().map(|status| status.as_str()), Some("ENABLED"));

    let billing = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
    assert_eq!(template["BillingMode"].as_str(), billing.map(|mode| mode.as_str()));
}

// T29: with an existing table, the stack does not create a new one, in which all keys would be unknown.
#[test]
fn the_table_outlives_its_stack_and_can_be_an_existing_one() {
    let template = super::template(super::IDEMPOTENCY);
    let table = &template["Resources"]["IdempotencyTable"];
    assert_eq!(table["DeletionPolicy"], "Retain");
    assert_eq!(table["UpdateReplacePolicy"], "Retain");
    assert_eq!(table["Condition"], "MakesTable");
    // An empty table must be an explicit choice.
    assert!(super::template(super::SAMPLE)["Parameters"]["ExistingTableName"]["Default"].is_null());
    // Every use of the stack's own table must name its replacement.
    let own = |text: &str| text.contains("IdempotencyTable.") || text.contains("Ref IdempotencyTable");
    let lines = super::text("infra/idempotency.yaml");
    let lines: Vec<_> = lines.lines().collect();
    let mut uses = 0;
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| own(line)) {
        let chosen = line.contains("!If [MakesTable") || lines[at - 1].trim() == "- MakesTable";
        assert!(chosen, "{line}");
        uses += 1;
    }
    assert_eq!(uses, 13);
}
