//! Each entrance to work on a record enters one span. From it, log lines have the operation and the key's hash.

use std::time::{Duration, SystemTime};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request},
    routing::post,
};
use lambda_idempotency::{
    Failure, Guard, async_trait,
    engine::{Execution, SingleTransaction},
    event::{Consumer, KeyFrom},
    http::{Profile, operation_status},
    key::{RecordKey, Tenant},
    lambda::{Events, Notice, webhook_service},
    operation::Operation,
    operator::{Correction, Operator},
    queue::MemoryQueue,
    reconcile::{Finding, ProviderReport, Question, Reconciler, Reconciliation},
    record::{Answer, Record, Says, UnknownCause},
    stale::Stale,
    store::{Item, Store, WriteOutcome, conformance::samples, dynamodb::DynamoDbStore, memory::MemoryStore},
    time::Timestamp,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::event::queue;
use crate::support::{
    BoxError,
    client::client,
    embedded,
    faults::{ANY, Fault},
    guarded::{Guarded, RETENTION, completed, fingerprints, fresh, operation, owned, request},
    http::{PAY, TENANT, api, clock, guard, guard_of, pay, record_key, send, until},
    logs::{Line, Logs},
    messages::{QUEUE, deliver, message},
};

/// A key per test, and the log from now on.
fn begin() -> (Logs, RecordKey) {
    (Logs::capture(), record_key(TENANT, PAY, &Uuid::new_v4().to_string()))
}

/// Fails unless there is a line with this message, in one span that has this operation and this key's hash.
fn assert_in_span(logs: Logs, key: &RecordKey, level: &str, message: &str) {
    let hash = key.hash().to_string();
    let lines = logs.lines_with(&hash).into_iter();
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(&line.text).expect("JSON")).collect();
    let those = |line: &&Value| line["fields"]["message"].as_str().is_some_and(|text| text.contains(message));
    let line = lines.iter().find(those).unwrap_or_else(|| panic!("no line about {message:?}: {lines:?}"));
    assert_eq!(line["level"], level, "{line}");
    let spans = line["spans"].as_array().expect("a line has its spans").iter();
    let spans: Vec<_> = spans.filter(|span| span["name"] == "idempotency").collect();
    let [span] = &spans[..] else { panic!("not one span: {line}") };
    assert_eq!(
        (&span["key"], &span["operation"]),
        (&json!(hash), &json!(key.operation().as_str())),
        "{line}"
    );
    assert!(!line.to_string().contains(key.idempotency_key().as_str()), "{line}");
}

/// A store whose table does not exist.
fn no_store() -> DynamoDbStore {
    DynamoDbStore::from_client(client(embedded::endpoint()), "no-such-table")
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

fn hour_ago() -> Timestamp {
    now().minus(Duration::from_secs(3600))
}

/// The record of a worker that died an hour ago.
async fn dead(store: &MemoryStore, key: &RecordKey) -> Record {
    let record = samples::in_progress(key.clone(), fingerprints("{}"), hour_ago(), hour_ago());
    assert_eq!(store.put(None, &record, &[]).await.expect("a memory store answers"), WriteOutcome::Written);
    record
}

/// A record whose outcome is unknown, and due for a question.
async fn unknown(store: &MemoryStore, key: &RecordKey) -> Record {
    let dead = dead(store, key).await;
    let record = samples::unknown(&dead, UnknownCause::LeaseExpired, hour_ago());
    let swapped = store.put(Some(dead.revision), &record, &[]).await;
    assert_eq!(swapped.expect("a memory store answers"), WriteOutcome::Written);
    record
}

/// A provider that does not answer.
struct Away;

#[async_trait]
impl Reconciler for Away {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Err("away".into())
    }
}

fn reconciliation(store: &MemoryStore) -> Reconciliation {
    Reconciliation::new(store.clone(), MemoryQueue::new()).operation(Operation::new(PAY), Away)
}

#[tokio::test]
async fn a_guarded_request_has_a_span() {
    let (logs, key) = begin();
    let app = api(guard(MemoryStore::new()), |_, _| async {
        panic!("as a handler can");
        #[expect(unreachable_code, reason = "gives the handler its type")]
        ""
    });
    assert_eq!(send(&app, pay(key.idempotency_key().as_str())).await.status, 500);
    assert_in_span(logs, &key, "ERROR", "the handler panicked");
}

// What collects spans for OpenTelemetry knows a message by these names.
#[tokio::test]
async fn a_message_has_a_span_with_opentelemetrys_names() {
    let (logs, key) = begin();
    let guard = Guard::new(MemoryStore::new(), Operation::new(PAY), Tenant::parse(TENANT).expect("a tenant"));
    let consumer = Consumer::new(queue(), KeyFrom::body("/id"))
        .each(guard, async |_: Execution, _: Value| -> Result<String, Failure> { Ok("done".to_owned()) });
    let order = json!({ "id": key.idempotency_key().as_str() });
    let back = deliver(&consumer, &[message("m-1", order)]).await.expect("it has an id");
    assert!(back.is_empty(), "{back:?}");
    let line =
        logs.lines_with(&key.hash().to_string()).into_iter().find(|line| line.text.contains("executed"));
    let line: Value = serde_json::from_str(&line.expect("it was executed").text).expect("JSON");
    let spans = line["spans"].as_array().expect("a line has its spans");
    assert_eq!(
        spans[0],
        json!({
            "name": "message",
            "otel.kind": "consumer",
            "messaging.system": "aws_sqs",
            "messaging.operation.name": "process",
            "messaging.destination.name": QUEUE,
            "messaging.message.id": "m-1",
        })
    );
    assert_in_span(logs, &key, "INFO", "executed");
}

#[tokio::test]
async fn an_execution_that_outlives_its_caller_has_a_span() {
    let (logs, key) = begin();
    let app = api(guard(MemoryStore::new()), |_, _| async {
        tokio::task::yield_now().await;
        panic!("as a handler can");
        #[expect(unreachable_code, reason = "gives the handler its type")]
        ""
    });
    // Polled once, and dropped, because the client has gone.
    let request = pay(key.idempotency_key().as_str());
    tokio::select! {
        biased;
        answer = send(&app, request) => panic!("answered at once: {answer:?}"),
        () = async {} => {}
    }
    let has_panicked = |line: &Line| line.text.contains("the handler panicked");
    until(|| logs.lines_with(&key.hash().to_string()).iter().any(has_panicked)).await;
    assert_in_span(logs, &key, "ERROR", "the handler panicked");
}

#[tokio::test]
async fn a_single_transaction_has_a_span() {
    let (logs, key) = begin();
    let handler = |_: SingleTransaction| async {
        panic!("as a handler can");
        #[expect(unreachable_code, reason = "gives the handler its type")]
        ""
    };
    let app = Router::new()
        .route("/payments", post(handler).route_layer(guard(MemoryStore::new()).single_transaction()));
    assert_eq!(send(&app, pay(key.idempotency_key().as_str())).await.status, 503);
    assert_in_span(logs, &key, "ERROR", "the handler panicked");
}

#[tokio::test]
async fn a_heartbeat_has_the_span_of_its_request() {
    const EVERY: Duration = Duration::from_secs(10);
    let (logs, key) = begin();
    let (store, clock) = (MemoryStore::new(), clock());
    let guard = guard_of(store.clone(), Operation::new(PAY).heartbeat(EVERY)).world(clock.clone());
    let of = key.clone();
    let app = api(guard, move |parts, _| {
        let (store, clock, key) = (store.clone(), clock.clone(), of.clone());
        async move {
            // Another execution takes the record.
            let ours = store.load(&key).await.expect("a memory store answers").expect("a record");
            let mut theirs = ours.clone();
            (theirs.attempt, theirs.revision) = (fresh(), fresh());
            let swapped = store.put(Some(ours.revision), &theirs, &[]).await;
            assert_eq!(swapped.expect("a memory store answers"), WriteOutcome::Written);
            until(|| clock.sleepers() > 0).await;
            clock.advance(EVERY);
            let execution: &Execution = parts.extensions.get().expect("an execution");
            until(|| execution.is_lost()).await;
            "done"
        }
    });
    send(&app, pay(key.idempotency_key().as_str())).await;
    assert_in_span(logs, &key, "WARN", "the lease is lost");
}

#[tokio::test]
async fn a_status_that_cannot_be_read_has_a_span() {
    let (logs, key) = begin();
    let answer = operation_status(&no_store(), &key, now(), &Profile::default()).await;
    assert_eq!(answer.status(), 503);
    assert_in_span(logs, &key, "ERROR", "the status of an operation could not be read");
}

#[tokio::test]
async fn a_check_and_a_sweep_have_spans() {
    let store = MemoryStore::new();
    let [checks, sweeps, dead_letters] = [(); 3].map(|()| MemoryQueue::new());
    let stale = Stale::new(store.clone(), checks, sweeps, dead_letters);
    let (logs, checked) = begin();
    dead(&store, &checked).await;
    let check = json!({ "version": 1, "kind": "check", "key": checked.partition_key(), "look_at": 0 });
    stale.receive(&check.to_string(), Duration::from_secs(10)).await.expect("a check");
    assert_in_span(logs, &checked, "WARN", "a worker's lease has expired");

    let (logs, swept) = begin();
    dead(&store, &swept).await;
    stale.sweep(Duration::from_secs(10)).await.expect("a sweep");
    assert_in_span(logs, &swept, "WARN", "a worker's lease has expired");
}

#[tokio::test]
async fn every_kind_of_question_has_a_span() {
    const UNANSWERED: &str = "a question about an unknown outcome was not answered";
    let store = MemoryStore::new();
    let reconciliation = reconciliation(&store);
    for how in ["if due", "now", "message", "provider_report", "poll"] {
        let (logs, key) = begin();
        unknown(&store, &key).await;
        match how {
            "if due" => drop(reconciliation.ask_if_due(&key).await.expect("a question")),
            "now" => drop(reconciliation.ask(&key).await.expect("a question")),
            "message" => {
                let ask = json!({ "version": 1, "kind": "ask", "key": key.partition_key() }).to_string();
                reconciliation.receive(&ask).await.expect("a question");
            }
            "provider_report" => {
                // It has waited until the lease expired.
                let report = json!({ "effect": { "executed": 201 } });
                let queued =
                    json!({ "version": 1, "kind": how, "key": key.partition_key(), "report": report });
                reconciliation.receive(&queued.to_string()).await.expect("a question");
            }
            _ => drop(reconciliation.poll(Duration::from_secs(60)).await.expect("a poll")),
        }
        assert_in_span(logs, &key, "WARN", UNANSWERED);
    }
}

#[tokio::test]
async fn a_provider_report_has_a_span_through_the_webhook_too() {
    struct Reports(RecordKey);
    impl Events for Reports {
        fn read(&self, _: &HeaderMap, _: &[u8], _: Timestamp) -> Notice {
            Notice::ProviderReport(self.0.clone(), ProviderReport::executed(201, Away))
        }
    }
    let reconciliation =
        || Reconciliation::new(no_store(), MemoryQueue::new()).operation(Operation::new(PAY), Away);
    let (logs, key) = begin();
    let webhook = webhook_service(reconciliation(), Reports(key.clone()));
    assert_eq!(send(&webhook, Request::post("/").body(Body::empty()).expect("a request")).await.status, 503);
    assert_in_span(logs, &key, "ERROR", "could not be processed");

    let (logs, key) = begin();
    let unguarded = Reconciliation::new(MemoryStore::new(), MemoryQueue::new());
    unguarded.reported(&key, &ProviderReport::executed(201, Away)).await.expect("it is escalated");
    assert_in_span(logs, &key, "ERROR", "it is escalated");
}

#[tokio::test]
async fn a_deferred_report_has_a_span() {
    let guarded = Guarded::through(embedded::endpoint(), |connect| connect.max_attempts(1)).await;
    let (logs, request, queue) = (Logs::capture(), request(), MemoryQueue::new());
    let executor =
        guarded.executor_of(operation().completion_timeout(Duration::ZERO)).defer_reports_to(queue.clone());
    let ours = owned(executor.reserve(&request).await);
    guarded.faults.for_all(ANY, Fault::DropRequest);
    let ended = guarded.clock.passing(executor.finish(ours, completed("{}"))).await;
    assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
    guarded.faults.clear();

    guarded.delete(&request.key).await;
    guarded.clock.advance(RETENTION + Duration::from_millis(1));
    let reconciliation = Reconciliation::new(guarded.store(), MemoryQueue::new())
        .world(guarded.clock.clone())
        .operation(operation(), Away);
    let [(message, _)] = &queue.take()[..] else { panic!("not one message") };
    reconciliation.receive(message).await.expect("it is escalated");
    assert_in_span(logs, &request.key, "ERROR", "it is escalated");
}

#[tokio::test]
async fn an_operators_corrections_have_spans() {
    let store = MemoryStore::new();
    let operator = Operator::new(store.clone());
    let headers = vec![("location".to_owned(), "x".repeat(70_000))];
    let executed =
        Correction::Executed { answer: Answer::http(201, headers, "{}"), retain: None, messages: Vec::new() };
    for previewed in [true, false] {
        let (logs, key) = begin();
        let seen = unknown(&store, &key).await;
        match previewed {
            true => operator.preview(&seen, &executed).map(drop).expect("an unknown outcome"),
            false => operator.correct(&seen, &executed, "olga", "asked").await.map(drop).expect("unknown"),
        }
        assert_in_span(logs, &key, "ERROR", "the headers are too large to store");
    }
}

#[tokio::test]
async fn an_answer_for_an_operator_has_a_span() {
    let store = MemoryStore::new();
    let (logs, key) = begin();
    let completed = samples::completed(&dead(&store, &key).await, Answer::json(201, "{}"), now(), RETENTION);
    // Its body item does not exist.
    let mut item = serde_json::to_value(Item::from(&completed)).expect("JSON");
    (item["body_place"], item["body_id"]) = (json!("body_item"), Value::from(vec![7; 16]));
    item.as_object_mut().expect("an item").remove("body");
    let record = serde_json::from_value::<Item>(item).expect("an item").try_into().expect("a record");
    assert_eq!(Operator::new(store).answer(&record).await.expect("the store answers"), None);
    assert_in_span(logs, &key, "ERROR", "the kept body is gone");
}
