//! The fixtures hold exactly what this version writes, and it can be read again: items, messages and records of the stream.
//!
//! So no format changes unnoticed. If one is to change, write the fixtures anew and review the difference: twice, because the stream is
//! made from the items, and the messages from the stream.
//! `WRITE_FORMATS=1 cargo test -p tests --test suite -- --test-threads=1 formats::`

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use lambda_idempotency::{
    async_trait,
    domain::Table,
    engine::{Executor, Ownership, PhaseError, Report, Request},
    key::RecordKey,
    operation::Operation,
    operator::{Correction, MessageSummary, Operator},
    queue::{MemoryQueue, WorkError},
    reconcile::{Finding, ProviderReport, Question, Reconciler, Reconciliation},
    record::{Answer, AnswerKind, Head, Note, Record},
    stale::Stale,
    store::{Item, Store, Unsettled, conformance::samples, dynamodb::DynamoDbStore, memory::MemoryStore},
    time::Timestamp,
    world::{ManualWorld, SystemWorld, World},
};
use serde_json::{Map, Value, json, value::RawValue};

use crate::support::{
    BoxError,
    clock::WatchedClock,
    embedded,
    guarded::{
        BODY, GRACE, Guarded, LEASE, RETENTION, completed, fingerprints, operation, owned, random, record_key,
    },
    tables::domain_table,
};

const NOW: Timestamp = Timestamp::from_secs(2_000_000_000);

const HOUR: Duration = Duration::from_secs(3600);

/// A world in which each run has the same ids. So have two tests: add what is new to the end of each, because the store remembers
/// the ids of transactions, and never confirms two under one id.
#[derive(Clone, Debug)]
struct Numbered {
    clock: WatchedClock,
    nonces: Arc<AtomicU64>,
}

impl World for Numbered {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn running(&self) -> Duration {
        self.clock.running()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(span)
    }

    fn nonce(&self) -> [u8; 16] {
        u128::from(self.nonces.fetch_add(1, Ordering::SeqCst)).to_be_bytes()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        SystemWorld.spawn(task);
    }
}

/// A reconciler with a fixed answer.
struct Fixed(Finding);

#[async_trait]
impl Reconciler for Fixed {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok(self.0.clone())
    }
}

/// Writes one of each, in a separate table.
struct Writer {
    guarded: Guarded,
    world: Numbered,
    queue: MemoryQueue,
    dead_letters: MemoryQueue,
    written: Map<String, Value>,
}

impl Writer {
    /// For the test of this number: two tests that send transactions under the same token to one store would disturb each other.
    async fn new(test: u64) -> Self {
        let guarded = Guarded::on(embedded::endpoint()).await;
        let nonces = Arc::new(AtomicU64::new((test << 32) + 1));
        let world = Numbered { clock: WatchedClock::at(NOW), nonces };
        let (queue, dead_letters) = (MemoryQueue::new(), MemoryQueue::new());
        Self { guarded, world, queue, dead_letters, written: Map::new() }
    }

    fn store(&self) -> DynamoDbStore {
        self.guarded.undisturbed_store()
    }

    fn executor_of(&self, operation: Operation) -> Executor {
        Executor::new(self.store(), operation).world(self.world.clone()).defer_reports_to(self.queue.clone())
    }

    fn reconciliation(&self, finding: Finding) -> Reconciliation {
        Reconciliation::new(self.store(), self.dead_letters.clone())
            .world(self.world.clone())
            .not_found_grace(Duration::ZERO)
            .questions_to(self.queue.clone())
            .operation(operation(), Fixed(finding))
    }

    fn stale(&self) -> Stale {
        Stale::new(self.store(), self.queue.clone(), self.queue.clone(), self.dead_letters.clone())
            .world(self.world.clone())
    }

    async fn begin(&self, key: &str) -> Ownership {
        owned(self.executor_of(operation()).reserve(&request(key)).await)
    }

    /// A worker of an operation that resumes.
    async fn begin_to_resume(&self, key: &str) -> Ownership {
        owned(self.executor_of(resuming()).reserve(&request(key)).await)
    }

    async fn end(&self, key: &str, report: Report) {
        self.executor_of(operation()).finish(self.begin(key).await, report).await;
    }

    /// A worker dies, and is found.
    async fn die(&self, key: &str, operation: Operation) -> Ownership {
        let dead = owned(self.executor_of(operation).reserve(&request(key)).await);
        self.world.clock.advance(LEASE + GRACE);
        self.stale().check(&request(key).key).await.expect("the store answers");
        dead
    }

    async fn correct(&self, key: &str, correction: Correction) {
        let operator = Operator::new(self.store()).world(self.world.clone());
        let seen = self.guarded.record(&request(key).key).await.expect("a record");
        operator.correct(&seen, &correction, "olga", "asked the bank").await.expect("an unknown outcome");
    }

    /// Another execution has begun since this one's worker counted as dead.
    async fn overtaken(&self, key: &str) -> (Ownership, Ownership) {
        let late = self.die(key, operation()).await;
        self.correct(key, Correction::NotExecuted { retain: None }).await;
        (late, self.begin(key).await)
    }

    /// The poll tells of its alarm.
    async fn told(&self, key: &str) {
        self.reconciliation(Finding::NotFound).ask_if_due(&request(key).key).await.expect("it is told of");
    }

    /// The items of the record's collection, under this name. The clock starts anew.
    async fn keep_items(&mut self, name: &str) {
        let items = self.guarded.collection(&request(name).key).await.into_iter().map(|item| {
            let mut item = json_of(item);
            // The members of a report beside its record have no order. The messages have the same form.
            let is_body = item["sk"]["S"].as_str().is_some_and(|sk| sk.starts_with("body#"));
            if name == "completed_with_alarm" && is_body {
                item["body"] = json!({ "B": "" });
            }
            item
        });
        self.written.insert(name.to_owned(), items.collect());
        self.world.clock.set(NOW);
    }

    /// The one message since the last one was kept, under this name. The clock starts anew.
    fn keep_message(&mut self, name: &str) {
        let messages = [self.queue.take(), self.dead_letters.take()].concat();
        let [(message, _)] = &messages[..] else { panic!("{name}: not one message but {messages:?}") };
        self.written.insert(name.to_owned(), serde_json::from_str(message).expect("JSON"));
        self.world.clock.set(NOW);
    }
}

fn request(key: &str) -> Request {
    Request {
        key: record_key("acme", key),
        fingerprints: fingerprints(BODY),
        answer_kind: AnswerKind::Http,
        admission: lambda_idempotency::record::Admission::ALWAYS,
        work: lambda_idempotency::record::Work::Now,
        deadline: None,
        origin: Some(Note::new("POST /payments")),
    }
}

/// An operation that waits an hour for a retry.
fn resuming() -> Operation {
    operation().resumes(["intent", "charge", "stock", "refund", "quote", "shipment"], HOUR)
}

/// A first phase, whose call charges.
async fn charge(ours: &Ownership) -> Result<Value, PhaseError> {
    let charge = ours.execution().phase("charge").keys_live(HOUR);
    charge.call(async |_| Ok(json!({ "id": "ch_1", "cents": 1999 }))).await
}

fn unsure() -> Report {
    Report::perhaps("handler_failed")
}

fn paid() -> Answer {
    Answer::json(201, r#"{"id":"pay_1"}"#)
}

/// A body that is kept in its record, compressed.
fn compressible() -> Bytes {
    vec![b'7'; 2_000].into()
}

fn json_of(item: HashMap<String, AttributeValue>) -> Value {
    serde_json::to_value(serde_dynamo::Item::from(item)).expect("an item")
}

fn attributes(item: &Value) -> HashMap<String, AttributeValue> {
    serde_json::from_value::<serde_dynamo::Item>(item.clone()).expect("an item").into()
}

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "suite/fixtures/formats", name].iter().collect()
}

fn fixture(name: &str) -> Map<String, Value> {
    let text = std::fs::read_to_string(path(name)).expect("a fixture");
    serde_json::from_str(&text).expect("JSON")
}

/// Compares what was written with the fixture. With `WRITE_FORMATS`, writes the fixture anew.
fn assert_unchanged(name: &str, written: Map<String, Value>) {
    if std::env::var_os("WRITE_FORMATS").is_some() {
        let text = serde_json::to_string_pretty(&written).expect("JSON") + "\n";
        return std::fs::write(path(name), text).expect("a writable folder");
    }
    let expected = fixture(name);
    for (entry, written) in &written {
        assert_eq!(Some(written), expected.get(entry), "{name}: {entry}");
    }
    assert_eq!(written.len(), expected.len(), "{name}");
}

// T36
#[tokio::test]
async fn items_are_written_as_in_the_fixtures() {
    let mut writer = Writer::new(0).await;
    let keyed = |key: &str| request(key).key;

    for name in ["pending", "completed_abandoned"] {
        let mut pending = samples::pending(keyed(name), fingerprints(BODY), NOW);
        (pending.revision, pending.attempt) = (writer.world.nonce().into(), writer.world.nonce().into());
        pending.accepted.as_mut().expect("it was accepted").request = writer.world.nonce().into();
        writer.store().put(None, &pending, &[]).await.expect("the store answers");
    }
    writer.keep_items("pending").await;
    writer.world.clock.advance(HOUR * 24 * 30);
    writer.stale().check(&keyed("completed_abandoned")).await.expect("the store answers");
    writer.keep_items("completed_abandoned").await;

    drop(writer.begin("in_progress").await);
    writer.keep_items("in_progress").await;
    drop(writer.begin("in_progress_claimed").await);
    let reported = ProviderReport::executed(201, Fixed(Finding::Executed(paid())));
    writer
        .reconciliation(Finding::NotFound)
        .reported(&keyed("in_progress_claimed"), &reported)
        .await
        .expect("provider_report");
    writer.keep_items("in_progress_claimed").await;
    let (late, _) = writer.overtaken("in_progress_contested").await;
    writer.executor_of(operation()).finish(late, completed("{}")).await;
    writer.keep_items("in_progress_contested").await;

    writer.end("completed", completed(r#"{"id":"pay_1"}"#)).await;
    writer.keep_items("completed").await;
    writer.end("completed_with_body_item", completed(random(1_500))).await;
    writer.keep_items("completed_with_body_item").await;
    writer.end("completed_compressed", completed(compressible())).await;
    writer.keep_items("completed_compressed").await;
    let payload = Answer { head: Head::Payload, body: Bytes::from_static(b"[1]") };
    let of_function = Request { answer_kind: AnswerKind::Function, ..request("completed_payload") };
    let executor = writer.executor_of(operation());
    executor.finish(owned(executor.reserve(&of_function).await), Report::Completed(payload)).await;
    writer.keep_items("completed_payload").await;
    let accounts = domain_table(&writer.guarded.undisturbed).await;
    let ours = writer.begin("completed_with_writes").await;
    ours.execution().write(accounts.put(json!({ "id": "a", "cents": 1 }))).expect("a write");
    writer.executor_of(operation()).finish(ours, completed("{}")).await;
    writer.keep_items("completed_with_writes").await;
    writer.end("completed_by_operator", unsure()).await;
    let executed = Correction::Executed { answer: paid(), retain: Some(RETENTION * 7), messages: Vec::new() };
    writer.correct("completed_by_operator", executed).await;
    writer.keep_items("completed_by_operator").await;
    writer.end("completed_and_forgotten", completed("{}")).await;
    writer.correct("completed_and_forgotten", Correction::ForgetAnswer).await;
    writer.keep_items("completed_and_forgotten").await;
    let (late, second) = writer.overtaken("completed_with_alarm").await;
    for execution in [second, late] {
        writer.executor_of(operation()).finish(execution, completed("{}")).await;
    }
    let request = request("completed_with_alarm");
    let key = request.key.downstream_key(&fingerprints(BODY).current(), "charge");
    let reported = ProviderReport::executed(201, Fixed(Finding::NotFound)).under("charge", &key);
    let reported = reported.effect_id("ch_1");
    let reconciliation = writer.reconciliation(Finding::NotFound);
    reconciliation.reported(&keyed("completed_with_alarm"), &reported).await.expect("it is named");
    writer.told("completed_with_alarm").await;
    writer.keep_items("completed_with_alarm").await;

    writer.end("released", Report::NotExecuted(None)).await;
    writer.keep_items("released").await;
    writer.end("not_begun", Report::NotBegun).await;
    writer.keep_items("not_begun").await;
    writer.die("released_by_certainty", operation().effects_in_transaction()).await;
    writer.keep_items("released_by_certainty").await;
    for (name, finding) in
        [("released_by_provider", Finding::NotExecuted), ("released_by_assumption", Finding::NotFound)]
    {
        writer.end(name, unsure()).await;
        writer.reconciliation(finding).ask(&keyed(name)).await.expect("asked");
        writer.keep_items(name).await;
    }

    writer.end("unknown", unsure()).await;
    writer.keep_items("unknown").await;
    writer.die("unknown_lease_over", operation()).await;
    writer.keep_items("unknown_lease_over").await;
    let (late, other) = writer.overtaken("unknown_contested").await;
    writer.executor_of(operation()).finish(late, completed("{}")).await;
    writer.executor_of(operation()).finish(other, Report::NotExecuted(None)).await;
    writer.keep_items("unknown_contested").await;
    writer.end("unknown_escalated", unsure()).await;
    let unregistered = Reconciliation::new(writer.store(), MemoryQueue::new()).world(writer.world.clone());
    unregistered.ask_if_due(&keyed("unknown_escalated")).await.expect("escalated");
    writer.keep_items("unknown_escalated").await;

    let ours = writer.begin_to_resume("in_progress_with_phases").await;
    charge(&ours).await.expect("kept");
    writer.keep_items("in_progress_with_phases").await;
    let ours = writer.begin_to_resume("completed_with_phases").await;
    charge(&ours).await.expect("kept");
    ours.execution().commit("stock", Vec::new()).await.expect("kept");
    let refund = ours.execution().phase("refund").call(async |_| {
        ours.execution().refer("stripe", "re_1").await?;
        Ok(json!(1999))
    });
    refund.await.expect("kept");
    writer.executor_of(resuming()).finish(ours, completed("{}")).await;
    writer.keep_items("completed_with_phases").await;
    // Its result is too long to be kept, and the next call may have been made.
    let ours = writer.begin_to_resume("between_workers").await;
    charge(&ours).await.expect("kept");
    writer.world.clock.advance(Duration::from_secs(1));
    let quote = ours.execution().phase("quote").call(async |_| Ok("7".repeat(3_000)));
    quote.await.expect("kept");
    let shipment = ours
        .execution()
        .phase("shipment")
        .keys_live(HOUR * 24)
        .call(async |_| Err::<(), _>("no answer".into()));
    shipment.await.expect_err("no answer");
    writer.executor_of(resuming()).finish(ours, completed("{}")).await;
    writer.keep_items("between_workers").await;
    // Nothing is kept, but a phase is reported. Then nobody retries in time.
    let ours = writer.begin_to_resume("between_workers_escalated").await;
    let key = ours.execution().downstream_key("charge");
    let reported = ProviderReport::phase_executed("charge", &key, &json!({ "id": "ch_1" }));
    let reconciliation = writer.reconciliation(Finding::NotFound);
    let noted = reconciliation.reported(&keyed("between_workers_escalated"), &reported).await;
    noted.expect("noted");
    writer.executor_of(resuming()).finish(ours, Report::NotExecuted(None)).await;
    writer.world.clock.advance(HOUR);
    reconciliation.ask_if_due(&keyed("between_workers_escalated")).await.expect("escalated");
    writer.keep_items("between_workers_escalated").await;

    writer.end("unknown_asked_anew", unsure()).await;
    let asked = writer.reconciliation(Finding::AskAgain(None)).ask(&keyed("unknown_asked_anew")).await;
    asked.expect("asked");
    writer.keep_items("unknown_asked_anew").await;

    assert_unchanged("items.json", writer.written);
}

// T36
#[tokio::test]
async fn every_item_is_read_as_it_was_written() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (store, operator) = (guarded.undisturbed_store(), Operator::new(guarded.undisturbed_store()));
    for (name, items) in fixture("items.json") {
        for item in items.as_array().expect("items") {
            guarded.write_raw(attributes(item)).await;
        }
        let of_kind = |prefix: &str| {
            let items = items.as_array().into_iter().flatten();
            items.filter(|item| item["sk"]["S"].as_str().unwrap().starts_with(prefix)).collect::<Vec<_>>()
        };
        let record = guarded.record(&request(&name).key).await.expect("a record");
        let again: serde_dynamo::Item = serde_dynamo::to_item(Item::from(&record)).expect("an item");
        assert_eq!(serde_json::to_value(again).expect("an item"), *of_kind("record")[0], "{name}");
        let lines = store.audit_lines(&record.key).await.expect("readable");
        let lines = lines.iter().map(|line| serde_json::to_value(line).expect("JSON"));
        let written = of_kind("audit#").into_iter().map(|item| {
            let mut line: Map<_, _> = serde_dynamo::from_item(attributes(item)).expect("a line");
            for name in ["pk", "sk", "schema"] {
                line.remove(name).expect("an item of this table");
            }
            Value::from(line)
        });
        assert_eq!(lines.collect::<Vec<_>>(), written.collect::<Vec<_>>(), "{name}");
        let body = match &*name {
            "completed_with_body_item" => random(1_500),
            "completed_compressed" => compressible(),
            _ => continue,
        };
        let answer = operator.answer(&record).await.expect("readable").expect("an answer");
        assert_eq!(answer.body, body, "{name}");
        let is_apart = name == "completed_with_body_item";
        assert_eq!(of_kind("body#").len(), usize::from(is_apart), "{name}");
        let encoding = if is_apart { "identity" } else { "zlib" };
        assert_eq!(of_kind("record")[0]["body_encoding"]["S"], encoding, "{name}");
    }
}

// T36, T50
#[tokio::test]
async fn a_sweeps_checkpoint_is_written_as_in_the_fixture_and_continued() {
    const SECOND: Duration = Duration::from_secs(1);
    let writer = Writer::new(1).await;
    // More than a page, in one part of the table.
    for number in 0..4 {
        let (body, sk) = ("7".repeat(390_000), format!("body#{number}"));
        let item =
            json!({ "pk": { "S": "acme#create-payment#k" }, "sk": { "S": sk }, "body": { "S": body } });
        writer.guarded.write_raw(attributes(&item)).await;
    }
    let stale = writer.stale().sweep_units_per_second(0.1);
    let the_time_is_up = async {
        writer.world.clock.slept(4 * SECOND, 1).await;
        writer.world.clock.advance(4 * SECOND);
    };
    let (swept, ()) = tokio::join!(stale.sweep(8 * SECOND), the_time_is_up);
    swept.expect("the store answers");
    let items = writer.guarded.items("sweep").await.into_iter().map(json_of).collect();
    assert_unchanged("checkpoint.json", Map::from_iter([("sweep".to_owned(), items)]));

    let reader = Writer::new(2).await;
    for item in fixture("checkpoint.json")["sweep"].as_array().expect("items") {
        assert!(item["progress"]["S"].as_str().is_some_and(|progress| progress.contains("after")), "{item}");
        reader.guarded.write_raw(attributes(item)).await;
    }
    let checkpoint =
        async || reader.store().load_checkpoint("sweep").await.expect("readable").expect("a checkpoint");
    let before = checkpoint().await;
    reader.world.clock.advance(HOUR);
    // Not the revisions of the fixture again.
    reader.world.nonces.store(1_000, Ordering::SeqCst);
    reader.stale().sweep(Duration::ZERO).await.expect("the store answers");
    let after = checkpoint().await;
    assert_ne!(before.revision, after.revision);
    assert_eq!(before.progress, after.progress, "it does not begin anew");
}

// T36, T50
#[tokio::test]
async fn the_switch_is_written_as_in_the_fixture_and_read() {
    let writer = Writer::new(1).await;
    let operator = Operator::new(writer.store()).world(writer.world.clone());
    operator.switch_not_found(None, false, "olga@bank", "INC-17").await.expect("written").expect("it is new");
    let name = "not-found-releases";
    let items = writer.guarded.items(name).await.into_iter().map(json_of).collect();
    assert_unchanged("switch.json", Map::from_iter([(name.to_owned(), items)]));

    let reader = Writer::new(2).await;
    for item in fixture("switch.json")[name].as_array().expect("items") {
        reader.guarded.write_raw(attributes(item)).await;
    }
    let switch = reader.store().not_found_switch().await.expect("readable").expect("a switch");
    assert_eq!((switch.releases, &*switch.who, &*switch.reason), (false, "olga@bank", "INC-17"));
    assert_eq!(reader.store().not_found_lines().await.expect("readable"), [switch.line()]);
    // One of another version is not read: whether it releases is not known.
    let mut newer = fixture("switch.json")[name]
        .as_array()
        .expect("items")
        .iter()
        .find(|it| it["sk"]["S"] == "switch")
        .expect("a switch")
        .clone();
    newer["schema"]["N"] = json!("1000");
    reader.guarded.write_raw(attributes(&newer)).await;
    reader.store().not_found_switch().await.expect_err("it is of another version");
}

/// A record of the stream, as Lambda delivers it.
fn change(number: u32, name: &str, items: &Map<String, Value>) -> Value {
    let image = items[name].as_array().expect("items").iter().find(|item| item["sk"]["S"] == "record");
    let image = image.expect("a record");
    json!({
        "eventID": format!("{number:032}"),
        "eventName": "MODIFY",
        "eventSource": "aws:dynamodb",
        "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/idempotency/stream/2033-05-18T03:33:20.000",
        "dynamodb": {
            "Keys": { "pk": image["pk"], "sk": image["sk"] },
            "NewImage": image,
            "SequenceNumber": format!("{number:021}"),
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    })
}

fn raw(records: &[&Value]) -> Vec<Box<RawValue>> {
    records.iter().map(|record| RawValue::from_string(record.to_string()).expect("JSON")).collect()
}

// T36, T19
#[tokio::test]
async fn records_of_the_stream_are_read_in_each_state() {
    let items = fixture("items.json");
    let numbered = items.keys().zip(1..).map(|(name, number)| (name.clone(), change(number, name, &items)));
    assert_unchanged("stream.json", numbered.collect());
    for (name, change) in fixture("stream.json") {
        let (checks, dead_letters) = (MemoryQueue::new(), MemoryQueue::new());
        let stale = Stale::new(MemoryStore::new(), checks.clone(), MemoryQueue::new(), dead_letters.clone())
            .world(ManualWorld::at(NOW));
        assert!(stale.stream(&raw(&[&change]), HOUR).await.is_empty());
        let image = &change["dynamodb"]["NewImage"];
        let look_at = match (&*name, image["lease_until"]["N"].as_str()) {
            ("pending", None) => Some(NOW.plus(HOUR)),
            (_, until) => until.map(|until| Timestamp::from_millis(until.parse().expect("milliseconds"))),
        };
        let expected = look_at.map(|look_at| {
            let key = &image["pk"]["S"];
            let check = json!({ "version": 1, "kind": "check", "key": key, "look_at": look_at.as_millis() });
            (check, look_at.since(NOW))
        });
        assert_eq!(expected.is_some(), name == "pending" || name.starts_with("in_progress"), "{name}");
        let checks = checks.take().into_iter();
        let checks = checks.map(|(check, delay)| (serde_json::from_str(&check).expect("JSON"), delay));
        assert_eq!(checks.collect::<Vec<(Value, _)>>(), Vec::from_iter(expected), "{name}");
        assert_eq!(dead_letters.take(), [], "{name}");
    }
}

// T36
#[tokio::test]
async fn messages_are_written_as_in_the_fixtures() {
    let (mut writer, stream) = (Writer::new(3).await, fixture("stream.json"));
    let keyed = |key: &str| request(key).key;

    writer.stale().stream(&raw(&[&stream["in_progress"]]), HOUR).await;
    writer.keep_message("check");
    let mut damaged = stream["in_progress"].clone();
    damaged["dynamodb"]["NewImage"]["state"] = json!({ "S": "a_state_of_tomorrow" });
    writer.stale().stream(&raw(&[&damaged]), HOUR).await;
    writer.keep_message("poison");
    writer.stale().sweep(Duration::ZERO).await.expect("the store answers");
    writer.keep_message("sweep");

    writer
        .written
        .insert("ask".into(), serde_json::from_str(&MessageSummary::ask(&keyed("ask"))).expect("JSON"));
    let ours = writer.begin("provider_report").await;
    let reported = ProviderReport::executed(201, Fixed(Finding::NotFound))
        .under("charge", &ours.execution().downstream_key("charge"))
        .made_at(NOW);
    writer
        .reconciliation(Finding::NotFound)
        .reported(&keyed("provider_report"), &reported)
        .await
        .expect("provider_report");
    writer.keep_message("provider_report");
    writer.end("contradiction", Report::Completed(Answer::json(402, "{}"))).await;
    let reported = ProviderReport::executed(201, Fixed(Finding::NotFound));
    writer
        .reconciliation(Finding::NotFound)
        .reported(&keyed("contradiction"), &reported)
        .await
        .expect("provider_report");
    writer.keep_message("contradiction");

    // The record has been gone for so long that it may have been settled.
    let accounts = domain_table(&writer.guarded.undisturbed).await;
    for (name, writes) in [("deferred_report", 0), ("deferred_report_with_writes", 1)] {
        let ours = writer.begin(name).await;
        for _ in 0..writes {
            let take = accounts.update(json!({ "id": "a" }), "SET cents = cents - :cents");
            let take =
                take.condition("cents >= :cents").value(":cents", 30).or_answer(Answer::json(409, "{}"));
            ours.execution().write(take).expect("a write");
        }
        writer.guarded.delete(&keyed(name)).await;
        writer.world.clock.advance(RETENTION * 2);
        writer.executor_of(operation()).finish(ours, Report::Completed(paid())).await;
        writer.keep_message(name);
        // The table's name is new in each run.
        let named = writer.written[name].to_string().replace(accounts.name(), "accounts");
        writer.written.insert(name.to_owned(), serde_json::from_str(&named).expect("JSON"));
    }
    let report = writer.written["deferred_report"].to_string();
    writer.world.clock.set(NOW.plus(RETENTION * 2));
    writer.reconciliation(Finding::NotFound).receive(&report).await.expect("escalated");
    writer.keep_message("contradiction_gone");

    let late = writer.die("contradiction_with_report", operation()).await;
    let refused =
        Correction::Executed { answer: Answer::json(402, "{}"), retain: None, messages: Vec::new() };
    writer.correct("contradiction_with_report", refused).await;
    writer.executor_of(operation()).finish(late, Report::Completed(paid())).await;
    writer.told("contradiction_with_report").await;
    writer.keep_message("contradiction_with_report");

    let (late, second) = writer.overtaken("contradiction_double_execution").await;
    for execution in [second, late] {
        writer.executor_of(operation()).finish(execution, Report::Completed(paid())).await;
    }
    writer.told("contradiction_double_execution").await;
    writer.keep_message("contradiction_double_execution");

    let ours = writer.begin_to_resume("deferred_report_of_a_phase").await;
    ours.execution().commit("intent", Vec::new()).await.expect("kept");
    writer.guarded.delete(&keyed("deferred_report_of_a_phase")).await;
    charge(&ours).await.expect_err("there is no record");
    writer.keep_message("deferred_report_of_a_phase");

    assert_unchanged("messages.json", writer.written);
}

/// The table of the domain writes in the messages.
fn accounts() -> Table {
    Table::new("accounts", "id")
}

/// A store with one account, and without records.
fn store() -> MemoryStore {
    let store = MemoryStore::new();
    store.put_item(&accounts(), json!({ "id": "a", "cents": 100 }));
    store
}

/// Delivers a message to its function, or else to the reconcile function.
async fn deliver(store: &MemoryStore, message: &Value, queue: Option<&str>) -> Result<(), WorkError> {
    let world = ManualWorld::at(NOW.plus(HOUR));
    if queue == Some("checks") {
        let [checks, sweeps, dead_letters] = [(); 3].map(|()| MemoryQueue::new());
        let stale = Stale::new(store.clone(), checks, sweeps, dead_letters).world(world);
        return stale.receive(&message.to_string(), HOUR).await;
    }
    let reconciliation = Reconciliation::new(store.clone(), MemoryQueue::new()).world(world);
    let reconciliation = reconciliation.operation(operation(), Fixed(Finding::NotFound));
    reconciliation.receive(&message.to_string()).await
}

/// The record of a deferred report as its worker last saw it.
fn begun(message: &Value) -> Record {
    let mut item = message["item"].clone();
    if is_of_a_phase(message) {
        item["phases"]["L"].as_array_mut().expect("phases").pop();
    }
    item["state"] = json!({ "S": "in_progress" });
    item["lease_until"] = json!({ "N": NOW.plus(LEASE).as_millis().to_string() });
    serde_dynamo::from_item::<_, Item>(attributes(&item)).expect("an item").try_into().expect("a record")
}

fn is_of_a_phase(message: &Value) -> bool {
    message["kind"] == "deferred_report" && message["ended"].is_null()
}

/// The record's item after its deferred report was applied: what its worker wanted, written now.
fn applied(message: &Value) -> Value {
    let (now, mut item) = (NOW.plus(HOUR), message["item"].clone());
    if is_of_a_phase(message) {
        item["lease_until"] = json!({ "N": NOW.plus(LEASE).as_millis().to_string() });
        return item;
    }
    item["completed_at"]["N"] = json!(now.as_millis().to_string());
    item["expires_at"]["N"] = json!(now.plus(RETENTION).as_secs_rounded_up().to_string());
    if message["writes"].is_array() {
        item["with_writes"] = json!({ "BOOL": true });
    }
    item
}

// T36: a message in a queue is applied whole, or becomes a dead letter. It is never applied in part.
#[tokio::test]
async fn every_message_is_read_and_none_of_another_version() {
    let messages = fixture("messages.json");
    for (name, message) in &messages {
        let dead_letter = MessageSummary::read(&message.to_string());
        let kind = dead_letter.kind.as_deref().expect("a kind");
        assert!(name.starts_with(kind), "{name}");
        let queue = match kind {
            "check" | "sweep" => Some("checks"),
            "ask" | "provider_report" => Some("reconcile"),
            "deferred_report" => Some("deferred-reports"),
            _ => None,
        };
        assert_eq!((dead_letter.queue, dead_letter.record.is_some()), (queue, kind != "sweep"), "{name}");
        let (store, has_writes) = (store(), message["writes"].is_array());
        // Over a record that is gone, neither domain writes nor phases are applied.
        let has_record = has_writes || is_of_a_phase(message);
        if has_record {
            store.put(None, &begun(message), &[]).await.expect("the store answers");
        }
        let received = deliver(&store, message, queue).await;
        assert_eq!(received.is_err(), queue.is_none(), "{name}: {received:?}");
        let key = message["key"].as_str().and_then(RecordKey::from_partition_key);
        let load = async |store: &MemoryStore| match &key {
            Some(key) => store.load(key).await.expect("the store answers"),
            None => None,
        };
        let cents = |store: &MemoryStore| {
            let account: Value =
                store.item(&accounts(), json!({ "id": "a" })).expect("an account").expect("an account");
            account["cents"].as_u64()
        };
        let written = load(&store).await.map(|record| {
            let item: serde_dynamo::Item = serde_dynamo::to_item(Item::from(&record)).expect("an item");
            let mut item = serde_json::to_value(item).expect("an item");
            // New in each write.
            item["revision"] = message["item"]["revision"].clone();
            if !has_record {
                // There was no record, so it begins a generation.
                item["created_at"] = message["item"]["created_at"].clone();
            }
            item
        });
        assert_eq!(written, (kind == "deferred_report").then(|| applied(message)), "{name}");
        let taken = if has_writes { 30 } else { 0 };
        assert_eq!(cents(&store), Some(100 - taken), "{name}");

        for version in [json!(0), json!(2), json!("1"), Value::Null] {
            let mut other = message.clone();
            other["version"] = version;
            assert_eq!(MessageSummary::read(&other.to_string()).queue, None, "{other}");
            for queue in ["checks", "reconcile"] {
                let store = self::store();
                let received = deliver(&store, &other, Some(queue)).await;
                assert!(matches!(received, Err(WorkError::Malformed(_))), "{other}: {received:?}");
                assert_eq!((load(&store).await, cents(&store)), (None, Some(100)), "{other}");
            }
        }
    }
    assert_eq!(messages.len(), 12);
}
