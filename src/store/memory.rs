//! A store of a few lines: the reference that the others are measured against, and a store for unit tests.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::{Put, Store, StoreError};
use crate::{
    key::RecordKey,
    record::{BodyId, Place, Record, Revision},
    time::Timestamp,
};

/// As much as the DynamoDB store has left in a record of 1 KB, roughly: so that what is tested here takes the same
/// ways as there.
const ROOM_FOR_BODY: usize = 512;

/// What an item beside a record can hold in DynamoDB.
const LARGEST_BODY: usize = 406_000;

/// Records in this process's memory. Guards nothing across processes: not for production.
#[derive(Default)]
pub struct MemoryStore {
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    records: HashMap<RecordKey, Record>,
    bodies: HashMap<(RecordKey, BodyId), Bytes>,
}

impl fmt::Debug for MemoryStore {
    /// How many records, not what they say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("records", &self.tables().records.len()).finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Each change below is one insertion: a panic elsewhere cannot have left one half done.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    async fn insert(&self, record: &Record) -> Result<Put, StoreError> {
        Ok(match self.tables().records.entry(record.key.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(record.clone());
                Put::Written
            }
            Entry::Occupied(entry) => Put::Refused(Some(Box::new(entry.get().clone()))),
        })
    }

    async fn swap(&self, seen: Revision, record: &Record) -> Result<Put, StoreError> {
        Ok(match self.tables().records.get_mut(&record.key) {
            Some(there) if there.revision == seen => {
                *there = record.clone();
                Put::Written
            }
            there => Put::Refused(there.cloned().map(Box::new)),
        })
    }

    async fn load(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        Ok(self.tables().records.get(key).cloned())
    }

    fn room_for_body(&self, _: &Record) -> usize {
        ROOM_FOR_BODY
    }

    async fn keep_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        body: Bytes,
        _: Timestamp,
    ) -> Result<Option<Place>, StoreError> {
        if body.len() > LARGEST_BODY {
            return Ok(None);
        }
        self.tables().bodies.entry((key.clone(), id)).or_insert(body);
        Ok(Some(Place::Beside))
    }

    async fn load_body(&self, key: &RecordKey, id: BodyId, _: Place) -> Result<Option<Bytes>, StoreError> {
        Ok(self.tables().bodies.get(&(key.clone(), id)).cloned())
    }
}
