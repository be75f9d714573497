//! Stores keep records: a conditional write and a read.
//!
//! 1. A [`Store`] inserts a record if there is none, swaps it if its revision is still the one seen, and loads it. A write
//!    that is refused returns the current record.
//! 2. It also keeps bodies that are too large for their record, and audit lines.
//! 3. A write may have [companions](Companion), which are written in the same transaction or not at all.
//! 4. [`Unsettled`] finds the records that are not settled, and keeps the [`Checkpoint`] of a job that reads all records. It also keeps the
//!    operators' [`NotFoundSwitch`].
//! 5. [`Outbox`] has the messages that are not delivered yet.
//! 6. [`Tenants`] keeps the rules of tenants, and how much each uses.
//! 7. A record is stored as an [`Item`] in every store and in every queue: one form, with one version number.
//!
//! It does not decide what may be written, and it does not retry: see [`record`](crate::record) and [`engine`](crate::engine).
//! Stores are trait objects, like queues, worlds and reconcilers. The indirection costs nothing next to a network call, and the
//! code above needs no type parameters.

mod audit;
mod checkpoint;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
mod error;
mod item;
pub mod memory;
mod message;
mod not_found;
mod outbox;
mod retry_budget;
#[cfg(feature = "s3")]
pub mod s3;
mod shards;
pub(crate) mod stream;
mod tenant_rule;
mod tenants;
mod unsettled;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    domain::DomainWrite,
    key::RecordKey,
    record::{BodyId, Place, Record, Reference, Revision},
    time::Timestamp,
};

pub use audit::AuditLine;
pub use checkpoint::Checkpoint;
pub(crate) use error::Result;
pub use error::{StoreError, StoreErrorKind};
pub use item::Item;
pub(crate) use item::from_attributes;
pub use message::OutboxMessage;
pub use not_found::NotFoundSwitch;
pub use outbox::Outbox;
pub use retry_budget::RetryBudget;
pub use tenant_rule::{Stop, TenantRule, TenantRules};
pub use tenants::{Bucket, Fill, Fullness, MAX_RULES, Tenants};
pub use unsettled::{Cursor, Due, Page, Survey, Turn, Unsettled};

/// The outcome of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It was applied.
    Written,
    /// Its condition did not hold; this is the current record (`None` if a swap found none).
    Refused(Option<Box<Record>>),
    /// The conditions of these domain writes did not hold; the numbers are their places among the companions. The record's
    /// condition is not known to hold: an earlier try may have been applied.
    Denied(Vec<usize>),
}

/// A change that is applied together with a record's write, or not at all.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Companion {
    /// Adds an audit line to the record: who changed it by hand, and why.
    Audit(AuditLine),
    /// Deletes a body item that the record no longer names.
    DeleteBody(BodyId),
    /// Keeps a body until it is deleted, since this time: the request of accepted work.
    KeepBody(BodyId, Bytes, Timestamp),
    /// Keeps a report beside the record until it is deleted, since this time, over the one that lies there under this id.
    KeepReport(BodyId, Bytes, Timestamp),
    /// Writes an item of a table of the user's, under its own condition.
    Domain(DomainWrite),
    /// Puts a message into the outbox, if it has none of this number yet.
    Message(OutboxMessage),
}

/// Keeps records.
///
/// # Promises
/// - [`put`](Self::put) writes if the revision is still the one seen, or returns the current record, in one atomic step. An
///   *insert* has seen no record, a *swap* has seen one.
/// - Companions are applied with their record, and never without it. That also holds for an earlier try of the same write whose
///   answer was lost.
/// - [`load`](Self::load) returns the record of the last applied write.
/// - An error does not prove that a write was not applied, or will not be later; [`StoreError::kind`] says more.
/// - A body that is kept under an id never changes, and is kept for at least as long as requested.
///
/// The suite in `conformance` checks these promises for stores of your own (feature `conformance`). Guard, stale function and
/// reconciliation each take a store, so make it cheap to clone.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes `record` if the current one has the revision `seen`; if `seen` is `None`, only if there is no record.
    async fn put(&self, seen: Option<Revision>, record: &Record, with: &[Companion]) -> Result<WriteOutcome>;

    /// The budget from which the engine sends a write again that got no answer within
    /// [`STORE_TRY`](crate::time_budget::STORE_TRY). Clones of a store share one. Without it, a write has
    /// [`STORE_TIMEOUT`](crate::time_budget::STORE_TIMEOUT), in which the store's own client retries.
    ///
    /// A store that wraps another returns that one's: the client of [`DynamoDbStore`](crate::DynamoDbStore) retries no write itself.
    fn retry_budget(&self) -> Option<&RetryBudget>;

    /// The table of records, which domain writes must not touch; `None` if the store has no table.
    fn records_table(&self) -> Option<&str>;

    /// Reads a record, strongly consistent.
    async fn load(&self, key: &RecordKey) -> Result<Option<Record>>;

    /// How many bytes of body fit in the record before a duplicate request costs more than the minimum.
    fn body_capacity(&self, record: &Record) -> usize;

    /// Keeps a body outside its record, at least until `expires_at`; `None` if it is too large for every place.
    async fn keep_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        body: Bytes,
        expires_at: Timestamp,
    ) -> Result<Option<Place>>;

    /// Reads a body that was kept outside its record; `None` if it is missing.
    async fn load_body(&self, key: &RecordKey, id: BodyId, place: Place) -> Result<Option<Bytes>>;

    /// Deletes a body item, if it is still there. A store that is used for operations that are
    /// [executed later](crate::Operation::asynchronous) needs it. By default it fails.
    async fn delete_body(&self, key: &RecordKey, id: BodyId) -> Result<()> {
        let _ = (key, id);
        Err(StoreError::refused("this store deletes no bodies"))
    }

    /// Writes that this reference leads to this record, at least until `expires_at`, unless it leads to another one. A store that is
    /// used for [`Execution::refer`](crate::Execution::refer) needs it. By default it fails.
    async fn refer(&self, reference: &Reference, key: &RecordKey, expires_at: Timestamp) -> Result<()> {
        let _ = (reference, key, expires_at);
        Err(StoreError::refused("this store keeps no references"))
    }

    /// The record to which this reference leads, if it leads to one.
    async fn referred(&self, reference: &Reference) -> Result<Option<RecordKey>> {
        let _ = reference;
        Err(StoreError::refused("this store keeps no references"))
    }

    /// Writes an audit line about an action that leaves the record unchanged, such as moving a message about it. `id`
    /// distinguishes it from other lines of the same instant.
    async fn audit(&self, key: &RecordKey, id: Revision, line: &AuditLine) -> Result<()>;

    /// The audit lines of a record, oldest first.
    async fn audit_lines(&self, key: &RecordKey) -> Result<Vec<AuditLine>>;
}
