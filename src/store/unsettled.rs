//! Finds the records that somebody has to look at.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Checkpoint, Store, StoreError};
use crate::{
    key::{RecordKey, Tenant},
    record::{Record, Revision},
    time::Timestamp,
};

/// A store that finds its unsettled records.
///
/// The records that it returns may be slightly stale: read a record again before you change it.
#[async_trait]
pub trait Unsettled: Store {
    /// The keys of unknown outcomes that reconciliation is to ask about by `now`: up to `limit` from each partition of the
    /// index, the longest overdue first. So at least `limit` in all, if that many are due. A key that cannot be read is
    /// logged, and does not count toward the limit.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordKey>, StoreError>;

    /// Unknown outcomes, of one tenant or of all, page by page, not ordered by age.
    async fn unknown(&self, tenant: Option<&Tenant>, from: Option<&Cursor>) -> Result<Page, StoreError>;

    /// How many outcomes are unknown, and since when, for monitoring. Reads at most one page of each partition of the index.
    async fn survey(&self) -> Result<Survey, StoreError>;

    /// Looks at up to `limit` items of part `segment.0` of `segment.1` of the whole store, and returns the records among
    /// them that are pending, or in progress with an expired lease by `now`, or unknown and not in the index.
    async fn scan(
        &self,
        segment: (u32, u32),
        from: Option<&Cursor>,
        now: Timestamp,
        limit: u32,
    ) -> Result<Page, StoreError>;

    /// Reads the mark of the job of this name, strongly consistent.
    async fn load_checkpoint(&self, name: &str) -> Result<Option<Checkpoint>, StoreError>;

    /// Writes `mark` if the current mark's revision is still `seen`, or if there is no mark and `seen` is `None`, in one
    /// atomic step. Returns whether `mark` is the current one, also if an earlier try wrote it and its answer was lost.
    async fn write_checkpoint(
        &self,
        seen: Option<Revision>,
        checkpoint: &Checkpoint,
    ) -> Result<bool, StoreError>;
}

/// One page of records.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// The records.
    pub records: Vec<Record>,
    /// How many items were not records that this version can read; each is logged.
    pub unreadable: usize,
    /// How many items were looked at.
    pub scanned: u64,
    /// How many read units that took.
    pub units: f64,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Cursor>,
}

/// How many outcomes are unknown, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// How many outcomes are unknown.
    pub unknown: u64,
    /// How many of them nobody asks about any more: they wait for an operator.
    pub escalated: u64,
    /// Since when the oldest is unknown; `None` if there is none.
    pub oldest: Option<Timestamp>,
    /// Whether everything was read and understood. If not, there may be more, and older ones.
    pub whole: bool,
}

impl Survey {
    /// The survey of a store in which nothing is unknown.
    pub const NOTHING: Self = Self { unknown: 0, escalated: 0, oldest: None, whole: true };

    /// Counts one more outcome, unknown since `since` and to be asked about at `reconcile_at`.
    pub fn count(&mut self, since: Timestamp, reconcile_at: Timestamp) {
        self.unknown += 1;
        self.escalated += u64::from(reconcile_at == Timestamp::MAX);
        self.oldest = Some(self.oldest.map_or(since, |oldest| oldest.min(since)));
    }
}

/// Where a page begins. Opaque to all but the store that made it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor(Vec<String>);

impl fmt::Debug for Cursor {
    /// Without its parts: they name keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cursor(…)")
    }
}

impl Cursor {
    /// The position that these parts name.
    pub fn new(parts: impl IntoIterator<Item = String>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// The parts.
    pub fn parts(&self) -> &[String] {
        &self.0
    }
}
