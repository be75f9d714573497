//! A DynamoDB store that interferes with its own writes. Everything else goes straight to the table.

use bytes::Bytes;
use lambda_idempotency::{
    async_trait,
    key::RecordKey,
    record::{BodyId, Place, Record, Revision},
    store::{AuditLine, Companion, Store, StoreError, WriteOutcome, dynamodb::DynamoDbStore},
    time::Timestamp,
};

/// What happens to writes. By default, nothing.
#[async_trait]
pub trait Meddling: Send + Sync + 'static {
    fn store(&self) -> &DynamoDbStore;

    async fn put(
        &self,
        seen: Option<Revision>,
        record: &Record,
        with: &[Companion],
    ) -> Result<WriteOutcome, StoreError> {
        self.store().put(seen, record, with).await
    }
}

/// The store for an executor.
pub struct Meddled<M>(pub M);

#[async_trait]
impl<M: Meddling> Store for Meddled<M> {
    async fn put(
        &self,
        seen: Option<Revision>,
        record: &Record,
        with: &[Companion],
    ) -> Result<WriteOutcome, StoreError> {
        self.0.put(seen, record, with).await
    }

    fn retry_budget(&self) -> Option<&lambda_idempotency::store::RetryBudget> {
        self.0.store().retry_budget()
    }

    fn records_table(&self) -> Option<&str> {
        self.0.store().records_table()
    }

    async fn load(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.0.store().load(key).await
    }

    fn body_capacity(&self, record: &Record) -> usize {
        self.0.store().body_capacity(record)
    }

    async fn keep_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        body: Bytes,
        until: Timestamp,
    ) -> Result<Option<Place>, StoreError> {
        self.0.store().keep_body(key, id, body, until).await
    }

    async fn load_body(&self, key: &RecordKey, id: BodyId, at: Place) -> Result<Option<Bytes>, StoreError> {
        self.0.store().load_body(key, id, at).await
    }

    async fn audit(&self, key: &RecordKey, id: Revision, line: &AuditLine) -> Result<(), StoreError> {
        self.0.store().audit(key, id, line).await
    }

    async fn audit_lines(&self, key: &RecordKey) -> Result<Vec<AuditLine>, StoreError> {
        self.0.store().audit_lines(key).await
    }
}
