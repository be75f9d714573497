//! The guard among other layers, and among other guards.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, StatusCode},
    routing::post,
};
use http_body_util::BodyExt;
use lambda_idempotency::{
    http::{Idempotency, SingleTenant},
    operation::Operation,
    store::memory::MemoryStore,
};
use tower::ServiceExt;

use crate::support::{
    embedded,
    faults::{ANY, Fault},
    guarded::Guarded,
};

async fn send(app: &Router, key: &str) -> Response<Body> {
    let request = Request::post("/payments").header("idempotency-key", key).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

async fn problem(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
    document["type"].as_str().unwrap().rsplit(':').next().unwrap().to_owned()
}

// `axum` asks a layer for a new service for each request.
#[tokio::test]
async fn one_circuit_breaker_serves_all_requests_of_a_route() {
    let guarded = Guarded::through(embedded::endpoint(), |connect| connect.max_attempts(1)).await;
    let guard = Idempotency::new(guarded.store(), Operation::new("pay")).tenant(SingleTenant::new("acme"));
    let app =
        Router::new().route("/payments", post(async || "paid").layer(guard.world(guarded.clock.clone())));
    guarded.faults.for_all(ANY, Fault::Status(500));
    for key in 0..20 {
        let response = send(&app, &key.to_string()).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(problem(response).await, "store-unavailable");
    }
    // Five reservations, and a try to take each of them back.
    assert_eq!(guarded.faults.asked("PutItem"), 10);
}

// T38
#[tokio::test]
async fn a_throttled_key_does_not_open_the_breaker_for_others() {
    let guarded = Guarded::through(embedded::endpoint(), |connect| connect.max_attempts(1)).await;
    let guard = Idempotency::new(guarded.store(), Operation::new("pay")).tenant(SingleTenant::new("acme"));
    let app =
        Router::new().route("/payments", post(async || "paid").layer(guard.world(guarded.clock.clone())));
    guarded.faults.script("PutItem", vec![Fault::Throttle; 10]);
    for _ in 0..10 {
        assert_eq!(send(&app, "hot").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(send(&app, "other").await.status(), StatusCode::OK);
}

// T23: the inner guard's refusals are not the operation's answer.
#[tokio::test]
async fn two_nested_guards_of_one_operation_run_and_keep_nothing() {
    let store = MemoryStore::new();
    let guard = Idempotency::new(store, Operation::new("pay")).tenant(SingleTenant::new("acme"));
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let pay = async move || {
        counted.fetch_add(1, Ordering::SeqCst);
        "paid"
    };
    let app = Router::new().route("/payments", post(pay).layer(guard.clone())).layer(guard);
    for _ in 0..2 {
        let response = send(&app, "k").await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!response.headers().contains_key("idempotency-expires"));
        assert_eq!(problem(response).await, "not-guarded");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

// Tower-http's timeout layer drops the handler at any point and answers 408.
#[tokio::test]
async fn a_timeout_inside_the_guard_is_no_answer() {
    let guard = Idempotency::new(MemoryStore::new(), Operation::new("pay")).tenant(SingleTenant::new("acme"));
    let app = Router::new().route("/payments", post(async || StatusCode::REQUEST_TIMEOUT).layer(guard));
    assert_eq!(send(&app, "k").await.status(), StatusCode::REQUEST_TIMEOUT);
    let retry = send(&app, "k").await;
    assert_eq!(retry.status(), StatusCode::CONFLICT);
    assert_eq!(problem(retry).await, "outcome-unknown");
}

#[tokio::test]
async fn an_answer_that_is_kept_for_ever_is_replayed_all_the_same() {
    let for_ever = Operation::new("pay").retain(std::time::Duration::MAX);
    let guard = Idempotency::new(MemoryStore::new(), for_ever).tenant(SingleTenant::new("acme"));
    let app = Router::new().route("/payments", post(async || "paid").layer(guard));
    for _ in 0..2 {
        let response = send(&app, "k").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["idempotency-expires"], "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}

#[test]
fn a_guard_without_a_tenant_fails_to_compile_with_the_reason() {
    let compiled = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["rustc", "--locked", "--package", "tests", "--example", "without_tenant"])
        .args(["--", "--cfg", "without_tenant"])
        .output()
        .expect("cargo runs");
    let message = String::from_utf8_lossy(&compiled.stderr);
    assert!(!compiled.status.success(), "it compiled: {message}");
    for text in ["this guard does not know who its callers are", ".tenant(JwtClaim("] {
        assert!(message.contains(text), "{message}");
    }
}
