//! A request's target counts for its fingerprint, in whichever form routers and gateways pass it on.

use axum::{
    Router,
    body::Body,
    extract::Path,
    http::{Request, StatusCode, header::CONTENT_TYPE},
    routing::post,
};
use http_body_util::BodyExt;
use lambda_idempotency::{
    engine::Execution,
    http::{Idempotency, SingleTenant},
    operation::Operation,
    store::memory::MemoryStore,
};
use tower::ServiceExt;

use crate::support::http::Guard;

fn guard() -> Guard {
    Idempotency::new(MemoryStore::new(), Operation::new("pay")).tenant(SingleTenant::new("acme"))
}

async fn send(app: &Router, uri: &str) -> (StatusCode, String) {
    let request = Request::post(uri).header("idempotency-key", "k").header(CONTENT_TYPE, "application/json");
    let response = app.clone().oneshot(request.body(Body::from("{}")).unwrap()).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

// A nested router strips its prefix from the path that the guard sees.
#[tokio::test]
async fn two_accounts_of_a_nested_router_are_two_requests() {
    let pay = async |Path(account): Path<String>| format!("paid from {account}");
    let accounts = Router::new().route("/payments", post(pay).layer(guard()));
    let app = Router::new().nest("/accounts/{account}", accounts);
    let paid = (StatusCode::OK, "paid from 1".to_owned());
    assert_eq!(send(&app, "/accounts/1/payments").await, paid);
    assert_eq!(send(&app, "/accounts/2/payments").await.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(send(&app, "/accounts/1/payments").await, paid);
}

#[tokio::test]
async fn query_parameters_count_and_the_order_of_their_names_does_not() {
    let app = Router::new().route("/payments", post(async |_: Execution| "paid").layer(guard()));
    assert_eq!(send(&app, "/payments?b=2&a=1&a=0").await.0, StatusCode::OK);
    assert_eq!(send(&app, "/payments?a=1&a=0&b=2").await.0, StatusCode::OK);
    for other in ["/payments?a=0&a=1&b=2", "/payments?a=1&b=2", "/payments?a=1&a=0&b=3", "/payments"] {
        assert_eq!(send(&app, other).await.0, StatusCode::UNPROCESSABLE_ENTITY, "{other}");
    }
}
