//! An `axum` router with one guarded route: `cargo run --example axum_router`.
//!
//! In memory, and without Lambda: see the guide for `DynamoDbStore` and `lambda::run`.

use axum::{Json, Router, body::Body, extract::Request, http::StatusCode, routing::post};
use lambda_idempotency::{Execution, Idempotency, MemoryStore, Operation, SingleTenant, http::OrNotBegun};
use serde_json::{Value, json};
use tower::ServiceExt;

async fn create(
    execution: Execution,
    OrNotBegun(Json(order)): OrNotBegun<Json<Value>>,
) -> (StatusCode, Json<Value>) {
    println!("  the handler runs, and passes {} on", execution.downstream_key("charge"));
    (StatusCode::CREATED, Json(json!({ "ordered": order["item"] })))
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let guard = Idempotency::new(MemoryStore::new(), Operation::new("create-order"))
        .tenant(SingleTenant::new("shop"));
    let app = Router::new().route("/orders", post(create).route_layer(guard));
    for (key, item) in [("order-1", "tea"), ("order-1", "tea"), ("order-1", "coffee"), ("order-2", "coffee")]
    {
        let request = Request::post("/orders")
            .header("idempotency-key", key)
            .header("content-type", "application/json")
            .body(Body::from(json!({ "item": item }).to_string()))
            .expect("a request");
        println!("{key}, {item}:");
        let response = app.clone().oneshot(request).await.expect("the router answers");
        println!("  {}, replayed: {:?}", response.status(), response.headers().get("idempotent-replayed"));
    }
}
