//! A unit test in memory, with a clock that the test sets: `cargo run --example unit_test`, or put it under `#[tokio::test]`.

use std::time::Duration;

use axum::{Router, body::Body, extract::Request, routing::post};
use lambda_idempotency::{
    Idempotency, MemoryStore, Operation, SingleTenant, time::Timestamp, world::ManualWorld,
};
use tower::ServiceExt;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let world = ManualWorld::at(Timestamp::from_secs(1_800_000_000));
    let operation = Operation::new("create-order").retain(Duration::from_secs(3600));
    let guard = Idempotency::new(MemoryStore::new(), operation)
        .tenant(SingleTenant::new("test"))
        .world(world.clone());
    let app: Router = Router::new().route("/orders", post(|| async { "ordered" }).route_layer(guard));
    let is_replayed = async || {
        let order = Request::post("/orders").header("idempotency-key", "k-1").body(Body::empty());
        let response = app.clone().oneshot(order.expect("a request")).await.expect("the router answers");
        response.headers().contains_key("idempotent-replayed")
    };

    assert!(!is_replayed().await, "the first request runs");
    assert!(is_replayed().await, "a retry gets the same answer");
    world.advance(Duration::from_secs(3600 + 5 * 60 + 1));
    assert!(!is_replayed().await, "after its retention, and five minutes for clocks, the key is new");
    println!("all three as promised");
}
