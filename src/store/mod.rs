//! Where records live: two conditional writes and a read.
//!
//! 1. A [`Store`] promises three primitives, and a place for bodies that are too large for their record. Everything else
//!    is done above it, the same on every store.
//! 2. A write may have [companions](Companion): what is written in the same transaction, or not at all.
//! 3. [`Unsettled`] finds the records that somebody has to look at, and keeps the [`Mark`] of whoever goes through all of them.
//! 4. A record is stored as an [`Item`], in every store and in every queue: one form, with one version number.
//!
//! Stores are trait objects, as queues, worlds and reconcilers are: a call of a store takes a network's time, so that the
//! pointer in between cannot be measured, and what stands above has no type parameter.

mod audit;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
mod error;
mod item;
mod mark;
pub mod memory;
#[cfg(feature = "s3")]
pub mod s3;
pub(crate) mod stream;
mod unsettled;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    key::RecordKey,
    record::{BodyId, Place, Record, Revision},
    time::Timestamp,
};

pub use audit::AuditLine;
pub use error::{StoreError, StoreErrorKind};
pub use item::Item;
pub(crate) use item::from_attributes;
pub use mark::Mark;
pub use unsettled::{Cursor, Page, Survey, Unsettled};

/// What became of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It was applied.
    Written,
    /// Its condition did not hold; this is what stands there instead (nothing, if a swap found nothing).
    Refused(Option<Box<Record>>),
}

/// What is written together with a record, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Companion {
    /// Who changed the record by hand, and why. Kept beside it.
    Audit(AuditLine),
    /// A body beside the record, which the record does not name any more, is deleted.
    DeleteBody(BodyId),
}

/// A place that keeps records.
///
/// # What it promises
/// - [`insert`](Self::insert) writes if nothing is there, or returns what is there, in one atomic step.
/// - [`swap`](Self::swap) writes if the revision is still the one seen, or returns what is there, in one atomic step.
/// - Companions stand once their record does, and never without it. Where a record stands already because of this very
///   write, whose answer was lost, they stand too.
/// - [`load`](Self::load) reads what the last applied write wrote.
/// - An error says nothing about whether a write was applied, now or later; [`StoreError::kind`] says what to make of
///   it.
/// - What is kept once as a body under an id is never changed, and is there for as long as it was asked for.
///
/// The suite in `conformance` checks these for stores of your own (feature `conformance`). Guard, stale function and
/// reconciliation each take a store: make it cheap to clone.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes `record` if nothing is there.
    async fn insert(&self, record: &Record, with: &[Companion]) -> Result<WriteOutcome, StoreError>;

    /// Writes `record` if the revision is still `seen`.
    async fn swap(
        &self,
        seen: Revision,
        record: &Record,
        with: &[Companion],
    ) -> Result<WriteOutcome, StoreError>;

    /// Reads a record, strongly consistent.
    async fn load(&self, key: &RecordKey) -> Result<Option<Record>, StoreError>;

    /// How many bytes of body the record has room for before a duplicate of it costs more than the least.
    fn room_for_body(&self, record: &Record) -> usize;

    /// Keeps a body outside its record, at least until `expires_at`; `None` if it is too large for every place.
    async fn keep_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        body: Bytes,
        expires_at: Timestamp,
    ) -> Result<Option<Place>, StoreError>;

    /// Reads a body that was kept outside its record; `None` if it is not there.
    async fn load_body(&self, key: &RecordKey, id: BodyId, place: Place)
    -> Result<Option<Bytes>, StoreError>;

    /// Writes an audit line about something that leaves the record as it is, such as a message about it that is moved.
    /// `id` tells it from other lines of the same instant.
    async fn audit(&self, key: &RecordKey, id: Revision, line: &AuditLine) -> Result<(), StoreError>;

    /// The audit lines of a record, oldest first.
    async fn audit_lines(&self, key: &RecordKey) -> Result<Vec<AuditLine>, StoreError>;
}
