//! References: items that lead from a provider's id to a record. They lie outside every tenant's partitions.

use aws_sdk_dynamodb::types::AttributeValue;

use super::{DynamoDbStore, PK, Result, SK, StoreError, conditions, conditions::Attributes};
use crate::{key::RecordKey, record::Reference, time::Timestamp};

/// The sort key of a reference.
const REFERENCE: &str = "reference";

/// The attribute with the record's partition key.
const RECORD_KEY: &str = "record_key";

impl DynamoDbStore {
    pub(super) async fn put_reference(
        &self,
        reference: &Reference,
        key: &RecordKey,
        expires_at: Timestamp,
    ) -> Result<()> {
        let text = |text: String| AttributeValue::S(text);
        let item = Attributes::from([
            (PK.to_owned(), text(reference.partition_key())),
            (SK.to_owned(), text(REFERENCE.to_owned())),
            (RECORD_KEY.to_owned(), text(key.partition_key())),
            ("expires_at".to_owned(), AttributeValue::N(expires_at.as_secs_rounded_up().to_string())),
        ]);
        match conditions::put(&self.writes, &self.table, None, item).await? {
            Ok(()) => Ok(()),
            // An earlier execution, or a request whose answer was lost.
            Err(current) if current.as_ref().and_then(record_key).as_ref() == Some(key) => Ok(()),
            Err(_) => Err(StoreError::refused("the reference leads to another record")),
        }
    }

    pub(super) async fn get_reference(&self, reference: &Reference) -> Result<Option<RecordKey>> {
        let Some(item) = self.item(&reference.partition_key(), REFERENCE).await? else { return Ok(None) };
        let key = record_key(&item);
        key.map(Some).ok_or_else(|| StoreError::unreadable("the reference names no record"))
    }
}

fn record_key(item: &Attributes) -> Option<RecordKey> {
    RecordKey::from_partition_key(item.get(RECORD_KEY)?.as_s().ok()?)
}
