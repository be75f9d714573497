//! Body items. With them, a duplicate of a request with a 20 KB answer costs one write unit and a read, not twenty write units.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use bytes::Bytes;

use super::{Result, StoreError, attributes::named, conditions::Attributes};
use crate::{key::RecordKey, record::BodyId, time::Timestamp};

const BODY: &str = "body";

/// Since when an accepted request is kept, in milliseconds since 1970.
const KEPT_AT: &str = "kept_at";

/// The prefix of their sort keys.
pub(super) const PREFIX: &str = "body#";

pub(super) fn sort_key(id: BodyId) -> String {
    format!("{PREFIX}{id}")
}

/// The id in a sort key.
pub(super) fn id(sort_key: &str) -> Option<BodyId> {
    sort_key.strip_prefix(PREFIX)?.parse().ok()
}

/// A body that time to live deletes.
pub(super) fn to_item(key: &RecordKey, id: BodyId, body: &Bytes, expires_at: Timestamp) -> Attributes {
    with(key, id, body, "expires_at", expires_at.as_secs_rounded_up())
}

/// An accepted request, or a report beside its record, which stays until it is deleted.
pub(super) fn of_request(key: &RecordKey, id: BodyId, body: &Bytes, kept_at: Timestamp) -> Attributes {
    with(key, id, body, KEPT_AT, kept_at.as_millis())
}

fn with(key: &RecordKey, id: BodyId, body: &Bytes, name: &str, number: u64) -> Attributes {
    let mut item = named(key, sort_key(id));
    item.insert(BODY.to_owned(), AttributeValue::B(Blob::new(body.as_ref())));
    item.insert(name.to_owned(), AttributeValue::N(number.to_string()));
    item
}

/// The body in its item.
pub(super) fn body(mut item: Attributes) -> Result<Bytes> {
    match item.remove(BODY) {
        Some(AttributeValue::B(body)) => Ok(body.into_inner().into()),
        _ => Err(StoreError::unreadable("the body item has no body")),
    }
}
