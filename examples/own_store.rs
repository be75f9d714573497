//! A custom store, and the suite that it must pass: `cargo run --example own_store --features conformance`.
//!
//! This one keeps records in memory and prints each write. A real one must keep the promises of `Store`: `put` writes only if the
//! record still has the revision that was seen, or if there is still none.

use bytes::Bytes;
use lambda_idempotency::{
    MemoryStore, async_trait,
    key::RecordKey,
    record::{BodyId, Place, Record, Revision},
    store::{AuditLine, Companion, Store, StoreError, WriteOutcome, conformance},
    time::Timestamp,
};

struct Printing(MemoryStore);

#[async_trait]
impl Store for Printing {
    async fn put(
        &self,
        seen: Option<Revision>,
        record: &Record,
        with: &[Companion],
    ) -> Result<WriteOutcome, StoreError> {
        println!("put {:?}: {}", record.key, record.state.name());
        self.0.put(seen, record, with).await
    }

    fn retry_budget(&self) -> Option<&lambda_idempotency::store::RetryBudget> {
        self.0.retry_budget()
    }

    fn records_table(&self) -> Option<&str> {
        self.0.records_table()
    }

    async fn load(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.0.load(key).await
    }

    fn body_capacity(&self, record: &Record) -> usize {
        self.0.body_capacity(record)
    }

    async fn keep_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        body: Bytes,
        expires_at: Timestamp,
    ) -> Result<Option<Place>, StoreError> {
        self.0.keep_body(key, id, body, expires_at).await
    }

    async fn load_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        place: Place,
    ) -> Result<Option<Bytes>, StoreError> {
        self.0.load_body(key, id, place).await
    }

    async fn audit(&self, key: &RecordKey, id: Revision, line: &AuditLine) -> Result<(), StoreError> {
        self.0.audit(key, id, line).await
    }

    async fn audit_lines(&self, key: &RecordKey) -> Result<Vec<AuditLine>, StoreError> {
        self.0.audit_lines(key).await
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    conformance::all(&Printing(MemoryStore::new())).await;
    println!("it keeps every promise");
}
