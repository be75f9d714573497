//! Answers that the front of an API cannot deliver (T59), and answers whose body is not kept.

use std::time::Duration;

use aws_smithy_types::base64;
use axum::{Router, routing::post};
use lambda_idempotency::{
    Execution, Idempotency, Operation, SingleTenant, async_trait,
    engine::Report,
    http::Outcome,
    queue::MemoryQueue,
    reconcile::{Finding, Question, Reconciler, Reconciliation},
    record::{Answer, Says, State},
    store::Store,
    time_budget::BODY_TIMEOUT,
};
use macro_rules_attribute::apply;
use serde_json::Value;

use crate::support::{
    BoxError,
    faults::{ANY, Fault},
    guarded::{Guarded, body_of, operation, owned, replayed, request},
    http::{Counter, api, clock, dynamodb, guard, guard_of, order, pay, record, record_key, send, until},
    lambda::{Function, deliver, function},
    on_each_store,
};

const MIB: usize = 1024 * 1024;

/// A provider that is not asked.
struct Away;

#[async_trait]
impl Reconciler for Away {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok(Finding::AskAgain(None))
    }
}

/// A function that answers with so many bytes of this text.
fn answers(store: impl Store, text: &'static str, length: usize) -> (Function, Counter) {
    let runs = Counter::default();
    let counter = runs.clone();
    let guard = Idempotency::new(store, Operation::new("large")).tenant(SingleTenant::new("all"));
    let create = move |_: Execution| async move {
        counter.add();
        ([("content-type", "text/plain"), ("location", "/1")], text.repeat(length / text.len()))
    };
    (function(Router::new().route("/payments", post(create).route_layer(guard))), runs)
}

// T59
#[apply(on_each_store)]
async fn a_body_that_the_front_cannot_deliver_is_omitted(endpoint: &str) {
    for (front, text, length, delivered) in [
        (include_str!("../fixtures/function_url.json"), "x", 5 * MIB, true),
        // Each of these is two bytes for Lambda.
        (include_str!("../fixtures/function_url.json"), "\"", 2 * MIB, true),
        (include_str!("../fixtures/function_url.json"), "\"", 3 * MIB, false),
        (include_str!("../fixtures/function_url.json"), "x", 7 * MIB, false),
        (include_str!("../fixtures/load_balancer.json"), "x", MIB / 2, true),
        (include_str!("../fixtures/load_balancer.json"), "\"", MIB / 2, false),
        (include_str!("../fixtures/load_balancer.json"), "x", MIB, false),
    ] {
        let (function, runs) = answers(dynamodb(endpoint).await, text, length);
        let event: Value = serde_json::from_str(front).expect("JSON");
        let first = deliver(&function, &event).await;
        let what = format!("{length} times {text}");
        assert_eq!((first.status(), first.header("location")), (200, Some("/1")), "{what}");
        let omitted = first.header("idempotent-replayed-body");
        assert_eq!(omitted, (!delivered).then_some("omitted"), "{what}");
        assert_eq!(
            first.0["body"].as_str().map_or(0, str::len),
            if delivered { length } else { 0 },
            "{what}"
        );
        assert!(serde_json::to_vec(&first.0).unwrap().len() < 6 * MIB, "{what}");
        // The body is kept, because it can be compressed, and is measured again.
        let replay = deliver(&function, &event).await;
        assert_eq!((replay.status(), replay.header("idempotent-replayed")), (200, Some("true")), "{what}");
        assert_eq!(replay.header("idempotent-replayed-body"), omitted, "{what}");
        assert_eq!(replay.0["body"], first.0["body"], "{what}");
        assert_eq!(runs.count(), 1, "{what}");
    }
}

// T16: a secret that is shown once.
#[apply(on_each_store)]
async fn an_operation_may_keep_no_body(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let app = api(
        guard_of(store.clone(), Operation::new(crate::support::http::PAY).keep_body(false)),
        |_, _| async { ([("location", "/secrets/1"), ("x-secret", "s3cret")], "s3cret") },
    );
    let first = send(&app, pay("order-1")).await;
    assert_eq!(
        (first.status, &first.body[..], first.header("idempotent-replayed-body")),
        (200, &b"s3cret"[..], None)
    );
    let replay = send(&app, pay("order-1")).await;
    assert_eq!((replay.status, replay.body.len(), replay.header("location")), (200, 0, Some("/secrets/1")));
    assert_eq!(replay.header("idempotent-replayed-body"), Some("omitted"));
    let kept = record(&store, "order-1").await.expect("a record");
    assert!(!format!("{kept:?}").contains("s3cret"));
}

#[tokio::test]
async fn an_answer_without_a_body_misses_none() {
    let store = lambda_idempotency::MemoryStore::new();
    let once = Operation::new(crate::support::http::PAY).keep_body(false);
    let app = api(guard_of(store, once), |_, _| async { ([("cache-control", "private")], "") });
    let first = send(&app, pay("order-1")).await;
    let replay = send(&app, pay("order-1")).await;
    replay.assert_replay_of(&first);
    assert_eq!(replay.header("idempotent-replayed-body"), None);
}

// T16: the inner operation was executed, and the process died before the outer one was completed.
#[tokio::test]
async fn an_outer_guard_says_too_that_the_body_is_missing() {
    let store = lambda_idempotency::MemoryStore::new();
    let of = |operation| Idempotency::new(store.clone(), operation).tenant(SingleTenant::new("all"));
    let inner = post(async || ([("location", "/secrets/1")], "s3cret"))
        .route_layer(of(Operation::new("inner").keep_body(false)));
    let within = Router::new().route("/payments", inner.clone());
    assert_eq!(send(&within, pay("order-1")).await.body, "s3cret");
    let both = Router::new().route("/payments", inner.route_layer(of(Operation::new("outer"))));
    let (first, replay) = (send(&both, pay("order-1")).await, send(&both, pay("order-1")).await);
    assert_eq!((first.replayed(), replay.replayed()), (false, true));
    for answer in [first, replay] {
        let says = (answer.header("location"), answer.header("idempotent-replayed-body"));
        assert_eq!((says, answer.body.len()), ((Some("/secrets/1"), Some("omitted")), 0));
    }
}

// T2: a report that waits in a queue, for up to weeks, carries no body either.
#[apply(on_each_store)]
async fn a_deferred_report_keeps_no_body_if_its_operation_keeps_none(endpoint: &str) {
    let secret = r#"{"secret":"tea"}"#;
    for keeps in [true, false] {
        let (guarded, queue) = (Guarded::on(endpoint).await, MemoryQueue::new());
        let once = operation().completion_timeout(Duration::ZERO).keep_body(keeps);
        let executor = guarded.executor_of(once).defer_reports_to(queue.clone());
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        guarded.faults.for_all(ANY, Fault::DropRequest);
        let ending = executor.finish(ours, Report::Completed(Answer::json(201, secret)));
        let ended = guarded.clock.passing(ending).await;
        assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
        guarded.faults.clear();
        let [(message, _)] = &queue.take()[..] else { panic!("not one report") };
        assert_eq!(message.contains(&base64::encode(secret)), keeps, "{message}");
        let reconciliation = Reconciliation::new(guarded.store(), MemoryQueue::new());
        let reconciliation =
            reconciliation.world(guarded.clock.clone()).operation(operation().keep_body(keeps), Away);
        reconciliation.receive(message).await.expect("it is applied");
        let replay = replayed(executor.reserve(&request).await);
        assert_eq!((body_of(&replay).is_some(), replay.answer.head.status()), (keeps, Some(201)));
        let item = format!("{:?}", guarded.item(&request.key).await);
        // As the SDK prints bytes.
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(item.contains(&hex), keeps, "{item}");
    }
}

// T59: what the outer guard keeps is not cut to what the front takes.
#[tokio::test]
async fn only_the_outermost_guard_looks_at_the_front() {
    let store = lambda_idempotency::MemoryStore::new();
    let of = |name| Idempotency::new(store.clone(), Operation::new(name)).tenant(SingleTenant::new("all"));
    let create = async || ([("content-type", "text/plain")], "\"".repeat(600_000));
    let route = post(create).route_layer(of("inner")).route_layer(of("outer"));
    let function = function(Router::new().route("/payments", route));
    let event: Value = serde_json::from_str(include_str!("../fixtures/load_balancer.json")).expect("JSON");
    let first = deliver(&function, &event).await;
    assert_eq!(first.header("idempotent-replayed-body"), Some("omitted"));
    for name in ["inner", "outer"] {
        let record = store.load(&record_key("all", name, "order-1")).await.unwrap().expect("a record");
        let State::Completed { answer, .. } = record.state else { panic!("{name}") };
        assert_eq!(answer.body_length(), 600_000, "{name}");
    }
    // A front without a bound gets it all, such as a stream.
    let streamed = of("outer").deliver_any_size();
    let function = crate::support::lambda::function(
        Router::new().route("/payments", post(create).route_layer(streamed)),
    );
    let replay = deliver(&function, &event).await;
    assert_eq!((replay.header("idempotent-replayed"), replay.text().len()), (Some("true"), 600_000));
}

#[tokio::test]
async fn a_request_body_that_never_ends_is_refused() {
    let clock = clock();
    let app = api(guard(lambda_idempotency::MemoryStore::new()).world(clock.clone()), |_, _| async { "ok" });
    let endless =
        axum::body::Body::from_stream(futures_util::stream::pending::<Result<&[u8], std::io::Error>>());
    let request = order("order-1").body(endless).expect("a request");
    let answering = tokio::spawn({
        let app = app.clone();
        async move { send(&app, request).await }
    });
    until(|| clock.sleepers() == 1).await;
    clock.advance(BODY_TIMEOUT - Duration::from_millis(1));
    tokio::task::yield_now().await;
    assert!(!answering.is_finished(), "it ends too early");
    clock.advance(Duration::from_millis(1));
    answering.await.unwrap().assert_problem(400, "body-unreadable");
    assert_eq!(send(&app, pay("order-1")).await.body, "ok", "its key is free");
}

#[tokio::test]
async fn the_bounds_of_both_bodies_can_be_set() {
    let guard = guard(lambda_idempotency::MemoryStore::new()).longest_bodies(10, 5);
    let app = api(guard, |_, body| async move { (axum::Extension(Outcome::Completed), body) });
    let of = |key: &str, length: usize| order(key).body("x".repeat(length).into()).expect("a request");
    assert_eq!(send(&app, of("fits", 5)).await.status, 200);
    send(&app, of("long-answer", 6)).await.assert_problem(500, "outcome-unknown");
    send(&app, of("long-request", 11)).await.assert_problem(413, "body-too-long");
}
