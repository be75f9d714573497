//! Defines the table, for development and tests. A test compares the template with it.
//!
//! 1. [`create`] makes the table: keys `pk` and `sk`, the index [`INDEX`], and a stream with both images, paid by request.
//! 2. [`time_to_live`] makes DynamoDB delete settled records once they have expired.
//!
//! It is not for production: deploy the template instead (see docs/deploy.md in the repository).

use aws_sdk_dynamodb::{
    Client,
    operation::create_table::builders::CreateTableFluentBuilder,
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
        ProjectionType, ScalarAttributeType, StreamSpecification, StreamViewType, TimeToLiveSpecification,
    },
};

use crate::store::item::{PK, SK};

/// The sparse index, which contains only unknown outcomes and operations between workers: by partition, then by tenant, then by the
/// time when reconciliation looks at them next.
pub const INDEX: &str = "reconcile";

/// The keys of that index.
pub(super) const RECONCILE_SHARD: &str = "reconcile_shard";
pub(super) const RECONCILE_PLACE: &str = "reconcile_place";

/// The time-to-live attribute.
const EXPIRES_AT: &str = "expires_at";

/// The names and types of the key attributes.
const ATTRIBUTES: [(&str, ScalarAttributeType); 4] = [
    (PK, ScalarAttributeType::S),
    (SK, ScalarAttributeType::S),
    (RECONCILE_SHARD, ScalarAttributeType::S),
    (RECONCILE_PLACE, ScalarAttributeType::S),
];

/// The call that creates a table for records, paid by request, with keys, index and stream. Time to live is set separately:
/// see [`time_to_live`].
///
/// ```no_run
/// use lambda_idempotency::store::dynamodb::table;
///
/// # async fn example(client: aws_sdk_dynamodb::Client) -> Result<(), aws_sdk_dynamodb::Error> {
/// table::create(&client, "idempotency").send().await?;
/// let ttl = client.update_time_to_live().table_name("idempotency");
/// ttl.time_to_live_specification(table::time_to_live()).send().await?;
/// # Ok(())
/// # }
/// ```
pub fn create(client: &Client, table: &str) -> CreateTableFluentBuilder {
    let attribute = |(name, kind): (&str, ScalarAttributeType)| {
        built(AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build())
    };
    let key =
        |name: &str, kind| built(KeySchemaElement::builder().attribute_name(name).key_type(kind).build());
    // Unknown records have no body, so all attributes cost little.
    let projection = Projection::builder().projection_type(ProjectionType::All).build();
    let index = GlobalSecondaryIndex::builder()
        .index_name(INDEX)
        .key_schema(key(RECONCILE_SHARD, KeyType::Hash))
        .key_schema(key(RECONCILE_PLACE, KeyType::Range))
        .projection(projection);
    let stream =
        StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::NewAndOldImages);
    client
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(ATTRIBUTES.into_iter().map(attribute).collect()))
        .key_schema(key(PK, KeyType::Hash))
        .key_schema(key(SK, KeyType::Range))
        .global_secondary_indexes(built(index.build()))
        .stream_specification(built(stream.build()))
}

/// The time-to-live setting by which DynamoDB deletes expired records.
pub fn time_to_live() -> TimeToLiveSpecification {
    built(TimeToLiveSpecification::builder().enabled(true).attribute_name(EXPIRES_AT).build())
}

/// A part of the definition. All its required fields are set above.
fn built<T, E: std::fmt::Debug>(part: Result<T, E>) -> T {
    part.expect("each part of the table's definition is complete")
}
