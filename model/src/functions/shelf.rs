//! What there is under one key: in the library's store in memory, with a time to live for bodies, and at the provider; and what the
//! state needs of it.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt;
use lambda_idempotency::{
    MemoryStore,
    domain::{DomainWrite, Table},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    reconcile::Finding,
    record::{Answer, BodyId, KeptAnswer, Place, Record, Revision, State},
    store::{Companion, Store, WriteOutcome},
    time::Timestamp,
};
use serde_json::{Value, json};

use super::{
    properties::{self, Violation},
    scenario::{Guarded, KeyId, Rows, Scenario},
    state::{digest, record_digest},
    universe::ProcessId,
};

/// The store of one key, what was written to it, and what the provider did.
pub struct Shelf {
    pub store: MemoryStore,
    current: Option<Record>,
    stamp: u64,
    retention: Duration,
    /// The digest of each write that was sent, by its revision.
    sent: HashMap<Revision, u64>,
    /// When each body is deleted.
    bodies: HashMap<BodyId, u64>,
    /// How often the row was written.
    pub rows: u64,
    /// The processes whose effect the provider has executed.
    pub effects: Vec<ProcessId>,
}

/// The key of this number.
pub fn record_key(id: KeyId) -> RecordKey {
    let valid = "this name is valid";
    let key = KEYS[usize::from(id)];
    RecordKey::new(
        Tenant::parse(TENANT).expect(valid),
        OperationName::parse(OPERATION).expect(valid),
        IdempotencyKey::parse(key).expect(valid),
    )
}

/// The keys of a scenario, as clients and messages write them.
pub const KEYS: [&str; 2] = ["key", "other"];
pub const TENANT: &str = "model";
pub const OPERATION: &str = "model";

/// The phase in which a handler calls the provider.
pub const PHASE: &str = "effect";

/// What an applied write means for the queues.
#[derive(Debug, Default)]
pub struct Consequences {
    pub violation: Option<Violation>,
    /// The lease of an execution that has begun: the table's stream leads to a check.
    pub check_at: Option<Timestamp>,
}

impl Shelf {
    pub fn new(scenario: &Scenario) -> Self {
        let store = MemoryStore::new();
        if matches!(scenario.rows, Rows::Refused | Rows::RefusedWithAnswer) {
            store.put_item(&table(), json!({ "id": "row", "n": 0, "closed": true }));
        }
        Self {
            store,
            current: None,
            stamp: 0,
            retention: Duration::from_secs(scenario.retention),
            sent: HashMap::new(),
            bodies: HashMap::new(),
            rows: 0,
            effects: Vec::new(),
        }
    }

    pub fn record(&self) -> Option<&Record> {
        self.current.as_ref()
    }

    /// The digest of the record.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// The digest of everything in it.
    pub fn digest(&self, clock: u64) -> u64 {
        digest(&(self.stamp, self.rows, self.has_body(clock), &self.effects))
    }

    /// Whether the kept answer has a body outside its record, and that body is stored.
    pub fn has_body(&self, clock: u64) -> bool {
        let id = self.current.as_ref().and_then(body_of);
        id.is_some_and(|id| self.bodies.get(&id).is_some_and(|until| *until > clock))
    }

    /// When its question is due, if it is unknown and not escalated.
    pub fn due_at(&self) -> Option<u64> {
        match self.current.as_ref()?.state {
            State::Unknown { reconcile_at, .. } | State::BetweenWorkers { reconcile_at, .. }
                if reconcile_at != Timestamp::MAX =>
            {
                Some(reconcile_at.as_millis())
            }
            _ => None,
        }
    }

    pub fn is_escalated(&self) -> bool {
        let state = self.current.as_ref().map(|record| &record.state);
        matches!(
            state,
            Some(
                State::Unknown { reconcile_at: Timestamp::MAX, .. }
                    | State::BetweenWorkers { reconcile_at: Timestamp::MAX, .. }
            )
        )
    }

    /// The kept answer.
    pub fn answer(&self) -> Option<&KeptAnswer> {
        match &self.current.as_ref()?.state {
            State::Completed { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// Applies a write, and returns what the store answers.
    pub fn write(
        &mut self,
        seen: Option<Revision>,
        record: &Record,
        with: &[Companion],
        clock: u64,
    ) -> (WriteOutcome, Consequences) {
        let mut then = Consequences::default();
        let written = digest(&(record_digest(record), with.len(), seen.map(|seen| *seen.as_bytes())));
        if *self.sent.entry(record.revision).or_insert(written) != written {
            then.violation = Some(Violation::AnotherWrite);
        }
        let Some(Ok(outcome)) = self.store.put(seen, record, with).now_or_never() else {
            unreachable!("the store in memory answers at once")
        };
        if outcome == WriteOutcome::Written {
            if !with.is_empty() {
                self.rows = self.count_rows();
            }
            self.written(record, clock, &mut then);
        }
        (outcome, then)
    }

    fn written(&mut self, record: &Record, clock: u64, then: &mut Consequences) {
        let before = self.current.replace(record.clone());
        self.stamp = record_digest(record);
        let violation =
            properties::written(before.as_ref(), record, Timestamp::from_millis(clock), self.retention);
        then.violation = then.violation.or(violation);
        if body_of(record).is_some() && !self.has_body(clock) {
            then.violation.get_or_insert(Violation::MissingBody);
        }
        if let State::InProgress { lease_until } = record.state
            // A heartbeat extends a lease that has its check already.
            && before.is_none_or(|before| {
                before.attempt != record.attempt || !matches!(before.state, State::InProgress { .. })
            })
        {
            then.check_at = Some(lease_until);
        }
    }

    fn count_rows(&self) -> u64 {
        let item: Option<Value> = self.store.item(&table(), json!({ "id": "row" })).unwrap_or_default();
        item.and_then(|item| item["n"].as_u64()).unwrap_or_default()
    }

    pub fn keep_body(&mut self, key: &RecordKey, id: BodyId, body: Bytes, until: Timestamp) -> Option<Place> {
        self.bodies.insert(id, until.as_millis());
        self.store.keep_body(key, id, body, until).now_or_never()?.ok()?
    }

    pub fn load_body(&self, key: &RecordKey, id: BodyId, place: Place, clock: u64) -> Option<Bytes> {
        self.bodies.get(&id).filter(|until| **until > clock)?;
        self.store.load_body(key, id, place).now_or_never()?.ok()?
    }

    /// What an honest provider says.
    pub fn found(&self, scenario: &Scenario) -> Finding {
        let rows = scenario.rows;
        match self.effects.first() {
            Some(process) if matches!(scenario.guarded, Guarded::Resumed(_)) => {
                Finding::PhaseExecuted { phase: PHASE.to_owned(), result: (process + 1).to_string() }
            }
            None => Finding::NotFound,
            Some(process) => match row(rows).filter(|_| rows == Rows::One) {
                Some(row) => Finding::ExecutedWith(answer(201, process + 1), vec![row]),
                None => Finding::Executed(answer(201, process + 1)),
            },
        }
    }
}

fn body_of(record: &Record) -> Option<BodyId> {
    match &record.state {
        State::Completed { answer, .. } => answer.body_id(),
        _ => None,
    }
}

fn table() -> Table {
    Table::new("rows", "id")
}

/// The row of a handler, if it has one: how often it was written.
pub fn row(rows: Rows) -> Option<DomainWrite> {
    let row = table().update(json!({ "id": "row" }), "ADD n :one").value(":one", 1);
    match rows {
        Rows::None => None,
        Rows::One => Some(row),
        Rows::Refused => Some(row.condition("attribute_not_exists(closed)")),
        Rows::RefusedWithAnswer => {
            Some(row.condition("attribute_not_exists(closed)").or_answer(answer(409, 9)))
        }
    }
}

/// The answer of this number: its body is so long.
pub fn answer(status: u16, number: u8) -> Answer {
    Answer::json(status, vec![b'a'; usize::from(number)])
}
