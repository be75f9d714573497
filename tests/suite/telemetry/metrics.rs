//! Which metrics are counted, under which names and labels.

use std::{
    collections::BTreeMap,
    io,
    sync::{Mutex, OnceLock},
    time::Duration,
};

use axum::{Extension, body::Body, http::StatusCode, response::IntoResponse};
use lambda_idempotency::{
    Execution, Failure, async_trait,
    engine::{CallError, PhaseError, Report},
    event::{Consumer, DeadMessage, KeyFrom, MemorySource, Source, SourceKind},
    http::{Outcome, Profile},
    key::Tenant,
    operation::Operation,
    outbox::Topics,
    queue::{MemoryQueue, QueueError},
    reconcile::{Finding, Question, Reconciler, Reconciliation},
    stale::Stale,
    store::{dynamodb::DynamoDbStore, memory::MemoryStore},
    time::Timestamp,
    time_budget::{DEFAULT_FIRST_BACKOFF, DEFAULT_MAX_BACKOFF, DEFAULT_NOT_FOUND_GRACE},
    world::ManualWorld,
};
use macro_rules_attribute::apply;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{
    BoxError,
    client::connect,
    faults::{Fault, Faults},
    guarded::{GRACE, Guarded, LEASE, all_due, owned, request},
    http::{Gate, Guard, ORDER, api, clock, execution, guard_of, order, pay, pay_other, send, unkeyed},
    messages::{deliver, message},
    on_each_store, tables,
};

/// The counters of one operation or queue, by name.
pub(crate) type Counts = BTreeMap<String, u64>;

/// What was counted for `operation` since the first call. The process has one recorder, and a snapshot resets it. Therefore, the snapshots
/// are added up here.
pub(crate) fn counts(operation: &str) -> Counts {
    static SNAPSHOTTER: OnceLock<Snapshotter> = OnceLock::new();
    static SEEN: Mutex<BTreeMap<String, Counts>> = Mutex::new(BTreeMap::new());
    let snapshotter = SNAPSHOTTER.get_or_init(|| {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        recorder.install().expect("no other recorder is installed in the test process");
        snapshotter
    });
    let mut seen = SEEN.lock().unwrap();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let name = key.key().name();
        if let (true, DebugValue::Counter(count)) = (name.starts_with("api.idempotency."), value) {
            let labels: Vec<_> = key.key().labels().map(|label| (label.key(), label.value())).collect();
            let of = match labels[..] {
                [("operation" | "queue", of)] => of,
                // Not an operation's counter.
                [] => continue,
                _ => panic!("{name} has the labels {labels:?}"),
            };
            *seen.entry(of.to_owned()).or_default().entry(name.to_owned()).or_default() += count;
        }
    }
    let counts = seen.get(operation).cloned().unwrap_or_default();
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn expected(counts: &[(&str, u64)]) -> Counts {
    counts.iter().map(|(name, count)| (format!("api.idempotency.{name}.count"), *count)).collect()
}

/// A guard of a separate operation, on a store whose network can fail.
struct Counted {
    operation: String,
    faults: Faults,
    clock: ManualWorld,
    guard: Guard,
}

impl Counted {
    async fn on(endpoint: &str) -> Self {
        let operation = format!("metered-{}", Uuid::new_v4());
        assert_eq!(counts(&operation), Counts::new());
        let (faults, clock) = (Faults::new(), clock());
        let client = connect(endpoint).http_client(faults.clone()).max_attempts(1).client();
        let store = DynamoDbStore::from_client(client.clone(), tables::idempotency_table(&client).await);
        let guard = guard_of(store, Operation::new(&operation).completion_timeout(Duration::ZERO))
            .world(clock.clone());
        Self { operation, faults, clock, guard }
    }
}

#[apply(on_each_store)]
async fn each_reservation_outcome_is_counted_by_operation(endpoint: &str) {
    let Counted { operation, guard, .. } = Counted::on(endpoint).await;
    let gate = Gate::closed();
    let held = gate.clone();
    let app = api(guard, move |parts, _| {
        let held = held.clone();
        async move {
            let attempts = execution(&parts).attempts();
            let outcome = match (parts.headers["idempotency-key"].to_str().unwrap(), attempts) {
                ("held", _) => {
                    held.pass().await;
                    Outcome::Completed
                }
                ("retried", 1) => Outcome::NotExecuted,
                ("unsure", _) => Outcome::PerhapsExecuted,
                _ => Outcome::Completed,
            };
            (StatusCode::ACCEPTED, Extension(outcome)).into_response()
        }
    });
    let mut so_far = Counts::new();
    let mut count = |name: &str| {
        *so_far.entry(format!("api.idempotency.reserve.{name}.count")).or_default() += 1;
        so_far.clone()
    };

    send(&app, pay("order-1")).await;
    assert_eq!(counts(&operation), count("created"));
    send(&app, pay("order-1")).await;
    assert_eq!(counts(&operation), count("replay"));
    send(&app, pay_other("order-1")).await;
    assert_eq!(counts(&operation), count("key_misuse"));

    let first = tokio::spawn({
        let app = app.clone();
        async move { send(&app, pay("held")).await }
    });
    gate.reached(1).await;
    assert_eq!(counts(&operation), count("created"));
    send(&app, pay("held")).await;
    assert_eq!(counts(&operation), count("in_progress"));
    gate.open();
    first.await.unwrap();

    send(&app, pay("retried")).await;
    assert_eq!(counts(&operation), count("created"));
    send(&app, pay("retried")).await;
    assert_eq!(counts(&operation), count("failed_retry"));

    send(&app, pay("unsure")).await;
    assert_eq!(counts(&operation), count("created"));
    send(&app, pay("unsure")).await;
    assert_eq!(counts(&operation), count("unknown"));
}

#[apply(on_each_store)]
async fn a_store_that_fails_is_counted_before_and_after_the_effect(endpoint: &str) {
    let Counted { operation, faults, guard, .. } = Counted::on(endpoint).await;
    let taken_away = faults.clone();
    let app = api(guard, move |_, _| {
        taken_away.for_all("PutItem", Fault::Status(500));
        async { "paid" }
    });
    let first = send(&app, pay("order-1")).await;
    assert_eq!((first.status, &first.body[..]), (200, &b"paid"[..]), "its caller gets the true answer");
    let unwritten = [("reserve.created", 1), ("store.error", 1), ("completion.unwritten", 1)];
    assert_eq!(counts(&operation), expected(&unwritten));

    send(&app, pay("order-2")).await.assert_problem(503, "store-unavailable");
    let refused = [("reserve.created", 1), ("store.error", 2), ("completion.unwritten", 1)];
    assert_eq!(counts(&operation), expected(&refused));
}

// One hot row must not look like an outage.
#[apply(on_each_store)]
async fn a_store_that_only_reports_contention_does_not_count_as_failed(endpoint: &str) {
    let Counted { operation, faults, guard, .. } = Counted::on(endpoint).await;
    let hot = faults.clone();
    let app = api(guard, move |_, _| {
        hot.script("PutItem", [Fault::TransactionConflict]);
        async { "paid" }
    });
    assert_eq!(send(&app, pay("order-1")).await.status, 200);
    assert_eq!(faults.left(), 0, "the completion has met another transaction");
    // This one tries once, and has its own alarm for that.
    let unwritten = [("reserve.created", 1), ("completion.unwritten", 1)];
    assert_eq!(counts(&operation), expected(&unwritten));
}

// T38: a client that retries one key in a loop must not look like an outage.
#[apply(on_each_store)]
async fn a_store_that_throttles_one_key_does_not_count_as_failed(endpoint: &str) {
    let Counted { operation, faults, guard, .. } = Counted::on(endpoint).await;
    let guard_of_hot = guard.clone();
    let app = api(guard, |_, _| async { "paid" });
    faults.for_all("PutItem", Fault::Throttle);
    send(&app, pay("order-1")).await.assert_problem(503, "store-unavailable");
    assert_eq!(counts(&operation), expected(&[("store.throttled", 1)]));
    faults.clear();
    let hot = faults.clone();
    let app = api(guard_of_hot, move |_, _| {
        hot.script("PutItem", [Fault::Throttle]);
        async { "paid" }
    });
    assert_eq!(send(&app, pay("order-1")).await.status, 200);
    // The completion.
    let unwritten = [("reserve.created", 1), ("store.throttled", 2), ("completion.unwritten", 1)];
    assert_eq!(counts(&operation), expected(&unwritten));
}

#[apply(on_each_store)]
async fn a_dead_worker_whose_lease_is_expired_is_counted(endpoint: &str) {
    let Counted { operation, clock, guard, .. } = Counted::on(endpoint).await;
    let gate = Gate::closed();
    let held = gate.clone();
    let app = api(guard, move |_, _| {
        let held = held.clone();
        async move { held.pass().await }
    });
    let dead = tokio::spawn({
        let app = app.clone();
        async move { send(&app, pay("order-1")).await }
    });
    gate.reached(1).await;
    clock.advance(Duration::from_secs(71));
    for unknowns in [1, 2] {
        send(&app, pay("order-1")).await.assert_problem(409, "outcome-unknown");
        let lease_expired = [("reserve.created", 1), ("zombie_key", 1), ("reserve.unknown", unknowns)];
        assert_eq!(counts(&operation), expected(&lease_expired));
    }
    gate.open();
    dead.await.unwrap();
}

/// A reconciler that returns the prepared findings, the last one first.
struct Provider(Mutex<Vec<Result<Finding, &'static str>>>);

#[async_trait]
impl Reconciler for Provider {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok(self.0.lock().unwrap().pop().expect("an answer is prepared")?)
    }
}

#[apply(on_each_store)]
async fn operations_without_a_retry_are_counted_too(endpoint: &str) {
    let operation = format!("metered-{}", Uuid::new_v4());
    assert_eq!(counts(&operation), Counts::new());
    let guarded = Guarded::on(endpoint).await;
    let (faults, clock) = (guarded.faults.clone(), guarded.clock.clone());
    let (queue, dead_letters) = (MemoryQueue::new(), MemoryQueue::new());
    let named = || Operation::new(&operation).completion_timeout(Duration::ZERO);
    let executor = guarded.executor_of(named()).defer_reports_to(queue.clone());
    let request = |key: &str| {
        let mut request = request();
        let operation = lambda_idempotency::key::OperationName::parse(&operation).unwrap();
        let key = lambda_idempotency::key::IdempotencyKey::parse(key).unwrap();
        request.key = lambda_idempotency::key::RecordKey::new(request.key.tenant().clone(), operation, key);
        request
    };
    // Deferred.
    let ours = owned(executor.reserve(&request("lost")).await);
    faults.for_all("PutItem", Fault::DropRequest);
    clock.passing(executor.finish(ours, Report::NotExecuted(None))).await;
    faults.clear();
    let mut so_far = vec![("reserve.created", 1), ("completion.deferred", 1)];
    let found = counts(&operation);
    let errors = found["api.idempotency.store.error.count"];
    so_far.push(("store.error", errors));
    assert_eq!(found, expected(&so_far));

    // One is found dead, asked about and settled. Another is escalated.
    let stale =
        Stale::new(guarded.undisturbed_store(), MemoryQueue::new(), MemoryQueue::new(), MemoryQueue::new())
            .world(clock.clone());
    let answers = [Err("away"), Ok(Finding::NotExecuted), Err("away")].into_iter().rev().collect();
    let reconciliation = Reconciliation::new(guarded.undisturbed_store(), dead_letters)
        .world(clock.clone())
        .backoff(DEFAULT_FIRST_BACKOFF, DEFAULT_MAX_BACKOFF, 2)
        .operation(named(), Provider(Mutex::new(answers)));
    for key in ["first", "second"] {
        let request = request(key);
        drop(owned(executor.reserve(&request).await));
        clock.advance(LEASE + GRACE);
        stale.check(&request.key).await.unwrap();
        if key == "first" {
            reconciliation.ask(&request.key).await.unwrap();
        }
        reconciliation.ask(&request.key).await.unwrap();
    }
    so_far[0].1 = 3;
    so_far.extend([("zombie_key", 2), ("reconcile.scheduled", 2), ("reconcile.resolved", 1)]);
    assert_eq!(counts(&operation), expected(&so_far));
    let once = Reconciliation::new(guarded.undisturbed_store(), MemoryQueue::new())
        .world(clock.clone())
        .backoff(DEFAULT_FIRST_BACKOFF, DEFAULT_MAX_BACKOFF, 1)
        .operation(named(), Provider(Mutex::new(vec![Ok(Finding::NotFound), Err("away")])));
    let [second] = &all_due(&guarded.undisturbed_store(), Timestamp::MAX).await[..] else {
        panic!("not one")
    };
    once.ask(second).await.unwrap();
    so_far.push(("escalated", 1));
    assert_eq!(counts(&operation), expected(&so_far));

    // T57: in an incident, many are released so.
    let third = request("third");
    drop(owned(executor.reserve(&third).await));
    clock.advance(LEASE + GRACE);
    stale.check(&third.key).await.unwrap();
    clock.advance(DEFAULT_NOT_FOUND_GRACE);
    once.ask(&third.key).await.unwrap();
    let found = counts(&operation);
    let count = |name: &str| found[&format!("api.idempotency.{name}.count")];
    assert_eq!((count("reconcile.assumed"), count("reconcile.resolved"), count("escalated")), (1, 2, 1));
}

// T34, T44
#[tokio::test]
async fn unguarded_and_inconclusive_requests_are_counted() {
    let (unguarded, nothing) =
        ("api.idempotency.unguarded.count", "api.idempotency.completion.inconclusive.count");
    let operation = format!("metered-{}", Uuid::new_v4());
    assert_eq!(counts(&operation), Counts::new());
    let guard = guard_of(MemoryStore::new(), Operation::new(&operation));
    let app = api(guard.profile(Profile::stripe().key_optional()), |_, _| async { StatusCode::FORBIDDEN });
    send(&app, unkeyed().method("GET").body("".into()).unwrap()).await;
    assert_eq!(counts(&operation), Counts::new());
    send(&app, unkeyed().body("{}".into()).unwrap()).await;
    assert_eq!(counts(&operation), Counts::from([(unguarded.to_owned(), 1)]));
    send(&app, pay("order-1")).await;
    assert_eq!((counts(&operation).get(unguarded), counts(&operation).get(nothing)), (Some(&1), Some(&1)));
}

/// A queue that is away.
struct Away(String);

#[async_trait]
impl Source for Away {
    fn name(&self) -> &str {
        &self.0
    }

    fn kind(&self) -> SourceKind {
        SourceKind::Sqs
    }

    async fn hide(&self, _: &[(String, Duration)]) -> Result<(), QueueError> {
        Err(QueueError::new("away"))
    }

    async fn bury(&self, _: DeadMessage) -> Result<(), QueueError> {
        Err(QueueError::new("away"))
    }
}

#[apply(on_each_store)]
async fn what_becomes_of_messages_is_counted_by_queue(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let [here, away] = ["here", "away"].map(|name| format!("{name}-{}", Uuid::new_v4()));
    let tenant = Tenant::parse("acme").expect("a tenant");
    let guard = lambda_idempotency::Guard::new(guarded.store(), Operation::new("ship"), tenant);
    let guard = guard.world(guarded.clock.clone());
    let function = async |_: Execution, parcel: Value| match parcel["does"].as_str() {
        Some("nothing") => Err(Failure::not_executed("no connection")),
        Some("fails") => Err(std::io::Error::other("no answer").into()),
        Some("refuses") => Err(Failure::permanent("no such address")),
        _ => Ok(()),
    };
    let of = |queue: &str, does: &str| {
        let mut message = message(does, json!({ "id": does, "does": does }));
        message["eventSourceARN"] = json!(format!("arn:aws:sqs:us-east-2:123456789012:{queue}"));
        message
    };
    let all = |queue: &str| ["ships", "nothing", "fails", "refuses"].map(|does| of(queue, does));
    assert_eq!((counts(&here), counts(&away)), (Counts::new(), Counts::new()));
    let consumer =
        Consumer::new(MemorySource::new(&*here), KeyFrom::body("/id")).each(guard.clone(), function);
    assert_eq!(deliver(&consumer, &all(&here)).await.expect("an answer").len(), 2);
    let counted = [("message.handed_back", 1), ("message.held", 1), ("message.dead", 1)];
    assert_eq!(counts(&here), expected(&counted));
    let consumer = Consumer::new(Away(away.clone()), KeyFrom::body("/id")).each(guard, function);
    assert_eq!(deliver(&consumer, &all(&away)).await.expect("an answer").len(), 3);
    let counted = [
        ("message.handed_back", 1),
        ("message.held", 1),
        ("message.not_buried", 1),
        ("message.not_hidden", 1),
    ];
    assert_eq!(counts(&away), expected(&counted));
}

// T61: the alarm `PhasesMismatched`.
#[apply(on_each_store)]
async fn a_handler_that_does_not_fit_its_phases_is_counted(endpoint: &str) {
    let (guarded, operation) = (Guarded::on(endpoint).await, format!("changed-{}", Uuid::new_v4()));
    let day = Duration::from_secs(24 * 3600);
    let resumes = Operation::new(&operation).resumes(["check-fraud", "charge", "ship"], day);
    let app = api(guard_of(guarded.store(), resumes), |parts, _| async move {
        let execution = execution(&parts);
        let first = if parts.headers.contains_key("x-changed") { "check-fraud" } else { "charge" };
        for phase in [first, "ship"] {
            let made = execution.phase(phase).call(async |_| match phase {
                "ship" => Err(CallError::not_executed(io::Error::other("refused"))),
                _ => Ok(1),
            });
            made.await?;
        }
        Ok::<_, PhaseError>(StatusCode::CREATED)
    });
    send(&app, pay("order-1")).await.assert_problem(503, "interrupted");
    let mismatch = || counts(&operation).remove("api.idempotency.phase.mismatch.count");
    assert_eq!(mismatch(), None);
    let changed = order("order-1").header("x-changed", "1").body(ORDER.into()).expect("a request");
    send(&app, changed).await.assert_problem(503, "interrupted");
    assert_eq!(mismatch(), Some(1));
}

// T63: the alarm on a stream that nobody reads compares both.
#[apply(on_each_store)]
async fn what_is_published_is_counted_when_it_commits(endpoint: &str) {
    let (guarded, operation) = (Guarded::on(endpoint).await, format!("publishes-{}", Uuid::new_v4()));
    let topic = Topics::parse("order.placed=own").and_then(|topics| topics.topic("order.placed"));
    let topic = topic.expect("a topic");
    let app = api(guard_of(guarded.store(), Operation::new(&operation)), move |parts, body| {
        for n in 0..2 {
            execution(&parts).publish(&topic, &n).expect("it is a message");
        }
        let outcome = if body.is_empty() { Outcome::NotExecuted } else { Outcome::Completed };
        async move { Extension(outcome) }
    });
    let published = || counts(&operation).remove("api.idempotency.outbox.published.count");
    assert_eq!(published(), None);
    let nothing = order("order-1").body(Body::empty()).expect("a request");
    assert_eq!((send(&app, nothing).await.status, published()), (200, None));
    assert_eq!((send(&app, pay("order-2")).await.status, published()), (200, Some(2)));
}
