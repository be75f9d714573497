//! What a duplicate gets while the first execution is in flight, and how clients poll.

use std::time::Duration;

use axum::{Router, body::Body, http::Request, routing::get};
use lambda_http::{Context, RequestExt};
use lambda_idempotency::{
    http::{Profile, operation_key, operation_status},
    key::{OperationName, Tenant},
    operation::{Operation, WhileInFlight},
    record::State,
    store::{Store, dynamodb::DynamoDbStore, memory::MemoryStore},
    time_budget::CLOCK_SKEW,
    world::{ManualWorld, SystemWorld, World},
};
use macro_rules_attribute::apply;
use tokio::task::JoinHandle;

use crate::support::{
    client::connect,
    faults::Faults,
    guarded::fresh,
    http::{
        Answer, Counter, Gate, Guard, PAY, TENANT, api, clock, dynamodb, guard_of, pay, record, record_key,
        send, tenant, until,
    },
    on_each_store, tables,
};

/// An API whose first request waits at the gate.
struct Held {
    app: Router,
    gate: Gate,
    runs: Counter,
    first: JoinHandle<Answer>,
}

impl Held {
    async fn of(guard: Guard, key: &str) -> Self {
        let (gate, runs) = (Gate::closed(), Counter::default());
        let (held, counter) = (gate.clone(), runs.clone());
        let app = api(guard, move |_, _| {
            let run = counter.add();
            let held = held.clone();
            async move {
                held.pass().await;
                format!("run {run}")
            }
        });
        let first = spawn(&app, pay(key));
        gate.reached(1).await;
        Self { app, gate, runs, first }
    }

    /// Lets the first request finish.
    async fn finish(self) -> Answer {
        self.gate.open();
        let first = self.first.await.unwrap();
        assert_eq!((first.status, self.runs.count()), (200, 1));
        first
    }
}

fn spawn(app: &Router, request: Request<Body>) -> JoinHandle<Answer> {
    let app = app.clone();
    tokio::spawn(async move { send(&app, request).await })
}

#[apply(on_each_store)]
async fn a_duplicate_is_refused_with_a_time_to_retry(endpoint: &str) {
    for (span, seconds) in [(None, "1"), (Some(Duration::from_millis(2_001)), "3")] {
        let mut operation = Operation::new(PAY);
        if let Some(span) = span {
            operation = operation.retry_after(span);
        }
        let held = Held::of(guard_of(dynamodb(endpoint).await, operation), "order-1").await;
        let refused = send(&held.app, pay("order-1")).await;
        refused.assert_problem(409, "in-flight");
        assert_eq!(refused.header("retry-after"), Some(seconds));
        let app = held.app.clone();
        let first = held.finish().await;
        send(&app, pay("order-1")).await.assert_replay_of(&first);
    }
}

#[apply(on_each_store)]
async fn a_duplicate_is_accepted_with_the_url_of_the_status(endpoint: &str) {
    /// A key in which every other character is special in a URL.
    const KEY: &str = "a/b?c=d&e%20#f";
    let (store, clock) = (dynamodb(endpoint).await, clock());
    let retain = Duration::from_secs(3600);
    let operation = Operation::new(PAY).retain(retain).while_in_flight(WhileInFlight::Accept);
    let guard = guard_of(store.clone(), operation).status_path("/v1/operations").world(clock.clone());
    let held = Held::of(guard, KEY).await;
    let polled = status_api(store.clone(), clock.clone());

    let accepted = send(&held.app, pay(KEY)).await;
    assert_eq!((accepted.status, accepted.header("retry-after")), (202, Some("1")));
    assert_eq!(accepted.json()["state"], "in_progress");
    let url = accepted.header("location").unwrap().to_owned();
    let poll = |caller: &str| Request::get(&url).extension(tenant(caller)).body(Body::empty()).unwrap();
    let working = send(&polled, poll(TENANT)).await;
    assert_eq!((working.status, &working.json()["state"]), (200, &"in_progress".into()));
    assert_eq!(working.json()["operation"], PAY);

    held.finish().await;
    let done = send(&polled, poll(TENANT)).await;
    assert_eq!((done.status, &done.json()["state"]), (200, &"completed".into()));
    assert_eq!((&done.json()["responseStatus"], &done.json()["attempts"]), (&200.into(), &1.into()));
    assert!(done.json()["expiresAt"].is_string());

    send(&polled, poll("globex")).await.assert_problem(404, "operation-not-found");
    let never = Request::get("/v1/operations?key=never").extension(tenant(TENANT));
    send(&polled, never.body(Body::empty()).unwrap()).await.assert_problem(404, "operation-not-found");
    clock.advance(retain + CLOCK_SKEW + Duration::from_secs(1));
    send(&polled, poll(TENANT)).await.assert_problem(410, "operation-expired");
}

/// The route on which an API serves states, as the guide shows it.
fn status_api(store: impl Store + Clone, clock: ManualWorld) -> Router {
    let show = move |request: Request<Body>| {
        let (store, clock) = (store.clone(), clock.clone());
        async move {
            let (parts, _) = request.into_parts();
            let caller = parts.extensions.get::<Tenant>().unwrap().clone();
            let payment = OperationName::parse(PAY).unwrap();
            let key = operation_key(&parts, caller, "/v1/operations", &payment).expect("a key");
            operation_status(&store, &key, clock.now(), &Profile::default()).await.map(Body::new)
        }
    };
    Router::new().route("/v1/operations", get(show))
}

#[apply(on_each_store)]
async fn a_duplicate_waits_and_gets_the_answer_of_the_first(endpoint: &str) {
    let faults = Faults::new();
    let client = connect(endpoint).http_client(faults.clone()).client();
    let store = DynamoDbStore::from_client(client.clone(), tables::idempotency_table(&client).await);
    let operation = Operation::new(PAY).while_in_flight(WhileInFlight::Wait(Duration::from_secs(20)));
    let held = Held::of(guard_of(store, operation).world(SystemWorld), "order-1").await;
    assert_eq!(faults.asked("GetItem"), 0, "waiting costs nothing without a waiter");

    let waiting = spawn(&held.app, pay("order-1"));
    until(|| faults.asked("GetItem") > 1).await;
    assert!(!waiting.is_finished());
    let first = held.finish().await;
    waiting.await.unwrap().assert_replay_of(&first);
}

/// Advances the clock, and lets the tasks that this wakes run until they sleep again or end.
async fn advance(clock: &ManualWorld, span: Duration) {
    clock.advance(span);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_duplicate_that_has_waited_long_enough_is_refused() {
    let bound = Duration::from_secs(2);
    let clock = clock();
    let started = clock.now();
    let operation = Operation::new(PAY).while_in_flight(WhileInFlight::Wait(bound));
    let guard = guard_of(MemoryStore::new(), operation).world(clock.clone());
    let held = Held::of(guard, "order-1").await;
    assert_eq!(clock.sleepers(), 0);

    let waiting = spawn(&held.app, pay("order-1"));
    loop {
        until(|| clock.sleepers() > 0 || waiting.is_finished()).await;
        if waiting.is_finished() {
            break;
        }
        assert!(clock.now() < started.plus(bound), "it waits longer than it should");
        advance(&clock, Duration::from_millis(50)).await;
    }
    let refused = waiting.await.unwrap();
    refused.assert_problem(409, "in-flight");
    assert_eq!(refused.header("retry-after"), Some("2"), "the first has run that long");
    assert_eq!(clock.now(), started.plus(bound), "it waits for the whole bound");
    held.finish().await;
}

// T21
#[tokio::test]
async fn a_duplicate_stops_waiting_before_its_own_invocation_ends() {
    let clock = clock();
    let operation = Operation::new(PAY).while_in_flight(WhileInFlight::Wait(Duration::from_secs(60)));
    let guard = guard_of(MemoryStore::new(), operation).world(clock.clone());
    let held = Held::of(guard, "order-1").await;

    let mut context = Context::default();
    context.deadline = clock.now().plus(Duration::from_secs(3)).as_millis();
    let waiting = spawn(&held.app, pay("order-1").with_lambda_context(context));
    until(|| clock.sleepers() > 0).await;
    let deadline = clock.now().plus(Duration::from_secs(3));
    while !waiting.is_finished() {
        assert!(clock.now() < deadline, "no time is left for the answer");
        advance(&clock, Duration::from_millis(50)).await;
    }
    waiting.await.unwrap().assert_problem(409, "in-flight");
    held.finish().await;
}

#[tokio::test]
async fn retry_after_grows_with_the_attempt_and_ends_with_its_lease() {
    let clock = clock();
    let started = clock.now();
    // A lease of 60 s, and a grace of 10 s.
    let held =
        Held::of(guard_of(MemoryStore::new(), Operation::new(PAY)).world(clock.clone()), "order-1").await;
    for (ran, seconds) in [(0, "1"), (1, "1"), (2, "2"), (30, "30"), (35, "35"), (36, "34"), (69, "1")] {
        clock.set(started.plus(Duration::from_secs(ran)));
        let refused = send(&held.app, pay("order-1")).await;
        refused.assert_problem(409, "in-flight");
        assert_eq!(refused.header("retry-after"), Some(seconds), "after {ran} s");
    }
    // A clock that is behind the first execution's.
    clock.set(started.minus(CLOCK_SKEW));
    assert_eq!(send(&held.app, pay("order-1")).await.header("retry-after"), Some("1"));
    clock.set(started);
    held.finish().await;
}

#[tokio::test]
async fn retry_after_is_bounded_for_any_lease() {
    let clock = clock();
    let operation =
        Operation::new(PAY).lease(Duration::from_secs(7200)).while_in_flight(WhileInFlight::Accept);
    let held = Held::of(guard_of(MemoryStore::new(), operation).world(clock.clone()), "order-1").await;
    clock.advance(Duration::from_secs(3600));
    let accepted = send(&held.app, pay("order-1")).await;
    assert_eq!((accepted.status, accepted.header("retry-after")), (202, Some("300")));
    held.finish().await;
    // The limit holds for any lease that an operation asks for.
    let operation = Operation::new(PAY).retry_after(Duration::from_secs(600));
    let held = Held::of(guard_of(MemoryStore::new(), operation), "order-1").await;
    assert_eq!(send(&held.app, pay("order-1")).await.header("retry-after"), Some("300"));
    held.finish().await;
}

#[tokio::test]
async fn the_url_of_a_status_leads_to_the_record_of_its_path() {
    let (store, clock) = (MemoryStore::new(), clock());
    let operation = Operation::new(PAY).while_in_flight(WhileInFlight::Accept);
    let guard = guard_of(store.clone(), operation).profile(Profile::acp()).status_path("/v1/operations");
    let held = Held::of(guard.world(clock.clone()), "order-1").await;
    let accepted = send(&held.app, pay("order-1")).await;
    assert_eq!((accepted.status, accepted.header("idempotency-key")), (202, Some("order-1")));
    let url = accepted.header("location").unwrap().to_owned();
    let polled = status_api(store, clock);
    let ask = |url: &str| Request::get(url).extension(tenant(TENANT)).body(Body::empty()).unwrap();
    assert_eq!(send(&polled, ask(&url)).await.json()["state"], "in_progress");
    let (unscoped, _) = url.split_once("&scope=").expect("a scope");
    send(&polled, ask(unscoped)).await.assert_problem(404, "operation-not-found");
    held.finish().await;
    let done = send(&polled, ask(&url)).await;
    assert_eq!((&done.json()["state"], done.header("retry-after")), (&"completed".into(), None));
}

#[tokio::test]
async fn retry_after_of_an_unknown_outcome_is_the_next_question() {
    let (store, clock) = (MemoryStore::new(), clock());
    let app = api(guard_of(store.clone(), Operation::new(PAY)).world(clock.clone()), |_, _| async {
        axum::http::StatusCode::BAD_GATEWAY
    });
    send(&app, pay("order-1")).await;
    let status = |now| {
        let store = store.clone();
        async move {
            let (key, profile) = (record_key(TENANT, PAY, "order-1"), Profile::default());
            let asked = operation_status(&store, &key, now, &profile).await;
            Answer::of(asked).await.header("retry-after").map(str::to_owned)
        }
    };
    for (until, seconds) in [(0, "1"), (1, "1"), (40, "40"), (299, "299"), (4000, "300")] {
        let mut record = record(&store, "order-1").await.unwrap();
        let (seen, State::Unknown { reconcile_at, .. }) = (record.revision, &mut record.state) else {
            panic!()
        };
        *reconcile_at = clock.now().plus(Duration::from_secs(until));
        record.revision = fresh();
        store.put(Some(seen), &record, &[]).await.unwrap();
        let refused = send(&app, pay("order-1")).await;
        refused.assert_problem(409, "outcome-unknown");
        assert_eq!(refused.header("retry-after"), Some(seconds), "asked about in {until} s");
        assert_eq!(status(clock.now()).await.as_deref(), Some(seconds));
    }
}
