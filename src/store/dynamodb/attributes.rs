//! What the items of one record have in common.

use aws_sdk_dynamodb::types::AttributeValue;
use serde::Serialize;

use super::conditions::Attributes;
use crate::{
    key::RecordKey,
    store::{
        Result, StoreError,
        item::{PK, SCHEMA, SCHEMA_ATTRIBUTE, SK},
    },
};

/// The attributes of something that is stored as an item.
pub(super) fn form(stored: &impl Serialize) -> Result<Attributes> {
    serde_dynamo::to_item(stored).map_err(StoreError::refused)
}

/// The attributes that name an item of this record, and its version.
pub(super) fn named(key: &RecordKey, sk: String) -> Attributes {
    beside(key.partition_key(), sk)
}

/// The attributes that name an item with this partition key, and its version.
pub(super) fn beside(pk: String, sk: String) -> Attributes {
    Attributes::from([
        (PK.to_owned(), AttributeValue::S(pk)),
        (SK.to_owned(), AttributeValue::S(sk)),
        (SCHEMA_ATTRIBUTE.to_owned(), AttributeValue::N(SCHEMA.to_string())),
    ])
}
