//! Reads the partitions of the index.

use aws_sdk_dynamodb::{operation::query::builders::QueryFluentBuilder, types::AttributeValue};

use super::{
    DynamoDbStore, StoreError,
    conditions::Attributes,
    table::{INDEX, RECONCILE_PLACE},
};
use crate::{
    key::{KeyHash, RecordKey},
    store::item::PK,
    time::Timestamp,
};

/// A tenant, as the index names it: its records' places begin with it.
pub(super) type TenantHash = String;

impl DynamoDbStore {
    pub(super) fn in_shard(&self, shard: &str) -> QueryFluentBuilder {
        let query = self.client.query().table_name(&*self.table).index_name(INDEX);
        query.expression_attribute_values(":shard", AttributeValue::S(shard.to_owned()))
    }
}

/// Comes before every place.
pub(super) const BEFORE_ALL: &str = " ";

/// Comes after this tenant's places, and before those of the next tenant.
pub(super) fn behind(tenant: &str) -> String {
    format!("{tenant}~")
}

/// The tenant and the time of an item. A time that cannot be read has come.
pub(super) fn place_of(item: &Attributes) -> (TenantHash, Timestamp) {
    let place = item.get(RECONCILE_PLACE).and_then(|place| place.as_s().ok()).map_or("", String::as_str);
    let (tenant, at) = place.split_once('#').unwrap_or((place, ""));
    (tenant.to_owned(), Timestamp::from_millis(at.parse().unwrap_or_default()))
}

pub(super) fn key_or_log(item: &Attributes) -> Option<RecordKey> {
    let pk = pk(item);
    let key = RecordKey::from_partition_key(pk);
    if key.is_none() {
        tracing::error!(key = %KeyHash::of(pk), "a key in the table cannot be read");
    }
    key
}

pub(super) fn pk(item: &Attributes) -> &str {
    item.get(PK).and_then(|pk| pk.as_s().ok()).map_or("", String::as_str)
}

pub(super) fn foreign_cursor() -> StoreError {
    StoreError::refused("the cursor was not made by this store")
}
