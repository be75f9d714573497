//! A store in memory: the reference for other stores, and a store for unit tests.
//!
//! 1. Every write is atomic under one lock. Clones of a [`MemoryStore`] are one store.
//! 2. Bodies up to 512 bytes fit in the record. Larger ones are kept in body items, up to 406,000 bytes, much as in DynamoDB.
//! 3. A table of yours exists once something is written to it. The store knows the common part of DynamoDB's expressions, and
//!    refuses the rest.
//! 4. There is no time to live: expired records and bodies stay until the process ends.
//!
//! It guards nothing across processes: it is not for production.

mod domain;
mod expression;
mod reserved;
mod tenants;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use protocol::bucket::Level;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    AuditLine, Bucket, Checkpoint, Companion, Cursor, Due, Fill, NotFoundSwitch, Outbox, OutboxMessage, Page,
    Result, Store, StoreError, Survey, TenantRules, Tenants, Turn, Unsettled, WriteOutcome,
};
use crate::{
    domain::{DomainWrite, Table},
    key::{OperationName, RecordKey, Tenant},
    record::{BodyId, Place, Record, Reference, Revision, State},
    time::Timestamp,
    time_budget::DELIVERY_GRACE,
};

use domain::DomainTables;
use tenants::TenantTables;

/// About as much as the DynamoDB store has left in a record of 1 KB, so that tests take the same paths as with that store.
const BODY_CAPACITY: usize = 512;

/// The largest body that a body item can hold in DynamoDB.
const MAX_BODY_BYTES: usize = 406_000;

/// How many records one page lists.
const PAGE: usize = 100;

/// Keeps records in this process's memory. Clones are one store. It guards nothing across processes: it is not for production.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("MemoryStore {{ records: {}, .. }}", self.tables().records.len())]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
}

#[derive(Default)]
struct Tables {
    /// By partition key, in order, so that a scan can continue after a cursor.
    records: BTreeMap<String, Record>,
    bodies: HashMap<(RecordKey, BodyId), Bytes>,
    lines: HashMap<RecordKey, Vec<AuditLine>>,
    checkpoints: HashMap<String, Checkpoint>,
    /// How "not found" was switched, the last one last.
    not_found: Vec<NotFoundSwitch>,
    references: HashMap<Reference, RecordKey>,
    /// By partition key, life and number.
    messages: BTreeMap<(String, Timestamp, u32), OutboxMessage>,
    domain: DomainTables,
    tenants: TenantTables,
}

impl Tables {
    fn accompany(&mut self, key: &RecordKey, with: &[Companion]) {
        for companion in with {
            match companion {
                Companion::Audit(line) => self.lines.entry(key.clone()).or_default().push(line.clone()),
                Companion::DeleteBody(id) => drop(self.bodies.remove(&(key.clone(), *id))),
                Companion::KeepBody(id, body, _) | Companion::KeepReport(id, body, _) => {
                    self.bodies.insert((key.clone(), *id), body.clone());
                }
                Companion::Message(message) => {
                    self.messages.insert(place_of(key, message), message.clone());
                }
                // `put` applies these first, because they can be denied.
                Companion::Domain(_) => {}
            }
        }
    }

    /// The records after this cursor.
    fn after(&self, from: Option<&Cursor>) -> impl Iterator<Item = &Record> {
        let from = from.and_then(|from| from.parts().first()).map_or(Bound::Unbounded, Bound::Excluded);
        self.records.range::<String, _>((from, Bound::Unbounded)).map(|(_, record)| record)
    }
}

/// A record in the index, and when reconciliation looks at it.
fn indexed(record: &Record) -> Option<(&Record, Timestamp)> {
    Some((record, record.due_at()?))
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The item with this key in a table of yours, as [domain writes](crate::domain) left it: for tests.
    ///
    /// # Errors
    /// If the item is not a `T`.
    ///
    /// # Panics
    /// If `key` is not a key of the table.
    pub fn item<T: DeserializeOwned>(
        &self,
        table: &Table,
        key: impl Serialize,
    ) -> Result<Option<T>, serde_dynamo::Error> {
        self.tables().domain.item(&valid(table.delete(key))).cloned().map(serde_dynamo::from_item).transpose()
    }

    /// Puts an item into a table of yours, as another program would: for tests.
    ///
    /// # Panics
    /// If DynamoDB would refuse the item.
    pub fn put_item(&self, table: &Table, item: impl Serialize) {
        let mut tables = self.tables();
        let with = [Companion::Domain(valid(table.put(item)))];
        if let Ok(Ok(changes)) = tables.domain.changes(&with) {
            tables.domain.apply(changes);
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // No change below can panic halfway.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn put(&self, seen: Option<Revision>, record: &Record, with: &[Companion]) -> Result<WriteOutcome> {
        let mut tables = self.tables();
        let current = tables.records.get(&record.key.partition_key());
        if current.map(|current| current.revision) != seen {
            return Ok(WriteOutcome::Refused(current.cloned().map(Box::new)));
        }
        let is_taken = |companion: &Companion| match companion {
            Companion::Message(message) => tables.messages.contains_key(&place_of(&record.key, message)),
            _ => false,
        };
        let taken: Vec<_> = with.iter().enumerate().filter(|(_, with)| is_taken(with)).collect();
        if !taken.is_empty() {
            return Ok(WriteOutcome::Denied(taken.into_iter().map(|(place, _)| place).collect()));
        }
        let changes = tables.domain.changes(with).map_err(|why| {
            // Into the output of the test: the client's 503 does not say it.
            eprintln!("MemoryStore refuses an expression of a domain write: {why}");
            StoreError::refused(why)
        });
        match changes? {
            Ok(changes) => tables.domain.apply(changes),
            Err(denied) => return Ok(WriteOutcome::Denied(denied)),
        }
        tables.records.insert(record.key.partition_key(), record.clone());
        tables.accompany(&record.key, with);
        Ok(WriteOutcome::Written)
    }

    async fn load(&self, key: &RecordKey) -> Result<Option<Record>> {
        Ok(self.tables().records.get(&key.partition_key()).cloned())
    }

    fn retry_budget(&self) -> Option<&crate::store::RetryBudget> {
        None
    }

    fn records_table(&self) -> Option<&str> {
        None
    }

    fn body_capacity(&self, _: &Record) -> usize {
        BODY_CAPACITY
    }

    async fn keep_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        body: Bytes,
        _: Timestamp,
    ) -> Result<Option<Place>> {
        if body.len() > MAX_BODY_BYTES {
            return Ok(None);
        }
        self.tables().bodies.entry((key.clone(), id)).or_insert(body);
        Ok(Some(Place::BodyItem))
    }

    async fn load_body(&self, key: &RecordKey, id: BodyId, _: Place) -> Result<Option<Bytes>> {
        Ok(self.tables().bodies.get(&(key.clone(), id)).cloned())
    }

    async fn delete_body(&self, key: &RecordKey, id: BodyId) -> Result<()> {
        self.tables().bodies.remove(&(key.clone(), id));
        Ok(())
    }

    async fn refer(&self, reference: &Reference, key: &RecordKey, _: Timestamp) -> Result<()> {
        match self.tables().references.entry(reference.clone()).or_insert(key.clone()) {
            current if current == key => Ok(()),
            _ => Err(StoreError::refused("the reference leads to another record")),
        }
    }

    async fn referred(&self, reference: &Reference) -> Result<Option<RecordKey>> {
        Ok(self.tables().references.get(reference).cloned())
    }

    async fn audit(&self, key: &RecordKey, _: Revision, line: &AuditLine) -> Result<()> {
        self.tables().accompany(key, &[Companion::Audit(line.clone())]);
        Ok(())
    }

    async fn audit_lines(&self, key: &RecordKey) -> Result<Vec<AuditLine>> {
        let mut lines = self.tables().lines.get(key).cloned().unwrap_or_default();
        lines.sort_by_key(|line| line.at);
        Ok(lines)
    }
}

#[async_trait]
impl Tenants for MemoryStore {
    async fn rules(&self) -> Result<Option<TenantRules>> {
        Ok(self.tables().tenants.rules.clone())
    }

    async fn write_rules(
        &self,
        seen: Option<Revision>,
        rules: &TenantRules,
        line: &AuditLine,
    ) -> Result<bool> {
        Ok(self.tables().tenants.write(seen, rules, line))
    }

    async fn rules_lines(&self) -> Result<Vec<AuditLine>> {
        Ok(self.tables().tenants.lines.clone())
    }

    async fn fill(&self, tenant: &Tenant, operation: &OperationName, fills: &[Fill]) -> Result<Vec<Level>> {
        Ok(self.tables().tenants.fill(tenant, operation, fills))
    }

    async fn raise(
        &self,
        tenant: &Tenant,
        operation: &OperationName,
        bucket: &str,
        seen: Level,
        level: Level,
    ) -> Result<()> {
        self.tables().tenants.raise((tenant.clone(), operation.clone(), bucket.to_owned()), seen, level);
        Ok(())
    }

    async fn used(&self, tenant: &Tenant) -> Result<Vec<Bucket>> {
        Ok(self.tables().tenants.used(tenant))
    }

    async fn open_records(&self, tenant: &Tenant, at_most: usize) -> Result<usize> {
        let tables = self.tables();
        let records = tables.records.values().filter(|record| record.key.tenant() == tenant);
        let is_open = |state: &State| matches!(state, State::Unknown { .. } | State::BetweenWorkers { .. });
        Ok(records.filter(|record| is_open(&record.state)).take(at_most).count())
    }
}

#[async_trait]
impl Outbox for MemoryStore {
    async fn undelivered(&self, key: &RecordKey) -> Result<Vec<OutboxMessage>> {
        let (from, to) = ((key.partition_key(), Timestamp::from_millis(0), 0), Timestamp::MAX);
        let range = from.clone()..=(from.0, to, u32::MAX);
        Ok(self.tables().messages.range(range).map(|(_, message)| message.clone()).collect())
    }

    async fn remove(&self, message: &OutboxMessage) -> Result<()> {
        self.tables().messages.remove(&place_of(&message.key, message));
        Ok(())
    }
}

#[async_trait]
impl Unsettled for MemoryStore {
    /// All tenants after `from`, in the order of their records' keys.
    async fn due(
        &self,
        now: Timestamp,
        from: Option<&Cursor>,
        limit: usize,
        taken: &HashSet<RecordKey>,
    ) -> Result<Due> {
        let tables = self.tables();
        let is_due = |record: &Record, at| at <= now && at != Timestamp::MAX && !taken.contains(&record.key);
        let mut tenants: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (record, at) in tables.after(from).filter_map(indexed).filter(|(record, at)| is_due(record, *at))
        {
            tenants
                .entry(RecordKey::partition_key_prefix(record.key.tenant()))
                .or_default()
                .push((at, record));
        }
        let turns = tenants.into_iter().map(|(prefix, mut due)| {
            due.sort_by_key(|(at, _)| *at);
            let keys = due.into_iter().take(limit).map(|(_, record)| record.key.clone()).collect();
            // No character of a key comes after this one.
            Turn { keys, next: Cursor::new([prefix + "\u{10ffff}"]) }
        });
        Ok(Due { turns: turns.collect(), next: None })
    }

    async fn unresolved(&self, tenant: Option<&Tenant>, from: Option<&Cursor>) -> Result<Page> {
        let tables = self.tables();
        let is_listed = |record: &&Record| {
            record.due_at().is_some() && tenant.is_none_or(|tenant| record.key.tenant() == tenant)
        };
        let records: Vec<_> = tables.after(from).filter(is_listed).take(PAGE).cloned().collect();
        let next = records.last().filter(|_| records.len() == PAGE).map(cursor);
        Ok(Page { scanned: records.len() as u64, records, next, ..Page::default() })
    }

    async fn survey(&self) -> Result<Survey> {
        let mut survey = Survey::NOTHING;
        for (record, _) in self.tables().after(None).filter_map(indexed) {
            let (since, reconcile_at) = match record.state {
                State::Unknown { since, reconcile_at, .. }
                | State::BetweenWorkers { since, reconcile_at } => (Some(since), Some(reconcile_at)),
                _ => (None, None),
            };
            survey.count(Some(record.state.which()), since, reconcile_at, !record.alarms.is_empty());
        }
        Ok(survey)
    }

    async fn settings_off(&self) -> Vec<&'static str> {
        Vec::new()
    }

    async fn scan(
        &self,
        (segment, _): (u32, u32),
        from: Option<&Cursor>,
        now: Timestamp,
        limit: u32,
    ) -> Result<Page> {
        let tables = self.tables();
        if segment > 0 {
            // Everything is in the first segment.
            return Ok(Page::default());
        }
        let scanned: Vec<_> = tables.after(from).take(limit as usize).collect();
        // Not what is in the index: `due` finds that.
        let is_unsettled = |record: &&Record| match record.state {
            State::InProgress { lease_until } => lease_until <= now,
            ref state => matches!(state, State::Pending { .. }),
        };
        // With the first page: messages have no cursor of their own.
        let overdue = tables
            .messages
            .values()
            .filter(|message| from.is_none() && message.published_at <= now.minus(DELIVERY_GRACE));
        let accepted = tables.records.values();
        let accepted = accepted.filter(|record| record.created_at <= now.minus(DELIVERY_GRACE));
        let accepted = accepted.filter_map(|record| Some((record.key.clone(), record.accepted?.request)));
        let accepted = accepted.filter(|request| from.is_none() && tables.bodies.contains_key(request));
        Ok(Page {
            requests: accepted.collect(),
            undelivered: overdue.map(|message| message.key.clone()).collect(),
            scanned: scanned.len() as u64,
            next: scanned.last().filter(|_| scanned.len() == limit as usize).map(|last| cursor(last)),
            records: scanned.into_iter().filter(is_unsettled).cloned().collect(),
            ..Page::default()
        })
    }

    async fn not_found_switch(&self) -> Result<Option<NotFoundSwitch>> {
        Ok(self.tables().not_found.last().cloned())
    }

    async fn switch_not_found(&self, seen: Option<Revision>, switch: &NotFoundSwitch) -> Result<bool> {
        let mut tables = self.tables();
        if tables.not_found.iter().any(|earlier| earlier.revision == switch.revision) {
            return Ok(true);
        }
        let is_current = tables.not_found.last().map(|current| current.revision) == seen;
        tables.not_found.extend(Some(switch).filter(|_| is_current).cloned());
        Ok(is_current)
    }

    async fn not_found_lines(&self) -> Result<Vec<AuditLine>> {
        Ok(self.tables().not_found.iter().map(NotFoundSwitch::line).collect())
    }

    async fn load_checkpoint(&self, name: &str) -> Result<Option<Checkpoint>> {
        Ok(self.tables().checkpoints.get(name).cloned())
    }

    async fn write_checkpoint(&self, seen: Option<Revision>, checkpoint: &Checkpoint) -> Result<bool> {
        let mut tables = self.tables();
        let current = tables.checkpoints.get(&checkpoint.name).map(|current| current.revision);
        if current == seen {
            tables.checkpoints.insert(checkpoint.name.clone(), checkpoint.clone());
        }
        Ok(current == seen || current == Some(checkpoint.revision))
    }
}

fn place_of(key: &RecordKey, message: &OutboxMessage) -> (String, Timestamp, u32) {
    (key.partition_key(), message.created_at, message.sequence)
}

fn valid(write: DomainWrite) -> DomainWrite {
    match write.check() {
        Ok(()) => write,
        Err(error) => panic!("{error}"),
    }
}

fn cursor(last: &Record) -> Cursor {
    Cursor::new([last.key.partition_key()])
}
