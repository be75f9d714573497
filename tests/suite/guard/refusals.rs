//! Refusals: those that say nothing about the operation are not kept, and those before any effect leave their key free.

use std::time::Duration;

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{Path, Query},
    http::{HeaderValue, Method, Request, StatusCode, request::Parts},
    response::IntoResponse,
    routing::post,
};
use lambda_idempotency::{
    Idempotency, KeyFrom,
    engine::Execution,
    fingerprint::FingerprintRule,
    http::{NotBegun, OrNotBegun, Outcome, Profile, operation_status},
    key::{Tenant, age::KeyTime},
    operation::{Operation, ServerErrors},
    record::{State, UnknownCause},
    store::{Store, memory::MemoryStore},
    time_budget::CLOCK_SKEW,
    world::World,
};
use macro_rules_attribute::apply;
use serde::Deserialize;
use tower::{Layer, service_fn};

use crate::support::{
    embedded,
    faults::{ANY, Fault},
    guarded::Guarded,
    http::{
        Answer, Counter, Guard, PAY, TENANT, api, clock, dynamodb, execution, guard, guard_of, order, pay,
        pay_other, record, record_key, send, state, unkeyed,
    },
    logs::Logs,
    on_each_store,
};

/// 404 and 405 as a router answers them.
const INCONCLUSIVE: [u16; 9] = [401, 403, 404, 405, 407, 408, 421, 425, 429];

/// Answers once with the status that the request asks for, then with 200.
fn refuses_once(guard: Guard) -> (Router, Counter) {
    let runs = Counter::default();
    let counter = runs.clone();
    let app = api(guard, move |parts, _| {
        let first = counter.add() == 1;
        let status = StatusCode::from_bytes(parts.headers["x-status"].as_bytes()).unwrap();
        async move { if first { status } else { StatusCode::OK } }
    });
    (app, runs)
}

// T44
#[apply(on_each_store)]
async fn refusals_that_are_inconclusive_are_not_kept(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    for status in INCONCLUSIVE {
        // In every profile, even one that keeps a 5xx: a limiter may be in front of Stripe's guard too, and it never frees a key.
        for errors in [ServerErrors::Reconcile, ServerErrors::Keep, ServerErrors::RetryFresh] {
            let key = format!("{status}-{errors:?}");
            let (app, runs) =
                refuses_once(guard_of(store.clone(), Operation::new(PAY).server_errors(errors)));
            let request = || order(&key).header("x-status", status.to_string()).body("{}".into()).unwrap();
            let first = send(&app, request()).await;
            assert_eq!((first.status, first.header("idempotency-expires")), (status, None));
            let kept = record(&store, &key).await.unwrap();
            assert!(
                matches!(kept.state, State::Unknown { cause: UnknownCause::PerhapsExecuted, .. }),
                "{status}: {kept:?}"
            );
            send(&app, request()).await.assert_problem(409, "outcome-unknown");
            assert_eq!(runs.count(), 1, "{status}");
        }
    }
}

// T44
#[tokio::test]
async fn an_inconclusive_status_is_logged_with_its_remedy() {
    let logs = Logs::capture();
    let (app, _) = refuses_once(guard(MemoryStore::new()));
    send(&app, order("too-fast").header("x-status", "429").body("{}".into()).unwrap()).await;
    let lines = logs.lines_with(&record_key(TENANT, PAY, "too-fast").hash().to_string());
    assert!(lines.iter().any(|line| line.level() == "WARN" && line.text.contains("route_layer")));
}

// T44
#[tokio::test]
async fn a_refusal_counts_as_its_handler_or_a_layer_marks_it() {
    for status in INCONCLUSIVE.map(|status| StatusCode::from_u16(status).unwrap()) {
        for (outcome, expected) in [
            (Outcome::Completed, "completed"),
            (Outcome::NotExecuted, "failed_retryable"),
            (Outcome::NotBegun, "failed_retryable"),
            (Outcome::PerhapsExecuted, "unknown"),
        ] {
            let store = MemoryStore::new();
            let app = api(guard(store.clone()), move |_, _| async move { (status, Extension(outcome)) });
            assert_eq!(send(&app, pay("order-1")).await.status, status.as_u16());
            assert_eq!(state(&store, "order-1").await, expected, "{status} {outcome:?}");
            // Marked as by a layer inside the guard, around a handler that does not mark its response.
            let store = MemoryStore::new();
            let handler = service_fn(move |_: Request<Body>| async move {
                let mut response = status.into_response();
                response.extensions_mut().insert(outcome);
                Ok::<_, std::convert::Infallible>(response)
            });
            send(&guard(store.clone()).layer(handler), pay("order-1")).await;
            assert_eq!(state(&store, "order-1").await, expected, "{status} {outcome:?}");
        }
    }
}

// T44: a handler's 404 or 405 says what was not found or is no longer possible, as ACP's cancel does.
#[tokio::test]
async fn a_404_or_405_with_a_body_is_an_answer() {
    for (status, body) in
        [(StatusCode::NOT_FOUND, "no such customer"), (StatusCode::METHOD_NOT_ALLOWED, "completed")]
    {
        let app = api(guard(MemoryStore::new()), move |_, _| async move { (status, body) });
        let first = send(&app, pay("order-1")).await;
        send(&app, pay("order-1")).await.assert_replay_of(&first);
    }
}

// T44: the recommended set-up of the documentation.
#[tokio::test]
async fn a_router_around_the_guard_refuses_methods_and_paths_without_a_record() {
    let store = MemoryStore::new();
    let app = Router::new().route("/payments", post(async || "paid").route_layer(guard(store.clone())));
    for (method, path, status) in [(Method::PATCH, "/payments", 405), (Method::POST, "/nowhere", 404)] {
        let mut request = pay("order-1");
        (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
        assert_eq!(send(&app, request).await.status, status);
        assert_eq!(record(&store, "order-1").await, None);
    }
    assert_eq!(send(&app, pay("order-1")).await.status, 200);
}

/// A handler that refuses small orders before anything is done.
fn checks(guard: Guard) -> (Router, Counter) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Order {
        amount_cents: u64,
    }
    let runs = Counter::default();
    let counter = runs.clone();
    let handler = move |execution: Execution, OrNotBegun(Json(order)): OrNotBegun<Json<Order>>| async move {
        if order.amount_cents < 100 {
            return NotBegun((StatusCode::UNPROCESSABLE_ENTITY, "too little")).into_response();
        }
        counter.add();
        execution.downstream_key("charge").into_response()
    };
    (Router::new().route("/payments", post(handler).route_layer(guard)), runs)
}

fn of(key: &str, body: &'static str) -> Request<Body> {
    order(key).body(body.into()).unwrap()
}

#[apply(on_each_store)]
async fn an_operation_not_begun_leaves_its_key_free_for_any_request(endpoint: &str) {
    let (store, clock) = (dynamodb(endpoint).await, clock());
    let (app, runs) = checks(guard(store.clone()).world(clock.clone()));
    for (key, bad, status) in [
        ("marked", r#"{"amountCents":1}"#, 422),
        ("extracted", "{nonsense", 400),
        ("not-an-order", r#"{"amount":1}"#, 422),
    ] {
        for _ in 0..2 {
            let refused = send(&app, of(key, bad)).await;
            assert_eq!(
                (refused.status, refused.replayed(), refused.header("idempotency-expires")),
                (status, false, None)
            );
            let record = record(&store, key).await.unwrap();
            assert_eq!((record.state.name(), record.attempts), ("failed_retryable", 1), "each is the first");
            assert!(record.expired(clock.now().minus(CLOCK_SKEW)), "for a clock that is behind too");
            let asked = operation_status(&store, &record.key, clock.now(), &Profile::default()).await;
            Answer::of(asked).await.assert_problem(404, "operation-not-found");
        }
        // A worker whose clock is behind accepts the corrected request too.
        clock.set(clock.now().minus(CLOCK_SKEW - Duration::from_secs(1)));
        let corrected = send(&app, pay(key)).await;
        assert_eq!((corrected.status, corrected.replayed()), (200, false), "{key}");
        send(&app, pay(key)).await.assert_replay_of(&corrected);
        send(&app, of(key, bad)).await.assert_problem(422, "key-reused");
        clock.advance(CLOCK_SKEW);
    }
    assert_eq!(runs.count(), 3);
}

// T5: an effect of the first attempt may still turn up. It belongs to that attempt's request.
#[apply(on_each_store)]
async fn a_later_attempt_that_never_began_leaves_the_key_to_its_request(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let app = api(guard(store.clone()), |parts, _| async move {
        let first = execution(&parts).attempts() == 1;
        Extension(if first { Outcome::NotExecuted } else { Outcome::NotBegun })
    });
    for _ in 0..2 {
        send(&app, pay("order-1")).await;
        send(&app, pay_other("order-1")).await.assert_problem(422, "key-reused");
    }
    assert_eq!(record(&store, "order-1").await.unwrap().attempts, 2);
}

#[tokio::test]
async fn each_extractor_of_axum_can_refuse_before_anything_begins() {
    #[derive(Deserialize)]
    struct Which {
        number: u32,
    }
    let store = MemoryStore::new();
    let handler =
        |OrNotBegun(Path(account)): OrNotBegun<Path<u32>>,
         OrNotBegun(Query(which)): OrNotBegun<Query<Which>>,
         OrNotBegun(body): OrNotBegun<String>| async move { format!("{account} {} {body}", which.number) };
    let app = Router::new().route("/accounts/{account}", post(handler).route_layer(guard(store.clone())));
    let asked = |uri: &str, body: &'static [u8]| {
        let request = order("order-1").uri(uri).body(body.into()).unwrap();
        let app = app.clone();
        async move { send(&app, request).await }
    };
    for (uri, body) in [
        ("/accounts/none?number=1", &b"text"[..]),
        ("/accounts/1?number=none", b"text"),
        ("/accounts/1", b"text"),
        ("/accounts/1?number=1", b"\xff"),
    ] {
        assert_eq!(asked(uri, body).await.status, 400, "{uri}");
        assert_eq!(state(&store, "order-1").await, "failed_retryable");
    }
    assert_eq!(asked("/accounts/1?number=1", b"text").await.body, "1 1 text");
}

// T23, T44: an inner guard that refuses has run nothing. Its refusal is not the outer operation's answer.
#[tokio::test]
async fn an_inner_guards_refusal_is_not_the_outer_operations_answer() {
    let store = MemoryStore::new();
    let no_tenant = |_: &axum::http::request::Parts| None;
    let inner = lambda_idempotency::http::Idempotency::new(MemoryStore::new(), Operation::new("inner"))
        .tenant(no_tenant);
    let outer = guard(store.clone());
    let app = Router::new().route("/payments", post(async || "paid").route_layer(inner)).layer(outer);
    send(&app, pay("order-1")).await.assert_problem(401, "tenant-missing");
    assert_eq!(state(&store, "order-1").await, "failed_retryable");
}

// T23, T5: the inner operation did not begin, but the outer operation may have begun.
#[tokio::test]
async fn an_inner_operation_that_never_began_frees_no_outer_key() {
    let (inners, outers) = (MemoryStore::new(), MemoryStore::new());
    let inner = guard_of(inners.clone(), Operation::new("inner"));
    let refuses = post(async || NotBegun(StatusCode::BAD_REQUEST)).route_layer(inner);
    let app = Router::new().route("/payments", refuses).layer(guard(outers.clone()));
    assert_eq!(send(&app, pay("order-1")).await.status, 400);
    let inner = inners.load(&record_key(TENANT, "inner", "order-1")).await.unwrap().unwrap();
    let outer = record(&outers, "order-1").await.unwrap();
    assert_eq!(
        (inner.is_not_begun(), outer.is_not_begun(), outer.state.name()),
        (true, false, "failed_retryable")
    );
}

// T23, T44: an inner guard's answer about its own record is never kept as the outer operation's answer.
#[tokio::test]
async fn no_answer_of_an_inner_guard_is_kept_by_the_outer() {
    use lambda_idempotency::{operation::WhileInFlight, record::Record};
    let inner_key = record_key(TENANT, "inner", "order-1");
    for (name, inner) in [
        ("in flight", Operation::new("inner")),
        ("accepted", Operation::new("inner").while_in_flight(WhileInFlight::Accept)),
        ("unknown", Operation::new("inner")),
        ("mismatch", Operation::new("inner")),
        ("too old", Operation::new("inner").refuse_older_than(Duration::from_secs(60), KeyTime::UuidV7)),
    ] {
        let (inners, outers) = (MemoryStore::new(), MemoryStore::new());
        let inner = guard_of(inners.clone(), inner);
        // The inner record, as an earlier request left it.
        let before = api(inner.clone(), move |_, _| async move { StatusCode::BAD_GATEWAY });
        match name {
            "too old" => {}
            "mismatch" => assert_eq!(send(&before, pay_other("order-1")).await.status, 502),
            _ => assert_eq!(send(&before, pay("order-1")).await.status, 502),
        }
        if matches!(name, "in flight" | "accepted") {
            let mut record: Record = inners.load(&inner_key).await.unwrap().unwrap();
            let seen = record.revision;
            record.state = State::InProgress { lease_until: clock().now().plus(Duration::from_secs(60)) };
            record.revision = crate::support::guarded::fresh();
            inners.put(Some(seen), &record, &[]).await.unwrap();
        }
        let runs = Counter::default();
        let counter = runs.clone();
        let handler = post(async move || counter.add().to_string());
        let app = Router::new().route("/payments", handler.route_layer(inner));
        let app = app.layer(guard(outers.clone()).profile(Profile::stripe()));
        let refused = send(&app, pay("order-1")).await;
        assert!(refused.status >= 400 || refused.status == 202, "{name}: {refused:?}");
        let outer = state(&outers, "order-1").await;
        // A mismatch is final: this request can never succeed.
        let expected: &[&str] =
            if name == "mismatch" { &["completed"] } else { &["failed_retryable", "unknown"] };
        assert!(expected.contains(&outer), "{name}: {outer}");
        assert_eq!(runs.count(), 0);
    }
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_is_logged_by_its_name() {
    let (store, logs) = (MemoryStore::new(), Logs::capture());
    let app = api(guard(store.clone()), |_, _| async {
        [("content-disposition", HeaderValue::from_bytes(b"attachment; filename=\"caf\xe9\"").unwrap())]
    });
    for replayed in [false, true] {
        let answer = send(&app, pay("coffee")).await;
        assert_eq!((answer.replayed(), answer.header("content-disposition")), (replayed, None));
    }
    let lines = logs.lines_with(&record_key(TENANT, PAY, "coffee").hash().to_string());
    assert!(lines.iter().any(|line| line.level() == "WARN" && line.text.contains("content-disposition")));
}

#[tokio::test]
async fn a_key_on_an_unguarded_method_is_logged_once_per_method() {
    let logs = Logs::capture();
    // A unique name, because the process has one log.
    let operation = Operation::new("called-by-any-method");
    let app = api(guard_of(MemoryStore::new(), operation), |_, _| async {});
    let by = |method: Method, key: Option<&str>| {
        let request = key.map_or(unkeyed(), order).method(method);
        request.body(Body::empty()).unwrap()
    };
    for _ in 0..3 {
        for method in [Method::PUT, Method::DELETE] {
            assert_eq!(send(&app, by(method.clone(), Some("order-1"))).await.status, 200);
            assert_eq!(send(&app, by(method, None)).await.status, 200);
        }
    }
    let mut lines = logs.lines_with("called-by-any-method");
    lines.retain(|line| line.text.contains("passes unguarded"));
    assert_eq!(lines.iter().map(|line| line.level()).collect::<Vec<_>>(), ["WARN", "WARN"]);
    assert!(lines[0].text.contains("PUT") && lines[1].text.contains("DELETE"));
}

// The key is not free until the store says that nothing began. A corrected request would be refused.
#[tokio::test]
async fn an_unwritten_refusal_invites_no_corrected_request() {
    let guarded = Guarded::through(embedded::endpoint(), |connect| connect.max_attempts(1)).await;
    let faults = guarded.faults.clone();
    let guard = guard_of(guarded.store(), Operation::new(PAY).completion_timeout(Duration::ZERO));
    let app = api(guard, move |_, _| {
        faults.for_all(ANY, Fault::DropRequest);
        async { NotBegun((StatusCode::BAD_REQUEST, "correct it")) }
    });
    let refused = send(&app, pay("order-1")).await;
    refused.assert_problem(503, "store-unavailable");
    assert!(refused.header("retry-after").is_some());
}

// T23: a replay is an answer with any status.
#[tokio::test]
async fn a_replay_of_an_inner_guard_is_kept_by_the_outer() {
    let outers = MemoryStore::new();
    let handler = post(async || (StatusCode::FORBIDDEN, Extension(Outcome::Completed)));
    let inner = Router::new()
        .route("/payments", handler.route_layer(guard_of(MemoryStore::new(), Operation::new("inner"))));
    assert_eq!(send(&inner, pay("order-1")).await.status, 403);
    let app = inner.layer(guard(outers.clone()));
    let first = send(&app, pay("order-1")).await;
    assert_eq!((first.status, first.replayed(), state(&outers, "order-1").await), (403, false, "completed"));
}

// Nothing is reserved yet, so the client must not learn that something may have been done.
#[tokio::test]
async fn a_rule_that_panics_is_reported_and_reserves_nothing() {
    let store = MemoryStore::new();
    let rule =
        lambda_idempotency::fingerprint::FingerprintRule::custom(1, |content| content.body[..1].to_vec());
    let app = api(guard_of(store.clone(), Operation::new(PAY).fingerprint(rule)), |_, _| async {});
    send(&app, of("order-1", "")).await.assert_problem(500, "not-guarded");
    assert_eq!(record(&store, "order-1").await, None);
    assert_eq!(send(&app, of("order-1", "1")).await.status, 200);
    // T43: the same key may have done something, whatever the rule does with this request.
    let retry = send(&app, of("order-1", "")).await;
    retry.assert_problem(500, "not-guarded");
    let advice = retry.json()["detail"].as_str().expect("an advice").to_owned();
    assert!(!advice.contains("Nothing was done") && advice.contains("Do not use a new key"), "{advice}");
}

// Who reads the log looks into that function first.
#[tokio::test]
async fn the_log_names_the_function_that_panicked_over_a_request() {
    let logs = Logs::capture();
    let panics = |_: &Parts| -> Option<Tenant> { panic!("while the caller is verified") };
    let of_tenant = |operation| Idempotency::new(MemoryStore::new(), operation).tenant(panics).world(clock());
    let of_rule = |operation: Operation| {
        let rule = FingerprintRule::custom(1, |_| panic!("while the request is compared"));
        guard_of(MemoryStore::new(), operation.fingerprint(rule))
    };
    let of_key = |operation| {
        let key = KeyFrom::function(|_, _| panic!("while the key is looked for"));
        guard_of(MemoryStore::new(), operation).profile(Profile::ietf_draft().key_from(key))
    };
    for (what, name, guard) in [
        ("the tenant resolver", "panics-by-tenant", &of_tenant as &dyn Fn(Operation) -> Guard),
        ("the fingerprint rule", "panics-by-rule", &of_rule),
        ("the function of the key", "panics-by-key", &of_key),
    ] {
        let app = api(guard(Operation::new(name)), |_, _| async {});
        send(&app, pay("order-1")).await.assert_problem(500, "not-guarded");
        let mut lines = logs.lines_with(name);
        lines.retain(|line| line.level() == "ERROR");
        let says = format!("{what} panicked: this request did nothing");
        assert!(lines.len() == 1 && lines[0].text.contains(&says), "{lines:?}");
    }
}
