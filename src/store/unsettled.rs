//! Finds the records that need reconciliation, the stale function or an operator.

use std::collections::HashSet;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{AuditLine, Checkpoint, NotFoundSwitch, Result, Store};
use crate::{
    key::{RecordKey, Tenant},
    record::{BodyId, Record, Revision, StateName},
    time::Timestamp,
};

/// A store that finds its unsettled records.
///
/// The records that it returns may be out of date: read a record again before you change it.
#[async_trait]
pub trait Unsettled: Store {
    /// The keys of unknown outcomes that reconciliation must ask about by `now`, of operations between workers that it must escalate by
    /// then, and of records with an alarm of which operators have not been told ([`Record::due_at`]), tenant by tenant: up to `limit` of each tenant, its longest overdue first, without those in `taken`.
    ///
    /// It reads a part of the index, from `from` on. However many are due of one tenant, the turns of the next tenants follow: the
    /// order of the tenants is the store's own, and always the same. A key that cannot be read is logged, and does not count toward
    /// the limit.
    async fn due(
        &self,
        now: Timestamp,
        from: Option<&Cursor>,
        limit: usize,
        taken: &HashSet<RecordKey>,
    ) -> Result<Due>;

    /// Unknown outcomes, operations between workers and records with an alarm, of one tenant or of all, page by page, not ordered by age.
    async fn unresolved(&self, tenant: Option<&Tenant>, from: Option<&Cursor>) -> Result<Page>;

    /// How many outcomes are unknown, and since when, and how many operations are between workers or have an alarm, for monitoring. It reads a bounded
    /// part of the index, in which one tenant with many does not hide the others.
    async fn survey(&self) -> Result<Survey>;

    /// Looks at up to `limit` items of part `segment.0` of `segment.1` of the whole store, and returns the records among
    /// them that are pending, or in progress with an expired lease by `now`. Besides, it finds the messages in the outbox that were
    /// published [`DELIVERY_GRACE`](crate::time_budget::DELIVERY_GRACE) before that, and the requests of accepted work that
    /// were kept as long before: a scan may see such an item before its record.
    async fn scan(
        &self,
        segment: (u32, u32),
        from: Option<&Cursor>,
        now: Timestamp,
        limit: u32,
    ) -> Result<Page>;

    /// The settings of its table that are off although its records need them, or that it may not read, in words for operators. A setting that
    /// it cannot have, or cannot read now, is not among them.
    async fn settings_off(&self) -> Vec<&'static str>;

    /// How "not found" was switched last; `None` if it never was. Strongly consistent.
    async fn not_found_switch(&self) -> Result<Option<NotFoundSwitch>>;

    /// Writes `switch`, with its audit line, if the current one's revision is still `seen`, or if there is none and `seen` is `None`, in one
    /// atomic step. Returns whether `switch` was written, also by an earlier try whose answer was lost.
    async fn switch_not_found(&self, seen: Option<Revision>, switch: &NotFoundSwitch) -> Result<bool>;

    /// The audit lines of the switch, oldest first.
    async fn not_found_lines(&self) -> Result<Vec<AuditLine>>;

    /// Reads the checkpoint of the job of this name, strongly consistent.
    async fn load_checkpoint(&self, name: &str) -> Result<Option<Checkpoint>>;

    /// Writes `checkpoint` if the current one's revision is still `seen`, or if there is none and `seen` is `None`, in one
    /// atomic step. Returns whether `checkpoint` is now the current one. That is also so if an earlier try wrote it and its answer
    /// was lost.
    async fn write_checkpoint(&self, seen: Option<Revision>, checkpoint: &Checkpoint) -> Result<bool>;
}

/// The questions that are due in a part of the index.
#[derive(Debug, Default)]
pub struct Due {
    /// The turns of its tenants, in order. Tenants of which nothing is due have none.
    pub turns: Vec<Turn>,
    /// Where the next part begins; `None` after the last.
    pub next: Option<Cursor>,
}

/// The questions of one tenant that are asked before those of the next tenant.
#[derive(Debug)]
pub struct Turn {
    /// Their records, the longest overdue first.
    pub keys: Vec<RecordKey>,
    /// Where the turns of the tenants after this one begin.
    pub next: Cursor,
}

/// One page of records.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// The records.
    pub records: Vec<Record>,
    /// The records that published the undelivered messages of a scanned page: one for each message.
    pub undelivered: Vec<RecordKey>,
    /// The records whose accepted requests a scanned page has, each with the id of the body item.
    pub requests: Vec<(RecordKey, BodyId)>,
    /// How many items were not records that this version can read; each is logged.
    pub unreadable: usize,
    /// How many items were looked at.
    pub scanned: u64,
    /// How many read units the page took.
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
    /// How many interrupted operations are between workers.
    pub between_workers: u64,
    /// How many records have an alarm, whatever their state.
    pub alarmed: u64,
    /// How many of all wait for an operator: they are escalated, or have an alarm.
    pub escalated: u64,
    /// Since when the oldest outcome is unknown; `None` if there is none.
    pub oldest: Option<Timestamp>,
    /// Whether the whole index was read and understood. If not, there may be more outcomes, and older ones.
    pub whole: bool,
}

impl Survey {
    /// The survey of a store in which nothing is unknown.
    pub const NOTHING: Self =
        Self { unknown: 0, between_workers: 0, alarmed: 0, escalated: 0, oldest: None, whole: true };

    /// Counts one more record of the index. `since` and `reconcile_at` are those of its state. `None` is a state that this version does not know.
    pub fn count(
        &mut self,
        state: Option<StateName>,
        since: Option<Timestamp>,
        reconcile_at: Option<Timestamp>,
        is_alarmed: bool,
    ) {
        match state {
            Some(StateName::Unknown) => {
                self.unknown += 1;
                self.oldest = self.oldest.into_iter().chain(since).min();
            }
            Some(StateName::BetweenWorkers) => self.between_workers += 1,
            // In the index only for its alarm.
            Some(
                StateName::Pending
                | StateName::InProgress
                | StateName::Completed
                | StateName::FailedRetryable,
            )
            | None => {}
        }
        self.alarmed += u64::from(is_alarmed);
        self.escalated += u64::from(is_alarmed || reconcile_at == Some(Timestamp::MAX));
    }
}

/// Where a page begins. Only the store that made it can read it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Debug)]
// Without its parts: they name keys.
#[debug("Cursor(…)")]
pub struct Cursor(Vec<String>);

impl Cursor {
    /// A cursor of these parts.
    pub fn new(parts: impl IntoIterator<Item = String>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// The parts.
    pub fn parts(&self) -> &[String] {
        &self.0
    }
}
