//! The tables of the functions, as the template deploys them.

use crate::template::Table;
use aws_sdk_dynamodb::{
    Client,
    error::{BuildError, ProvideErrorMetadata, SdkError},
    operation::create_table::builders::CreateTableFluentBuilder,
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, Projection,
        StreamSpecification, TableDescription, TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
    },
};
use lambda_idempotency::telemetry::error_chain;
use serde_json::Value;
use std::{error::Error, time::Duration};
use tokio::time;

/// A DynamoDB that does not answer within this time counts as unreachable.
pub const REACH: Duration = Duration::from_secs(5);

/// A table is active at once locally, and within seconds on AWS.
const TABLE_ACTIVE: Duration = Duration::from_secs(60);

/// Makes the table, if it is not there, and waits until it is active. Returns the ARN of its stream.
///
/// # Errors
/// If DynamoDB refuses it, or if the table that is there lacks an index or the stream.
pub async fn create(client: &Client, table: &Table) -> Result<Option<String>, String> {
    let Table { full_name: name, properties, .. } = table;
    let call = call(client, table).map_err(|error| format!("table {name}: {error}"))?;
    match call.send().await {
        Ok(_) => {}
        // It exists from an earlier run, or from another one at this moment.
        Err(error) if error.as_service_error().is_some_and(|e| e.is_resource_in_use_exception()) => {}
        Err(error) => return Err(format!("cannot create table {name}: {}", describe(&error))),
    }
    let there = time::timeout(TABLE_ACTIVE, active(client, name))
        .await
        .map_err(|_| format!("table {name} is not active after {} s", TABLE_ACTIVE.as_secs()))??;
    for index in indexes(properties) {
        let index = text(index, "IndexName");
        if !there.global_secondary_indexes().iter().any(|known| known.index_name() == Some(index)) {
            return Err(format!(
                "table {name} lacks the index {index}: delete it, or set TABLE_PREFIX to another prefix"
            ));
        }
    }
    if let Value::String(attribute) = &properties["TimeToLiveSpecification"]["AttributeName"] {
        expire_items(client, name, attribute).await?;
    }
    if properties["StreamSpecification"].is_null() {
        return Ok(None);
    }
    let stream = there.latest_stream_arn.filter(|_| there.stream_specification.is_some());
    stream.map(Some).ok_or_else(|| {
        format!("table {name} has no stream: delete it, or set TABLE_PREFIX to another prefix")
    })
}

/// The call that creates it.
fn call(client: &Client, table: &Table) -> Result<CreateTableFluentBuilder, BuildError> {
    let Table { full_name: name, properties, .. } = table;
    let mut call = client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .set_key_schema(Some(keys(properties)?));
    for attribute in list(properties, "AttributeDefinitions") {
        let kind = text(attribute, "AttributeType");
        let attribute = AttributeDefinition::builder().attribute_name(text(attribute, "AttributeName"));
        call = call.attribute_definitions(attribute.attribute_type(kind.into()).build()?);
    }
    for index in indexes(properties) {
        let projected = list(&index["Projection"], "NonKeyAttributes").iter().filter_map(Value::as_str);
        let projected = projected.map(str::to_owned).collect::<Vec<_>>();
        let projection = Projection::builder()
            .projection_type(text(&index["Projection"], "ProjectionType").into())
            .set_non_key_attributes(Some(projected).filter(|projected| !projected.is_empty()));
        let built = GlobalSecondaryIndex::builder()
            .index_name(text(index, "IndexName"))
            .set_key_schema(Some(keys(index)?))
            .projection(projection.build());
        call = call.global_secondary_indexes(built.build()?);
    }
    if let Value::String(view) = &properties["StreamSpecification"]["StreamViewType"] {
        let stream =
            StreamSpecification::builder().stream_enabled(true).stream_view_type(view.as_str().into());
        call = call.stream_specification(stream.build()?);
    }
    Ok(call)
}

fn keys(of: &Value) -> Result<Vec<KeySchemaElement>, BuildError> {
    let keys = list(of, "KeySchema").iter().map(|key| {
        let kind = text(key, "KeyType").into();
        KeySchemaElement::builder().attribute_name(text(key, "AttributeName")).key_type(kind).build()
    });
    keys.collect()
}

fn indexes(properties: &Value) -> &[Value] {
    list(properties, "GlobalSecondaryIndexes")
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

async fn active(client: &Client, name: &str) -> Result<TableDescription, String> {
    loop {
        let description = client
            .describe_table()
            .table_name(name)
            .send()
            .await
            .map_err(|error| format!("cannot describe table {name}: {}", describe(&error)))?;
        if let Some(table) = description.table
            && table.table_status == Some(TableStatus::Active)
        {
            return Ok(table);
        }
        time::sleep(Duration::from_millis(200)).await;
    }
}

/// Switches TTL on. It asks first, because enabling TTL twice is an error.
async fn expire_items(client: &Client, table: &str, attribute: &str) -> Result<(), String> {
    let described = client
        .describe_time_to_live()
        .table_name(table)
        .send()
        .await
        .map_err(|error| format!("cannot read the TTL of table {table}: {}", describe(&error)))?;
    let status = described.time_to_live_description().and_then(|ttl| ttl.time_to_live_status());
    if matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)) {
        return Ok(());
    }
    let expires = TimeToLiveSpecification::builder().enabled(true).attribute_name(attribute).build();
    let expires = expires.map_err(|error| format!("table {table}: {error}"))?;
    client
        .update_time_to_live()
        .table_name(table)
        .time_to_live_specification(expires)
        .send()
        .await
        .map_err(|error| format!("cannot set the TTL of table {table}: {}", describe(&error)))?;
    Ok(())
}

/// The error in one line.
fn describe<E: ProvideErrorMetadata + Error + 'static>(error: &SdkError<E>) -> String {
    match error {
        SdkError::TimeoutError(_) => format!("no answer within {} s", REACH.as_secs()),
        SdkError::ServiceError(answer) if answer.err().code().is_none() => {
            format!("HTTP {}, which is not an answer of DynamoDB", answer.raw().status())
        }
        _ => error_chain(error),
    }
}
