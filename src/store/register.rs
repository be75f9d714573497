//! The register that a store makes of a record, with the one rule for lost answers.

use super::{Put, Store, StoreError};
use crate::{
    key::RecordKey,
    record::{Record, Revision},
};

/// Who holds the record after a write.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Our write did, or does.
    Ours,
    /// Somebody else's; this is what stands there (nothing, where the record is gone).
    Theirs(Option<Box<Record>>),
}

/// A store's records as compare-and-set registers.
#[derive(Debug)]
pub(crate) struct Register<S> {
    pub(crate) store: S,
}

impl<S: Store> Register<S> {
    pub(crate) async fn insert(&self, record: &Record) -> Result<Turn, StoreError> {
        Ok(turn(record.revision, self.store.insert(record).await?))
    }

    pub(crate) async fn swap(&self, seen: Revision, record: &Record) -> Result<Turn, StoreError> {
        Ok(turn(record.revision, self.store.swap(seen, record).await?))
    }

    pub(crate) async fn load(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.store.load(key).await
    }
}

/// If the record that beat us has the revision that we were writing, we won: the write was applied, its answer was
/// lost on the way, and the retry met our own record.
fn turn(ours: Revision, put: Put) -> Turn {
    match put {
        Put::Written => Turn::Ours,
        Put::Refused(Some(there)) if there.revision == ours => Turn::Ours,
        Put::Refused(there) => Turn::Theirs(there),
    }
}
