//! Whatever an earlier version stored, or left in a queue, can still be read. The fixtures hold examples.

use std::{collections::HashMap, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::{
    async_trait,
    fingerprint::{Content, FingerprintRule},
    http::{Idempotency, SingleTenant},
    internal::{Fingerprints, MessageSummary, Operator, Stale},
    key::RecordKey,
    operation::Operation,
    queue::{MemoryQueue, Queue},
    reconcile::{Finding, Question, Reconciler, Reconciliation},
    record::{Head, KeptAnswer, Record, State},
    store::{Store, dynamodb::DynamoDbStore, memory::MemoryStore},
    time::Timestamp,
    world::ManualWorld,
};
use serde_json::{Value, json, value::RawValue};
use tower::Layer;

use crate::support::{
    BoxError,
    guarded::Guarded,
    http::{Resolver, api, caller, send, tenant},
    lambda, on_each_store,
};

on_each_store!(
    items_of_an_earlier_version_are_read,
    requests_of_an_earlier_version_are_reported_from_others,
    a_retry_of_a_request_that_an_earlier_version_took_is_replayed,
    downstream_keys_of_an_earlier_version_stay_the_same,
    reports_of_an_earlier_version_are_applied,
    audit_lines_of_an_earlier_version_are_read
);

/// A time at which these records are still kept and their leases are over.
const NOW: Timestamp = Timestamp::from_millis(2_000_000_100_123);

fn fixture(text: &str) -> Vec<Value> {
    serde_json::from_str(text).expect("a fixture")
}

fn items() -> Vec<Value> {
    fixture(include_str!("fixtures/earlier/items.json"))
}

fn messages() -> Vec<Value> {
    fixture(include_str!("fixtures/earlier/messages.json"))
}

fn attributes(item: &Value) -> HashMap<String, AttributeValue> {
    serde_json::from_value::<serde_dynamo::Item>(item.clone()).expect("an item").into()
}

/// A record as the reader sees it, in the form of the fixtures.
async fn found(store: &DynamoDbStore, record: &Record) -> Value {
    let mut found = json!({
        "tenant": record.key.tenant().as_str(),
        "operation": record.key.operation().as_str(),
        "key": record.key.idempotency_key().as_str(),
        "state": record.state.name(),
        "revision": record.revision.to_string(),
        "attempt": record.attempt.to_string(),
        "attempts": record.attempts,
        "fingerprint": hex(record.fingerprint.digest()),
        "fingerprint_rule": record.fingerprint.rule(),
        "created_at": record.created_at.as_millis(),
    });
    match &record.state {
        State::InProgress { lease_until } => found["lease_until"] = lease_until.as_millis().into(),
        State::FailedRetryable { failed_at, expires_at, .. } => {
            found["failed_at"] = failed_at.as_millis().into();
            found["expires_at"] = expires_at.as_millis().into();
        }
        State::Unknown { cause, since, reconcile_at, asked } => {
            found["cause"] = cause.name().into();
            found["since"] = since.as_millis().into();
            found["reconcile_at"] = reconcile_at.as_millis().into();
            found["asked"] = (*asked).into();
        }
        State::Completed { answer, completed_at, expires_at, .. } => {
            found["completed_at"] = completed_at.as_millis().into();
            found["expires_at"] = expires_at.as_millis().into();
            let Head::Http { status, headers } = &answer.head else { panic!("{:?}", answer.head) };
            found["status"] = (*status).into();
            found["headers"] = json!(headers);
            found["body"] = body(store, record, answer).await;
        }
        _ => {}
    }
    found
}

async fn body(store: &DynamoDbStore, record: &Record, answer: &KeptAnswer) -> Value {
    let mut body = json!({ "place": answer.body_place(), "length": answer.body_length() });
    if let Some(id) = answer.body_id() {
        body["id"] = id.to_string().into();
    }
    if answer.body_place() == "record" {
        // It was decoded, so its encoding was understood.
        let answer = Operator::new(store.clone()).answer(record).await.expect("readable").expect("an answer");
        body["text"] = String::from_utf8(answer.body.to_vec()).expect("text").into();
    }
    body
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// T36
async fn items_of_an_earlier_version_are_read(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let store = guarded.undisturbed_store();
    let items = items();
    for fixture in &items {
        let record = stored(&guarded, fixture).await;
        let mut expected = fixture["expect"].clone();
        let about = expected.as_object_mut().expect("an object");
        // These have their own tests.
        about.retain(|name, _| !["requests", "downstream_keys"].contains(&name.as_str()));
        if let Some(body) = about.get_mut("body") {
            body.as_object_mut()
                .expect("an object")
                .retain(|part, _| !["object", "encoding"].contains(&part.as_str()));
        }
        assert_eq!(found(&store, &record).await, expected, "{}", fixture["name"]);
    }
    assert_eq!(items.len(), 22);
}

/// Stores a fixture's item, and reads it as a record.
async fn stored(guarded: &Guarded, fixture: &Value) -> Record {
    guarded.write_raw(attributes(&fixture["item"])).await;
    let key = fixture["item"]["pk"]["S"].as_str().expect("a partition key");
    let key = RecordKey::from_partition_key(key).expect("one of ours");
    guarded.record(&key).await.expect("there")
}

// R3, T36: a retry that arrives after the deployment is still the same request.
async fn requests_of_an_earlier_version_are_reported_from_others(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let mut compared = 0;
    for fixture in items() {
        let record = stored(&guarded, &fixture).await;
        for request in fixture["expect"]["requests"].as_array().into_iter().flatten() {
            let matches = |body: &str| {
                let left_out = request["left_out"].as_array().expect("pointers").iter();
                let rule = left_out.fold(FingerprintRule::new(), |rule, pointer| {
                    rule.leave_out(pointer.as_str().expect("a pointer"))
                });
                let target = request["target"].as_str().expect("a target");
                let content = Content::new("POST", "/", body.as_bytes()).earlier_target(target);
                let json = request["json"].as_bool().expect("whether it is JSON");
                let content = if json { content.json() } else { content };
                let operation = record.key.operation().as_str();
                Fingerprints::of(operation, &content, &rule, &[]).matches(&record.fingerprint)
            };
            let body = request["body"].as_str().expect("a body");
            let other = body.replacen("1999", "1998", 1);
            assert_ne!(body, other, "the body has this amount");
            assert_eq!(matches(body), Some(true), "{}: {body}", fixture["name"]);
            assert_eq!(matches(&other), Some(false), "{}: {other}", fixture["name"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 3);
}

// R3, T36: a request that the guard of an earlier version took.
async fn a_retry_of_a_request_that_an_earlier_version_took_is_replayed(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let fixture =
        items().into_iter().find(|item| item["name"] == "completed_of_a_request").expect("the item");
    let record = stored(&guarded, &fixture).await;
    let body = fixture["expect"]["requests"][0]["body"].as_str().expect("a body").to_owned();
    let rule = FingerprintRule::new().leave_out("/clientTime").leave_out("/meta/traceId");
    let operation = Operation::new("create-payment").fingerprint(rule);
    let guard = Idempotency::new(guarded.store(), operation).world(ManualWorld::at(NOW));
    let app = api(guard.clone().tenant(caller as Resolver), |_, _| async { "run again" });
    let retry = |body: String| {
        let request = axum::http::Request::post("/payments?dryRun=false").extension(tenant("olga"));
        let request = request.header("idempotency-key", record.key.idempotency_key().as_str());
        request.header("content-type", "application/json; charset=utf-8").body(body.into()).unwrap()
    };
    let replay = send(&app, retry(body.clone())).await;
    assert_eq!((replay.status, replay.replayed()), (201, true), "{replay:?}");
    send(&app, retry(body.replacen("1999", "1998", 1))).await.assert_problem(422, "key-reused");

    // An event of an HTTP API with a named stage: that version took the stage for a part of the path.
    let event = |raw_path: &str| {
        json!({
            "version": "2.0", "routeKey": "$default", "rawPath": raw_path, "rawQueryString": "dryRun=false",
            "headers": { "idempotency-key": record.key.idempotency_key().as_str(), "content-type": "application/json" },
            "requestContext": {
                "stage": "prod", "routeKey": "$default", "timeEpoch": 0,
                "http": { "method": "POST", "path": raw_path },
            },
            "body": body, "isBase64Encoded": false,
        })
    };
    let handler = lambda_http::service_fn(|_: lambda_http::Request| async {
        Ok::<_, lambda_http::Error>(lambda_http::Response::new("run again".to_owned()))
    });
    let function = lambda::function(guard.tenant(SingleTenant::new("olga")).layer(handler));
    assert_eq!(
        lambda::deliver(&function, &event("/payments")).await.header("idempotent-replayed"),
        Some("true")
    );
    assert_eq!(lambda::deliver(&function, &event("/prod/payments")).await.status(), 422);
}

// R26, T36: a provider that has seen the old key must see it again.
async fn downstream_keys_of_an_earlier_version_stay_the_same(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let mut compared = 0;
    for fixture in items() {
        let record = stored(&guarded, &fixture).await;
        for (phase, expected) in fixture["expect"]["downstream_keys"].as_object().into_iter().flatten() {
            let passed_on = record.key.downstream_key(&record.fingerprint, phase);
            assert_eq!(expected, passed_on.as_str(), "{}: {phase}", fixture["name"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 2);
}

/// A reconciler that must not be asked.
struct Nobody;

#[async_trait]
impl Reconciler for Nobody {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        panic!("a report needs no question")
    }
}

fn reconciliation(store: DynamoDbStore, operation: &str, dead_letters: impl Queue) -> Reconciliation {
    Reconciliation::new(store, dead_letters)
        .world(ManualWorld::at(NOW))
        .operation(Operation::new(operation), Nobody)
}

// T36
async fn reports_of_an_earlier_version_are_applied(endpoint: &str) {
    let reports = messages().into_iter().filter(|message| message["expect"]["kind"] == "report");
    let mut applied = 0;
    for fixture in reports.filter(|message| message["queue"] == "reconcile") {
        let (name, expect, text) = (&fixture["name"], &fixture["expect"], fixture["body"].as_str().unwrap());
        // Applied to the record as its worker saw it, and after that record is gone.
        for gone in [false, true] {
            let guarded = Guarded::on(endpoint).await;
            let store = guarded.undisturbed_store();
            let key = MessageSummary::read(text).record.expect("a report names its record");
            if !gone {
                guarded.write_raw(seen(&key.partition_key(), &expect["seen"])).await;
            }
            for body in fixture_bodies() {
                guarded.write_raw(attributes(&body["item"])).await;
            }
            let dead_letters = MemoryQueue::new();
            let reconciliation =
                reconciliation(store.clone(), key.operation().as_str(), dead_letters.clone());
            reconciliation.receive(text).await.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(dead_letters.take().is_empty(), "{name}");
            let record = store.load(&key).await.expect("readable").expect("there");
            let found = found(&store, &record).await;
            let report = &expect["report"];
            assert_eq!(found["state"], report["state"], "{name}, gone: {gone}");
            assert_eq!(found["attempt"], expect["seen"]["attempt"], "{name}");
            assert_eq!(found["attempts"], expect["seen"]["attempts"], "{name}");
            assert_eq!(found["created_at"], expect["seen"]["created_at"], "{name}");
            assert_eq!(found["fingerprint"], expect["seen"]["fingerprint"], "{name}");
            for part in ["status", "headers", "cause"] {
                assert_eq!(found[part], report[part], "{name}: {part}");
            }
            if let Some(body) = report.get("body") {
                for part in ["length", "text", "id"] {
                    assert_eq!(found["body"][part], body[part], "{name}: {part}");
                }
            }
        }
        applied += 1;
    }
    assert_eq!((applied, fixture_bodies().len()), (13, 4));
}

fn fixture_bodies() -> Vec<Value> {
    fixture(include_str!("fixtures/earlier/bodies.json"))
}

/// The item of the record that a worker saw last.
fn seen(pk: &str, seen: &Value) -> HashMap<String, AttributeValue> {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let number = |number: &Value| AttributeValue::N(number.to_string());
    let bytes = |hex: &Value| {
        let hex = hex.as_str().expect("hexadecimal digits");
        let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
        AttributeValue::B(aws_sdk_dynamodb::primitives::Blob::new(bytes.collect::<Vec<_>>()))
    };
    HashMap::from([
        ("pk".into(), text(pk)),
        ("sk".into(), text("record")),
        ("schema".into(), AttributeValue::N("1".into())),
        ("state".into(), text("in_progress")),
        ("revision".into(), bytes(&seen["revision"])),
        ("attempt".into(), bytes(&seen["attempt"])),
        ("attempts".into(), number(&seen["attempts"])),
        ("fingerprint".into(), bytes(&seen["fingerprint"])),
        ("fingerprint_rule".into(), number(&seen["fingerprint_rule"])),
        ("created_at".into(), number(&seen["created_at"])),
        ("lease_until".into(), number(&seen["lease_until"])),
    ])
}

// T36
async fn audit_lines_of_an_earlier_version_are_read(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let fixtures = fixture(include_str!("fixtures/earlier/audit.json"));
    for fixture in &fixtures {
        guarded.write_raw(attributes(&fixture["item"])).await;
        let key = fixture["item"]["pk"]["S"].as_str().expect("a partition key");
        let key = RecordKey::from_partition_key(key).expect("one of ours");
        let mut expected = fixture["expect"].clone();
        let about = expected.as_object_mut().expect("an object");
        for (part, read) in [
            ("tenant", key.tenant().as_str()),
            ("operation", key.operation().as_str()),
            ("key", key.idempotency_key().as_str()),
        ] {
            assert_eq!(about.remove(part), Some(json!(read)), "{}", fixture["name"]);
        }
        // All of it: who, when, what and why, and the states before and after.
        let lines = guarded.undisturbed_store().audit_lines(&key).await.expect("readable");
        assert_eq!(json!(lines), json!([expected]), "{}", fixture["name"]);
    }
    assert_eq!(fixtures.len(), 2);
}

// T36
#[tokio::test]
async fn dead_letters_of_an_earlier_version_say_what_they_are_about() {
    let messages = messages();
    for fixture in &messages {
        let (name, expect) = (&fixture["name"], &fixture["expect"]);
        let dead_letter = MessageSummary::read(fixture["body"].as_str().expect("a text"));
        assert_eq!(dead_letter.kind.as_deref(), expect["kind"].as_str(), "{name}");
        let queue = match expect["kind"].as_str() {
            Some("check" | "sweep") => Some("checks"),
            Some("ask" | "report") => Some("reconcile"),
            _ => None,
        };
        assert_eq!(dead_letter.queue, queue, "{name}");
        if let (Some(record), true) = (expect["record"].as_object(), queue.is_some()) {
            let key = dead_letter.record.unwrap_or_else(|| panic!("{name} names its record"));
            assert_eq!(record["tenant"], key.tenant().as_str(), "{name}");
            assert_eq!(record["key"], key.idempotency_key().as_str(), "{name}");
        }
    }
    assert_eq!(messages.len(), 24);
}

// T36
#[tokio::test]
async fn checks_and_sweeps_of_an_earlier_version_are_done() {
    let messages: Vec<_> = messages().into_iter().filter(|message| message["queue"] == "checks").collect();
    for fixture in &messages {
        let (checks, sweeps, dead_letters) = (MemoryQueue::new(), MemoryQueue::new(), MemoryQueue::new());
        let stale = Stale::new(MemoryStore::new(), checks.clone(), sweeps.clone(), dead_letters.clone())
            .world(ManualWorld::at(Timestamp::MAX));
        let done = stale.receive(fixture["body"].as_str().unwrap(), Duration::from_secs(10)).await;
        assert!(done.is_ok(), "{}: {done:?}", fixture["name"]);
        // A sweep continues in its own queue.
        for (message, _) in sweeps.take() {
            let done = stale.receive(&message, Duration::from_secs(10)).await;
            assert!(done.is_ok(), "{}: {done:?}", fixture["name"]);
        }
        // The store is empty and fully scanned: nothing is left to do.
        let left = [checks.take(), sweeps.take(), dead_letters.take()].concat();
        assert_eq!(left, [], "{}", fixture["name"]);
    }
    assert_eq!(messages.len(), 5);
}

// T19, T36
#[tokio::test]
async fn stream_events_of_an_earlier_version_are_matched_as_then() {
    let events = fixture(include_str!("fixtures/earlier/stream.json"));
    for fixture in &events {
        let (name, expect) = (&fixture["name"], &fixture["expect"]);
        let (checks, dead_letters) = (MemoryQueue::new(), MemoryQueue::new());
        let stale = Stale::new(MemoryStore::new(), checks.clone(), MemoryQueue::new(), dead_letters.clone())
            .world(ManualWorld::at(NOW))
            .pending_bound(Duration::from_secs(100));
        let records = fixture["event"]["Records"].as_array().expect("records");
        let records: Vec<Box<RawValue>> =
            records.iter().map(|record| RawValue::from_string(record.to_string()).unwrap()).collect();
        assert!(stale.stream(&records, Duration::from_secs(10)).await.is_empty(), "{name}");
        let sent: Vec<Value> =
            checks.take().iter().map(|(check, _)| serde_json::from_str(check).unwrap()).collect();
        let open = expect["open"].as_array().unwrap().iter().map(|open| {
            let look_at = open["lease_until"].as_u64();
            let look_at = look_at.unwrap_or_else(|| open["created_at"].as_u64().unwrap() + 100_000);
            json!({ "kind": "check", "key": open["key"], "look_at": look_at })
        });
        assert_eq!(sent, open.collect::<Vec<_>>(), "{name}");
        let poison: Vec<Value> = dead_letters
            .take()
            .iter()
            .map(|(dead_letter, _)| serde_json::from_str(dead_letter).unwrap())
            .collect();
        let expected = expect["poison"].as_array().unwrap();
        assert_eq!(poison.len(), expected.len(), "{name}");
        for (poison, expected) in poison.iter().zip(expected) {
            assert_eq!(poison["reason"], expected["reason"], "{name}");
        }
    }
    assert_eq!(events.len(), 13);
}
