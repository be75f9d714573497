//! Guarded operations on a real store, called without HTTP.

use super::client::{Connect, client, connect};
use super::clock::WatchedClock;
use super::faults::{ANY, Fault, Faults};
use super::http::until;
use super::meter::Meter;
use super::tables::idempotency_table;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use lambda_idempotency::key::{IdempotencyKey, OperationName, RecordKey, Tenant};
use lambda_idempotency::operation::Operation;
use lambda_idempotency::record::{Answer, AnswerKind, Record, Work};
use lambda_idempotency::store::{Store, Unsettled, dynamodb::DynamoDbStore};
use lambda_idempotency::time::Timestamp;
use lambda_idempotency::world::{SystemWorld, World};
use lambda_idempotency::{
    engine::{Executor, Ownership, Replay, Report, Request},
    record::Says,
};
use lambda_idempotency::{
    fingerprint::{Content, FingerprintRule, Fingerprints},
    record::{Admission, Refusal},
};
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Barrier;
use uuid::Uuid;

pub type Item = HashMap<String, AttributeValue>;

/// The operation of every request here.
pub const OPERATION: &str = "create-payment";
pub const BODY: &str = r#"{"amountCents":1999,"currency":"EUR"}"#;

/// The settings of `operation()`, which are the library's defaults. Tests compute with these names.
pub const LEASE: Duration = Duration::from_secs(60);
pub const GRACE: Duration = Duration::from_secs(10);
pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// A table per test, a network with faults between it and the executor, and a clock. Clones share them.
#[derive(Clone)]
pub struct Guarded {
    pub faults: Faults,
    pub meter: Meter,
    pub clock: WatchedClock,
    pub table: String,
    /// Through the faults.
    pub client: Client,
    /// Bypasses the faults.
    pub undisturbed: Client,
}

impl Guarded {
    pub async fn on(endpoint: &str) -> Self {
        Self::through(endpoint, |connect| connect).await
    }

    /// With the SDK configured as the test needs it.
    pub async fn through(endpoint: &str, configure: impl FnOnce(Connect) -> Connect) -> Self {
        let (faults, meter) = (Faults::new(), Meter::new());
        let undisturbed = client(endpoint);
        let table = idempotency_table(&undisturbed).await;
        let client = configure(connect(endpoint).http_client(faults.clone()).meter(&meter)).client();
        Self { faults, meter, clock: WatchedClock::now_standing(), table, client, undisturbed }
    }

    pub fn store(&self) -> DynamoDbStore {
        DynamoDbStore::from_client(self.client.clone(), self.table.as_str())
    }

    pub fn undisturbed_store(&self) -> DynamoDbStore {
        DynamoDbStore::from_client(self.undisturbed.clone(), self.table.as_str())
    }

    /// The records with an alarm of which operators have not been told.
    pub async fn untold(&self) -> Vec<Record> {
        let (store, mut found, mut from) = (self.undisturbed_store(), Vec::new(), None);
        loop {
            let page = store.unresolved(None, from.as_ref()).await.expect("the store answers");
            found.extend(page.records.into_iter().filter(|record| record.untold().is_some()));
            from = page.next;
            if from.is_none() {
                return found;
            }
        }
    }

    /// An executor with the library's defaults.
    pub fn executor(&self) -> Executor {
        self.executor_of(operation())
    }

    pub fn executor_of(&self, operation: Operation) -> Executor {
        Executor::new(self.store(), operation).world(self.clock.clone())
    }

    /// An executor in another process. It bypasses the faults, and has a separate breaker.
    pub fn another(&self, operation: Operation) -> Executor {
        Executor::new(self.undisturbed_store(), operation).world(self.clock.clone())
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The record's item as it is in the table.
    pub async fn item(&self, key: &RecordKey) -> Option<Item> {
        let get = self.undisturbed.get_item().table_name(&self.table).consistent_read(true);
        get.set_key(Some(item_key(key))).send().await.expect("the table answers").item
    }

    /// Deletes the record's item, bypassing the library.
    pub async fn delete(&self, key: &RecordKey) {
        let delete = self.undisturbed.delete_item().table_name(&self.table);
        delete.set_key(Some(item_key(key))).send().await.expect("the table answers");
    }

    /// All items of the record's collection: the record, its body items and its audit lines.
    pub async fn collection(&self, key: &RecordKey) -> Vec<Item> {
        self.items(&key.partition_key()).await
    }

    /// All items with this partition key.
    pub async fn items(&self, partition_key: &str) -> Vec<Item> {
        let query = self.undisturbed.query().table_name(&self.table).consistent_read(true);
        let query = query
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", AttributeValue::S(partition_key.to_owned()));
        query.send().await.expect("the table answers").items.unwrap_or_default()
    }

    /// How many items the table has.
    pub async fn number_of_items(&self) -> usize {
        let scan = self.undisturbed.scan().table_name(&self.table).consistent_read(true);
        let items = scan.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        items.expect("the table answers").len()
    }

    /// Writes an item unchanged, bypassing the library.
    pub async fn write_raw(&self, item: Item) {
        let put = self.undisturbed.put_item().table_name(&self.table).set_item(Some(item));
        put.send().await.expect("the table takes the item");
    }

    /// Deletes an item, bypassing the library.
    pub async fn delete_raw(&self, item: &Item) {
        let key = ["pk", "sk"].map(|name| (name.to_owned(), item[name].clone()));
        let delete = self.undisturbed.delete_item().table_name(&self.table).set_key(Some(key.into()));
        delete.send().await.expect("the table answers");
    }

    pub async fn record(&self, key: &RecordKey) -> Option<Record> {
        self.undisturbed_store().load(key).await.expect("the store answers")
    }

    /// Why its record is escalated; `None` if it is not.
    pub async fn escalated_because(&self, key: &RecordKey) -> Option<String> {
        let record = self.record(key).await.filter(Record::is_escalated)?;
        Some(record.note.expect("it says why").to_string())
    }

    /// The result of `work`, whose `number`-th request to the store writes what it ends with. Fails if it ends before that is written.
    pub async fn ends_written<T>(&self, number: usize, work: impl Future<Output = T>) -> T {
        let (gate, before) = (Arc::new(Barrier::new(2)), self.faults.asked(ANY));
        let passing = std::iter::repeat_n(Fault::Pass, number - 1);
        self.faults.script(ANY, passing.chain([Fault::Meet(gate.clone())]));
        let mut work = pin!(work);
        let held = async {
            until(|| self.faults.asked(ANY) == before + number).await;
            // Whatever does not wait for the store ends meanwhile.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = &mut work => panic!("it ended before its record was written"),
            () = held => {}
        }
        tokio::join!(work, gate.wait()).0
    }

    /// The record's state, or `absent`.
    pub async fn state(&self, request: &Request) -> &'static str {
        self.record(&request.key).await.map_or("absent", |record| record.state.name())
    }
}

/// The primary key of the record's item.
pub fn item_key(key: &RecordKey) -> Item {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    Item::from([("pk".into(), text(&key.partition_key())), ("sk".into(), text("record"))])
}

pub fn operation() -> Operation {
    Operation::new(OPERATION)
}

/// A request of a new tenant with a new key.
pub fn request() -> Request {
    let key = record_key(&Uuid::new_v4().to_string(), &Uuid::new_v4().to_string());
    let fingerprints = fingerprints(BODY);
    Request {
        key,
        fingerprints,
        answer_kind: AnswerKind::Http,
        admission: Admission::ALWAYS,
        work: Work::Now,
        deadline: None,
        origin: None,
    }
}

/// The admission of a request whose key is too old, long after any other request of it.
pub fn too_old() -> Admission {
    let (reason, detail) = ("too-old", "The key is too old".into());
    Admission::Refused(Refusal { reason, detail, perhaps_in_flight: false })
}

pub fn record_key(tenant: &str, key: &str) -> RecordKey {
    RecordKey::new(
        Tenant::parse(tenant).expect("a tenant"),
        OperationName::parse(OPERATION).expect("an operation"),
        IdempotencyKey::parse(key).expect("a key"),
    )
}

/// The keys of all questions that are due, tenant by tenant.
pub async fn all_due(store: &impl Unsettled, now: Timestamp) -> Vec<RecordKey> {
    let (mut keys, mut from) = (Vec::new(), None);
    loop {
        let due =
            store.due(now, from.as_ref(), usize::MAX, &HashSet::new()).await.expect("the store answers");
        keys.extend(due.turns.into_iter().flat_map(|turn| turn.keys));
        from = due.next;
        if from.is_none() {
            return keys;
        }
    }
}

pub fn fingerprints(body: &str) -> Fingerprints {
    let content = Content::new("POST", "/payments", body.as_bytes()).json();
    content.fingerprints(OPERATION, &FingerprintRule::new(), &[])
}

pub fn completed(body: impl Into<Bytes>) -> Report {
    let headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("location".to_owned(), "/payments/pay_2f1c9a7e4b".to_owned()),
    ];
    Report::Completed(Answer::http(201, headers, body))
}

/// Incompressible bytes, always the same.
pub fn random(length: usize) -> Bytes {
    let (mut state, mut bytes) = (0x9e37_79b9_7f4a_7c15_u64, Vec::with_capacity(length + 8));
    while bytes.len() < length {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

/// A unique value: a revision, an attempt, a body's id.
pub fn fresh<T: From<[u8; 16]>>() -> T {
    SystemWorld.nonce().into()
}

#[track_caller]
pub fn owned(reserved: Result<Ownership, Says<Replay>>) -> Ownership {
    match reserved {
        Ok(owned) => owned,
        other => panic!("not ours but {other:?}"),
    }
}

#[track_caller]
pub fn replayed(reserved: Result<Ownership, Says<Replay>>) -> Replay {
    match reserved {
        Err(Says::Replay(replay)) => replay,
        other => panic!("no replay but {other:?}"),
    }
}

/// The replayed body. `None` if it was not kept or is gone.
pub fn body_of(replay: &Replay) -> Option<&Bytes> {
    assert!(!replay.body_omitted || replay.answer.body.is_empty(), "an omitted body is not empty");
    (!replay.body_omitted).then_some(&replay.answer.body)
}

/// The replayed body as text.
#[track_caller]
pub fn replayed_text(reserved: Result<Ownership, Says<Replay>>) -> String {
    let replay = replayed(reserved);
    let body = body_of(&replay).expect("the body was kept");
    String::from_utf8(body.to_vec()).expect("the body is text")
}

/// The outcome of a reservation as the caller sees it, as short text.
pub fn outcome_of(reserved: &Result<Ownership, Says<Replay>>) -> &'static str {
    reserved.as_ref().map_or_else(told, |_| "owned")
}

/// What a caller is told, as short text.
pub fn told(says: &Says<Replay>) -> &'static str {
    match says {
        Says::InFlight { .. } => "in flight",
        Says::MayNotBegin => "may not begin",
        Says::PerhapsInFlight => "perhaps in flight",
        Says::TooLate => "too late",
        says => says.name(),
    }
}

#[track_caller]
pub fn written(ended: Says<Replay>) {
    assert!(matches!(ended, Says::Own { .. } | Says::Released), "{ended:?}");
}
