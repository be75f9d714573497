//! Body items. With them, a duplicate of a request with a 20 KB answer costs one write unit and a read, not twenty write units.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use bytes::Bytes;

use super::{
    DynamoDbStore, StoreError, StoreErrorKind,
    conditions::{self, Condition},
    named,
};
use crate::{key::RecordKey, record::BodyId, time::Timestamp};

pub(super) fn sort_key(id: BodyId) -> String {
    format!("body#{id}")
}

impl DynamoDbStore {
    /// Writes the body if there is none. Its id is unique to its writer, so an existing item is the same body, written by a request
    /// whose answer was lost.
    pub(super) async fn put_body_item(
        &self,
        key: &RecordKey,
        id: BodyId,
        body: &Bytes,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        let expires_at = expires_at.as_secs_rounded_up();
        let mut item = named(key, sort_key(id));
        item.insert("body".to_owned(), AttributeValue::B(Blob::new(body.as_ref())));
        item.insert("expires_at".to_owned(), AttributeValue::N(expires_at.to_string()));
        conditions::put(&self.client, &self.table, Condition::Absent, item).await.map(|_| ())
    }

    pub(super) async fn load_body_item(
        &self,
        key: &RecordKey,
        id: BodyId,
    ) -> Result<Option<Bytes>, StoreError> {
        let Some(mut item) = self.item(&key.partition_key(), &sort_key(id)).await? else {
            return Ok(None);
        };
        match item.remove("body") {
            Some(AttributeValue::B(body)) => Ok(Some(body.into_inner().into())),
            _ => Err(StoreError::new(StoreErrorKind::Unreadable, "the body item has no body")),
        }
    }
}
