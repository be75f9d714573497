//! Where records live: two conditional writes and a read.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod dynamodb;
pub mod memory;
mod register;
#[cfg(feature = "s3")]
pub mod s3;

use std::{error::Error, fmt, future::Future, sync::Arc};

use bytes::Bytes;

use crate::{
    key::RecordKey,
    record::{BodyId, Place, Record, Revision},
    time::Timestamp,
};

pub(crate) use register::{Register, Turn};

/// What became of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// It was applied.
    Written,
    /// Its condition did not hold; this is what stands there instead (nothing, where a swap found nothing).
    Refused(Option<Box<Record>>),
}

/// A place that keeps records.
///
/// # What it promises
/// - [`insert`](Self::insert) writes where nothing is, or gives back what is there, in one atomic step.
/// - [`swap`](Self::swap) writes where the revision is still the one seen, or gives back what is there, in one atomic
///   step.
/// - [`load`](Self::load) reads what the last applied write wrote.
/// - An error says nothing about whether a write was applied, now or later; [`StoreError::kind`] says what to make of
///   it.
/// - What is kept once as a body under an id is never changed, and is there for as long as it was asked for.
///
/// The suite in [`conformance`](self) checks these for stores of your own (feature `conformance`).
pub trait Store: Send + Sync + 'static {
    /// Writes `record` where nothing is.
    fn insert(&self, record: &Record) -> impl Future<Output = Result<Put, StoreError>> + Send;

    /// Writes `record` where the revision is still `seen`.
    fn swap(&self, seen: Revision, record: &Record) -> impl Future<Output = Result<Put, StoreError>> + Send;

    /// Reads a record, strongly consistent.
    fn load(&self, key: &RecordKey) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// How many bytes of body the record has room for before a duplicate of it costs more than the least.
    fn room_for_body(&self, record: &Record) -> usize;

    /// Keeps a body outside its record, at least until `expires_at`; `None` where it is too large for every place.
    fn keep_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        body: Bytes,
        expires_at: Timestamp,
    ) -> impl Future<Output = Result<Option<Place>, StoreError>> + Send;

    /// Reads a body that was kept outside its record; `None` where it is not there.
    fn load_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        place: Place,
    ) -> impl Future<Output = Result<Option<Bytes>, StoreError>> + Send;
}

impl<S: Store> Store for Arc<S> {
    fn insert(&self, record: &Record) -> impl Future<Output = Result<Put, StoreError>> + Send {
        (**self).insert(record)
    }

    fn swap(&self, seen: Revision, record: &Record) -> impl Future<Output = Result<Put, StoreError>> + Send {
        (**self).swap(seen, record)
    }

    fn load(&self, key: &RecordKey) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send {
        (**self).load(key)
    }

    fn room_for_body(&self, record: &Record) -> usize {
        (**self).room_for_body(record)
    }

    fn keep_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        body: Bytes,
        expires_at: Timestamp,
    ) -> impl Future<Output = Result<Option<Place>, StoreError>> + Send {
        (**self).keep_body(key, id, body, expires_at)
    }

    fn load_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        place: Place,
    ) -> impl Future<Output = Result<Option<Bytes>, StoreError>> + Send {
        (**self).load_body(key, id, place)
    }
}

/// What went wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No answer, or a failure of the store's. Whether a write was applied is not known.
    Unavailable,
    /// The key, or the table, is asked too often. Whether an earlier try was applied is not known.
    Throttled,
    /// The item is part of a transaction under way. Not written.
    Contended,
    /// What stands there is no record that this version can read. Not written.
    Unreadable,
    /// The store refuses us: no such table, no right to it. Not written, and no retry helps.
    Refused,
}

/// An error of a store: what kind, and what was behind it.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

impl StoreError {
    /// An error of this kind.
    pub fn new(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: source.into() }
    }

    /// What kind of error it is.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the store is unavailable",
            StoreErrorKind::Throttled => "the store is asked too often",
            StoreErrorKind::Contended => "the record is part of a transaction under way",
            StoreErrorKind::Unreadable => "the record cannot be read",
            StoreErrorKind::Refused => "the store refuses the request",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
