//! Body items. With them, a duplicate of a request with a 20 KB answer costs one write unit and a read, not twenty write units.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use bytes::Bytes;

use super::{Result, StoreError, attributes::named, conditions::Attributes};
use crate::{key::RecordKey, record::BodyId, time::Timestamp};

const BODY: &str = "body";

pub(super) fn sort_key(id: BodyId) -> String {
    format!("body#{id}")
}

pub(super) fn to_item(key: &RecordKey, id: BodyId, body: &Bytes, expires_at: Timestamp) -> Attributes {
    let expires_at = expires_at.as_secs_rounded_up();
    let mut item = named(key, sort_key(id));
    item.insert(BODY.to_owned(), AttributeValue::B(Blob::new(body.as_ref())));
    item.insert("expires_at".to_owned(), AttributeValue::N(expires_at.to_string()));
    item
}

/// The body in its item.
pub(super) fn body(mut item: Attributes) -> Result<Bytes> {
    match item.remove(BODY) {
        Some(AttributeValue::B(body)) => Ok(body.into_inner().into()),
        _ => Err(StoreError::unreadable("the body item has no body")),
    }
}
