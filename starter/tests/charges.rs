//! The route, on the memory store, with a provider that counts. `idempotency-local` runs it on a DynamoDB.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use charges::{Provider, app, operation};
use lambda_idempotency::{
    MemoryStore, http::lambda_http::request, queue::MemoryQueue, reconcile::Reconciliation,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceExt;

/// Serves on a free port, and returns its URL.
async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// A provider, and how often it was asked for a charge.
async fn provider() -> (String, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let charge = async |State(calls): State<Arc<AtomicU32>>| {
        let number = calls.fetch_add(1, Ordering::SeqCst) + 1;
        (StatusCode::CREATED, Json(json!({ "id": format!("ch_{number}") })))
    };
    let router = Router::new().route("/charges", post(charge)).with_state(calls.clone());
    (serve(router).await, calls)
}

/// Sends an order as API Gateway does, and returns status and body.
async fn order(app: &Router, key: &str, cents: u32) -> (u16, Value) {
    let event = json!({
        "version": "2.0",
        "rawPath": "/charges",
        "headers": { "idempotency-key": key, "content-type": "application/json" },
        "body": json!({ "amountCents": cents, "currency": "EUR", "source": "tok_ok" }).to_string(),
        "requestContext": {
            "http": { "method": "POST", "path": "/charges" },
            "authorizer": { "jwt": { "claims": { "sub": "jane" } } },
        },
    });
    let request = request::from_str(&event.to_string()).unwrap().map(Body::new);
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test]
async fn an_order_that_is_sent_again_charges_once() {
    let (url, calls) = provider().await;
    let app = app(MemoryStore::new(), Provider::new(&url).unwrap(), MemoryQueue::new());
    for _ in 0..3 {
        assert_eq!(order(&app, "order-1", 1999).await, (201, json!({ "charge": "ch_1" })));
    }
    assert_eq!(order(&app, "order-1", 1).await.0, 422, "another request under the same key");
    assert_eq!(order(&app, "order-2", 1999).await.1, json!({ "charge": "ch_2" }));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_order_is_free_again_if_the_provider_is_away() {
    let store = MemoryStore::new();
    let away = app(store.clone(), Provider::new("http://127.0.0.1:1").unwrap(), MemoryQueue::new());
    assert_eq!(order(&away, "order-1", 1999).await.0, 503);
    let (url, _) = provider().await;
    let back = app(store, Provider::new(&url).unwrap(), MemoryQueue::new());
    assert_eq!(order(&back, "order-1", 1999).await.0, 201);
}

#[tokio::test]
async fn an_order_that_the_provider_refuses_is_refused_for_good() {
    let no_charge = async || (StatusCode::NOT_FOUND, Json(json!({ "error": "no_such_charge" })));
    let router = Router::new()
        .route("/charges", post(async || StatusCode::BAD_REQUEST))
        .route("/charges/{key}", get(no_charge));
    let url = serve(router).await;
    let app = app(MemoryStore::new(), Provider::new(&url).unwrap(), MemoryQueue::new());
    for _ in 0..2 {
        assert_eq!(order(&app, "order-1", 1999).await, (422, json!({ "error": "refused" })));
    }
}

#[tokio::test]
async fn a_404_that_is_not_the_providers_releases_nothing() {
    let store = MemoryStore::new();
    let router = Router::new().route("/charges", post(async || StatusCode::INTERNAL_SERVER_ERROR));
    let provider = Provider::new(&serve(router).await).unwrap();
    let app = app(store.clone(), provider.clone(), MemoryQueue::new());
    assert_eq!(order(&app, "order-1", 1999).await.0, 502);
    poll(store, provider).await;
    assert_eq!(order(&app, "order-1", 1999).await.0, 409, "it is still unknown");
}

#[tokio::test]
async fn a_charge_whose_answer_was_lost_is_found() {
    let charged = json!({ "status": "succeeded", "charge": { "id": "ch_1" } });
    let (answer, calls) = answer_after_poll(StatusCode::OK, charged).await;
    // As if the answer had not been lost.
    assert_eq!((answer, calls), ((201, json!({ "charge": "ch_1" })), 1));
}

#[tokio::test]
async fn what_the_provider_did_not_charge_is_charged_by_a_retry() {
    let not_charged = json!({ "error": "no_such_charge" });
    let (answer, calls) = answer_after_poll(StatusCode::NOT_FOUND, not_charged).await;
    assert_eq!((answer, calls), ((201, json!({ "charge": "ch_2" })), 2));
}

/// What an order gets if its first call of the provider fails, and the provider, asked about the charge, answers so. Also returns how often
/// the provider was asked to charge.
async fn answer_after_poll(status: StatusCode, known: Value) -> ((u16, Value), u32) {
    type Books = (Arc<AtomicU32>, StatusCode, Value);
    let calls = Arc::new(AtomicU32::new(0));
    let charge = async |State((calls, ..)): State<Books>| match calls.fetch_add(1, Ordering::SeqCst) + 1 {
        1 => (StatusCode::INTERNAL_SERVER_ERROR, Json(Value::Null)),
        number => (StatusCode::CREATED, Json(json!({ "id": format!("ch_{number}") }))),
    };
    let find = async |State((_, status, known)): State<Books>| (status, Json(known));
    let router = Router::new().route("/charges", post(charge)).route("/charges/{key}", get(find));
    let provider = Provider::new(&serve(router.with_state((calls.clone(), status, known))).await).unwrap();
    let store = MemoryStore::new();
    let app = app(store.clone(), provider.clone(), MemoryQueue::new());
    assert_eq!(order(&app, "order-1", 1999).await.0, 502);
    assert_eq!(order(&app, "order-1", 1999).await.0, 409, "the provider is asked first");
    poll(store, provider).await;
    let answer = order(&app, "order-1", 1999).await;
    assert_eq!(order(&app, "order-1", 1999).await, answer);
    (answer, calls.load(Ordering::SeqCst))
}

/// Asks the provider about what is unknown.
async fn poll(store: MemoryStore, provider: Provider) {
    let reconciliation = Reconciliation::new(store, MemoryQueue::new()).not_found_grace(Duration::ZERO);
    let reconciliation = reconciliation.operation(operation(), provider);
    reconciliation.poll(Duration::from_secs(5)).await.unwrap();
}
