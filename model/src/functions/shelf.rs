//! What there is under one key: in the library's store in memory, with a time to live for bodies, and at the provider; and what the
//! state needs of it.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt;
use lambda_idempotency::{
    MemoryStore,
    domain::{DomainWrite, Table},
    key::RecordKey,
    reconcile::Finding,
    record::{Answer, BodyId, Head, KeptAnswer, Place, Record, Revision, State},
    store::{Companion, Outbox as _, OutboxMessage, Page, Store, StoreErrorKind, Unsettled, WriteOutcome},
    time::Timestamp,
    time_budget::DELIVERY_GRACE,
};
use serde_json::{Value, json};

use super::{
    answers::written,
    digest::{digest, record_digest},
    ids::ProcessId,
    outbox::{self, Outbox},
    scenario::{Guarded, Rows, Scenario},
};
use crate::kernel::violation::Violation;

/// The store of one key, what was written to it, and what the provider did.
pub struct Shelf {
    pub store: MemoryStore,
    current: Option<Record>,
    stamp: u64,
    retention: Duration,
    /// The digest of each write that was sent, by its revision.
    sent: HashMap<Revision, u64>,
    /// How many writes were applied.
    writes: u64,
    /// Whether the table's stream is read.
    has_stream: bool,
    pub outbox: Outbox,
    /// When each body is deleted. A request never is by itself.
    bodies: HashMap<BodyId, u64>,
    /// How often the row was written.
    pub rows: u64,
    /// The processes whose effect the provider has executed.
    pub effects: Vec<ProcessId>,
}

/// When a provider wants to be asked again that asks for patience.
const PATIENCE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The phase in which a handler calls the provider.
pub const PHASE: &str = "effect";

/// The phase in which it reads much.
pub const READ: &str = "read";

/// Of so many refused rows, the places are longer than what a record always has room for.
const MANY: u8 = 9;

/// The phase in which it writes its row.
pub const ROW: &str = "row";

/// What an applied write means for the queues.
#[derive(Debug, Default)]
pub struct Consequences {
    pub violation: Option<Violation>,
    /// The lease of an execution that has begun: the table's stream leads to a check.
    pub check_at: Option<Timestamp>,
    /// What the table's stream shows.
    pub stream: Option<String>,
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
            writes: 0,
            has_stream: scenario.has_stream(),
            outbox: Outbox::default(),
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
        let undelivered: Vec<_> = self.undelivered().iter().map(OutboxMessage::id).collect();
        let messages = (&self.outbox, undelivered, self.request().is_some());
        digest(&(self.stamp, self.rows, self.has_body(clock), &self.effects, messages))
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
        self.current.as_ref().is_some_and(|record| record.is_escalated())
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
                self.outbox.commits(with);
                self.bodies.extend(with.iter().filter_map(|companion| match companion {
                    Companion::KeepBody(id, ..) => Some((*id, u64::MAX)),
                    _ => None,
                }));
            }
            self.writes += 1;
            if self.has_stream {
                then.stream = Some(outbox::batch(self.writes, self.current.as_ref(), record, with));
            }
            self.written(record, clock, &mut then);
        }
        (outcome, then)
    }

    fn written(&mut self, record: &Record, clock: u64, then: &mut Consequences) {
        let before = self.current.replace(record.clone());
        self.stamp = record_digest(record);
        let violation = written(before.as_ref(), record, Timestamp::from_millis(clock), self.retention);
        then.violation = then.violation.or(violation);
        if body_of(record).is_some() && !self.has_body(clock) {
            then.violation.get_or_insert(Violation::MissingBody);
        }
        if let Some(accepted) = record.accepted.filter(|_| matches!(record.state, State::Pending { .. })) {
            then.check_at = Some(accepted.claim_by);
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

    pub fn delete_body(&mut self, key: &RecordKey, id: BodyId) {
        self.bodies.remove(&id);
        let deleted = self.store.delete_body(key, id).now_or_never();
        assert!(matches!(deleted, Some(Ok(()))), "the store in memory answers at once");
    }

    /// The accepted request, if it is still kept.
    pub fn request(&self) -> Option<BodyId> {
        let request = self.current.as_ref()?.accepted?.request;
        self.bodies.contains_key(&request).then_some(request)
    }

    /// Whether a worker needs the accepted request, and it is gone.
    pub fn lacks_request(&self) -> bool {
        let is_needed =
            |record: &Record| record.accepted.is_some_and(|accepted| record.needs_request(accepted.request));
        self.request().is_none() && self.current.as_ref().is_some_and(is_needed)
    }

    /// Whether nothing needs the accepted request, and it is still kept.
    pub fn has_request_left(&self) -> bool {
        self.request().is_some_and(|id| self.current.as_ref().is_some_and(|record| !record.needs_request(id)))
    }

    /// Whether its answer is that accepted work was abandoned.
    pub fn is_abandoned(&self) -> bool {
        self.answer().is_some_and(|answer| answer.head == Head::Abandoned)
    }

    /// The messages that are not removed.
    pub fn undelivered(&self) -> Vec<OutboxMessage> {
        let stored = match (self.has_stream, &self.current) {
            (true, Some(record)) => self.store.undelivered(&record.key).now_or_never().and_then(Result::ok),
            _ => None,
        };
        stored.unwrap_or_default()
    }

    /// What the store answers if it is asked for them. The one in DynamoDB looks for what comes before the first that a query shows, in an
    /// atomic read.
    pub fn list_undelivered(&self) -> Result<Vec<OutboxMessage>, StoreErrorKind> {
        let is_seen = |message: &OutboxMessage| !self.outbox.unseen.contains(&message.id());
        let all = self.undelivered();
        match all.first().is_none_or(is_seen) || !all.iter().any(is_seen) {
            true => Ok(all.into_iter().take_while(is_seen).collect()),
            false => Err(StoreErrorKind::Contended),
        }
    }

    pub fn remove(&mut self, message: &OutboxMessage) {
        let _ = self.store.remove(message).now_or_never();
    }

    /// All that a sweep reads.
    pub fn scan(&self, now: Timestamp) -> Page {
        self.store.scan((0, 1), None, now, u32::MAX).now_or_never().and_then(Result::ok).unwrap_or_default()
    }

    /// Whether accepted work waits for a worker, or a message for its delivery, for so long that a sweep at this time asks for it.
    pub fn waits_since(&self, at: u64) -> bool {
        let grace = |time: Timestamp| time.plus(DELIVERY_GRACE).as_millis() <= at;
        let waits = |record: &Record| {
            let is_open = matches!(record.state, State::Pending { .. } | State::BetweenWorkers { .. });
            is_open && record.accepted.is_some() && grace(record.created_at)
        };
        !self.is_escalated() && self.current.as_ref().is_some_and(waits)
            || self.undelivered().iter().any(|message| grace(message.published_at))
    }

    /// Whether the execution of this number has its answer, or a phase with what it publishes, in the record.
    pub fn keeps_answer_of(&self, number: u64) -> bool {
        let phases = self.current.as_ref().and_then(|record| record.phases());
        let has_row = phases.is_some_and(|phases| phases.kept.iter().any(|phase| phase.name == ROW));
        let is_effect = |answer: &KeptAnswer| answer.head.status() == Some(201);
        let kept = self.answer().is_some_and(|answer| is_effect(answer) && answer.body_length() == number);
        has_row || kept
    }

    /// What an honest provider says.
    pub fn found(&self, scenario: &Scenario) -> Finding {
        let rows = scenario.rows;
        if scenario.puts_off {
            return Finding::AskAgain(Some(PATIENCE));
        }
        match self.effects.first() {
            Some(process) if matches!(scenario.guarded, Guarded::Resumed(_)) => {
                Finding::PhaseExecuted { phase: PHASE.to_owned(), result: (process + 1).to_string() }
            }
            None => Finding::NotFound,
            Some(process) => {
                let row = row(rows).filter(|_| rows == Rows::One);
                let messages = (0..scenario.messages).map(|place| outbox::message(process + 1, place));
                let writes: Vec<_> = row.into_iter().chain(messages).collect();
                let is_function = scenario.input.is_some() != scenario.mistakes_callers;
                let answer = match is_function {
                    true => Answer::payload(&(process + 1)).expect("a number is JSON"),
                    false => answer(201, process + 1),
                };
                match writes.is_empty() {
                    true => Finding::Executed(answer),
                    false => Finding::ExecutedWith(answer, writes),
                }
            }
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
        Rows::None | Rows::ManyRefused => None,
        Rows::One => Some(row),
        Rows::Refused => Some(row.condition("attribute_not_exists(closed)")),
        Rows::RefusedWithAnswer => {
            Some(row.condition("attribute_not_exists(closed)").or_answer(answer(409, 9)))
        }
    }
}

/// All rows of a phase.
pub fn rows(rows: Rows) -> Vec<DomainWrite> {
    if rows != Rows::ManyRefused {
        return row(rows).into_iter().collect();
    }
    let refused = |place| {
        let update = table().update(json!({ "id": format!("row {place}") }), "ADD n :one");
        update.value(":one", 1).condition("attribute_exists(id)")
    };
    (0..MANY).map(refused).collect()
}

/// The answer of this number: its body is so long.
pub fn answer(status: u16, number: u8) -> Answer {
    Answer::json(status, vec![b'a'; usize::from(number)])
}
