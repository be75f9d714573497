//! Body items. With them, a duplicate of a request with a 20 KB answer costs one write unit and a read, not twenty write units.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use bytes::Bytes;

use super::{Result, StoreError, attributes::named, conditions::Attributes};
use crate::{key::RecordKey, record::BodyId, time::Timestamp};

const BODY: &str = "body";

/// The prefix of their sort keys.
pub(super) const PREFIX: &str = "body#";

pub(super) fn sort_key(id: BodyId) -> String {
    format!("{PREFIX}{id}")
}

/// The id in a sort key.
pub(super) fn id(sort_key: &str) -> Option<BodyId> {
    sort_key.strip_prefix(PREFIX)?.parse().ok()
}

/// Without an expiry it stays until it is deleted.
pub(super) fn to_item(
    key: &RecordKey,
    id: BodyId,
    body: &Bytes,
    expires_at: Option<Timestamp>,
) -> Attributes {
    let mut item = named(key, sort_key(id));
    item.insert(BODY.to_owned(), AttributeValue::B(Blob::new(body.as_ref())));
    if let Some(expires_at) = expires_at {
        let expires_at = AttributeValue::N(expires_at.as_secs_rounded_up().to_string());
        item.insert("expires_at".to_owned(), expires_at);
    }
    item
}

/// The body in its item.
pub(super) fn body(mut item: Attributes) -> Result<Bytes> {
    match item.remove(BODY) {
        Some(AttributeValue::B(body)) => Ok(body.into_inner().into()),
        _ => Err(StoreError::unreadable("the body item has no body")),
    }
}
