//! A slow handler that only writes rows: `cargo run --example domain_writes`.
//!
//! `effects_in_transaction` declares that. An execution that does not commit did nothing, so the outcome is never unknown, and the
//! next retry runs.

use axum::{Router, body::Body, extract::Request, http::StatusCode, routing::post};
use lambda_idempotency::{Execution, Idempotency, MemoryStore, Operation, SingleTenant, domain::Table};
use serde_json::{Value, json};
use tower::ServiceExt;

fn reports() -> Table {
    Table::new("reports", "id")
}

async fn report(execution: Execution) -> StatusCode {
    let row = json!({ "id": execution.idempotency_key().as_str(), "pages": 12 });
    if execution.write(reports().put(&row)).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR; // a mistake in the program: nothing is written
    }
    // The first execution breaks halfway.
    if execution.attempts() == 1 { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::CREATED }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let store = MemoryStore::new();
    let operation = Operation::new("create-report").effects_in_transaction();
    let guard = Idempotency::new(store.clone(), operation).tenant(SingleTenant::new("shop"));
    let app = Router::new().route("/reports", post(report).route_layer(guard));
    for _ in 0..3 {
        let request = Request::post("/reports").header("idempotency-key", "report-1").body(Body::empty());
        let response = app.clone().oneshot(request.expect("a request")).await.expect("the router answers");
        let row: Option<Value> = store.item(&reports(), json!({ "id": "report-1" })).expect("a row");
        let replayed = response.headers().contains_key("idempotent-replayed");
        println!("{}, replayed: {replayed}, row: {}", response.status(), row.is_some());
    }
}
