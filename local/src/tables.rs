//! The tables of the functions, as the template deploys them.

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    operation::create_table::builders::CreateTableFluentBuilder,
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
        ProjectionType, ScalarAttributeType, TableDescription, TableStatus, TimeToLiveStatus,
    },
};
use lambda_idempotency::{internal::error_chain, store::dynamodb::table as records};
use std::{error::Error, time::Duration};
use tokio::time;

/// A DynamoDB that does not answer within this time counts as unreachable.
pub const REACH: Duration = Duration::from_secs(5);

/// The index of each day's payments.
const DAYS: &str = "days";

/// A table is active at once locally, and within seconds on AWS.
const TABLE_ACTIVE: Duration = Duration::from_secs(60);

/// Creates the table of records, with its stream and the index of unknown outcomes. Returns the stream's ARN.
pub async fn create_idempotency(client: &Client, name: &str) -> Result<String, String> {
    let table = create(client, name, Some(records::INDEX), records::create(client, name)).await?;
    expire_records(client, name).await?;
    let stream = table.latest_stream_arn.filter(|_| table.stream_specification.is_some());
    stream.ok_or_else(|| {
        format!("table {name} has no stream: delete it, or set TABLE_PREFIX to another prefix")
    })
}

/// Creates the table of payments, with the index of each day's payments.
pub async fn create_payments(client: &Client, name: &str) -> Result<(), String> {
    let days = GlobalSecondaryIndex::builder()
        .index_name(DAYS)
        .key_schema(key("day", KeyType::Hash))
        .key_schema(key("sk", KeyType::Range))
        .projection(Projection::builder().projection_type(ProjectionType::All).build())
        .build()
        .expect("an index is complete");
    let call = client
        .create_table()
        .table_name(name)
        .set_attribute_definitions(Some(["pk", "sk", "day"].map(attribute).into()))
        .key_schema(key("pk", KeyType::Hash))
        .key_schema(key("sk", KeyType::Range))
        .global_secondary_indexes(days)
        .billing_mode(BillingMode::PayPerRequest);
    create(client, name, Some(DAYS), call).await.map(|_| ())
}

/// Creates a table of one tenant's rows in each partition: accounts, or orders and stock.
pub async fn create_plain(client: &Client, name: &str) -> Result<(), String> {
    let call = client
        .create_table()
        .table_name(name)
        .set_attribute_definitions(Some(["pk", "sk"].map(attribute).into()))
        .key_schema(key("pk", KeyType::Hash))
        .key_schema(key("sk", KeyType::Range))
        .billing_mode(BillingMode::PayPerRequest);
    create(client, name, None, call).await.map(|_| ())
}

/// Sends the `call` that creates the table, waits until it is active, and checks that it has its index.
async fn create(
    client: &Client,
    name: &str,
    index: Option<&str>,
    call: CreateTableFluentBuilder,
) -> Result<TableDescription, String> {
    match call.send().await {
        Ok(_) => {}
        // It exists from an earlier run, or from another one at this moment.
        Err(error) if error.as_service_error().is_some_and(|e| e.is_resource_in_use_exception()) => {}
        Err(error) => return Err(format!("cannot create table {name}: {}", describe(&error))),
    }
    let table = time::timeout(TABLE_ACTIVE, active(client, name))
        .await
        .map_err(|_| format!("table {name} is not active after {} s", TABLE_ACTIVE.as_secs()))??;
    let Some(index) = index else { return Ok(table) };
    let mut indexes = table.global_secondary_indexes().iter();
    if indexes.any(|current| current.index_name() == Some(index)) {
        Ok(table)
    } else {
        Err(format!("table {name} lacks the index {index}: delete it, or set TABLE_PREFIX to another prefix"))
    }
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
async fn expire_records(client: &Client, table: &str) -> Result<(), String> {
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
    client
        .update_time_to_live()
        .table_name(table)
        .time_to_live_specification(records::time_to_live())
        .send()
        .await
        .map_err(|error| format!("cannot set the TTL of table {table}: {}", describe(&error)))?;
    Ok(())
}

fn attribute(name: &str) -> AttributeDefinition {
    AttributeDefinition::builder()
        .attribute_name(name)
        .attribute_type(ScalarAttributeType::S)
        .build()
        .expect("an attribute definition is complete")
}

fn key(name: &str, kind: KeyType) -> KeySchemaElement {
    KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("a key is complete")
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
