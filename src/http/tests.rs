//! Guards within guards, and what callers get if a report is not written.

use std::sync::atomic::Ordering;

use axum::{
    Extension, Router,
    body::Body,
    http::{Request, StatusCode},
    routing::post,
};
use tower::ServiceExt;

use super::{Idempotency, Outcome, SingleTenant};
use crate::{
    engine::tests::Faulty,
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    operation::Operation,
    record::Record,
    store::{Store, memory::MemoryStore},
};

async fn status(app: Router) -> StatusCode {
    let request = Request::post("/").header("idempotency-key", "k").body(Body::empty()).unwrap();
    app.oneshot(request).await.unwrap().status()
}

async fn record(store: &MemoryStore, operation: &str) -> Record {
    let (tenant, key) = (Tenant::parse("bank").unwrap(), IdempotencyKey::parse("k").unwrap());
    let key = RecordKey::new(tenant, OperationName::parse(operation).unwrap(), key);
    store.load(&key).await.unwrap().expect("a record")
}

// T5, T23: what the handler says of more than its writes stands, for a guard around this one too.
#[tokio::test]
async fn an_inner_handlers_possible_effect_releases_no_outer_record() {
    for (outcome, state) in
        [(Outcome::PerhapsExecuted, "unknown"), (Outcome::NotExecuted, "failed_retryable")]
    {
        let outers = MemoryStore::new();
        let inner = Idempotency::new(MemoryStore::new(), Operation::new("inner"));
        let inner = inner.tenant(SingleTenant::new("bank")).single_transaction();
        let outer = Idempotency::new(outers.clone(), Operation::new("outer"));
        let handler = post(async move || (StatusCode::BAD_GATEWAY, Extension(outcome)));
        let app = Router::new().route("/", handler.route_layer(inner));
        assert_eq!(status(app.layer(outer.tenant(SingleTenant::new("bank")))).await, 502);
        assert_eq!(record(&outers, "outer").await.state.name(), state);
    }
}

// T5, T23: the inner operation did not begin, but the outer one may have begun.
#[tokio::test]
async fn an_inner_operation_that_never_began_frees_no_outer_key() {
    let outers = MemoryStore::new();
    let inner = Idempotency::new(MemoryStore::new(), Operation::new("inner"));
    let outer = Idempotency::new(outers.clone(), Operation::new("outer"));
    let handler = post(async || (StatusCode::BAD_REQUEST, Extension(Outcome::NotBegun)));
    let app = Router::new().route("/", handler.route_layer(inner.tenant(SingleTenant::new("bank"))));
    assert_eq!(status(app.layer(outer.tenant(SingleTenant::new("bank")))).await, 400);
    let outer = record(&outers, "outer").await;
    assert_eq!((outer.is_not_begun(), outer.state.name()), (false, "failed_retryable"));
}

// T43: the key is not free yet, so a corrected request would be refused as a mismatch.
#[tokio::test]
async fn a_refusal_that_is_not_written_invites_no_corrected_request() {
    for (is_away, expected) in [(false, 400), (true, 503)] {
        let store = Faulty::new();
        let away = store.is_away.clone();
        let operation = Operation::new("pay").completion_timeout(std::time::Duration::ZERO);
        let guard = Idempotency::new(store, operation).tenant(SingleTenant::new("bank"));
        let handler = post(async move || {
            away.store(is_away, Ordering::SeqCst);
            (StatusCode::BAD_REQUEST, Extension(Outcome::NotBegun))
        });
        assert_eq!(status(Router::new().route("/", handler.route_layer(guard))).await, expected);
    }
}
