//! What users of other layers of this kind ask for: code that sees a replay.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Body,
    extract::Request,
    middleware::{Next, from_fn},
    response::Response,
    routing::post,
};
use lambda_idempotency::{
    Execution, Failure, Guard, How, Idempotency, MemoryStore, Operation, Ran, SingleTenant,
    event::{KeyFrom, invocation_with},
    http::Guarded,
    http::lambda_http::lambda_runtime::{Context, LambdaEvent},
    key::Tenant,
};
use serde_json::{Value, json, value::to_raw_value};
use tower::ServiceExt;

fn order() -> Request {
    Request::post("/orders").header("idempotency-key", "order-1").body(Body::empty()).unwrap()
}

/// A header of one's own.
async fn mark(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if response.extensions().get::<Guarded>().and_then(Guarded::how).is_some_and(How::is_replay) {
        response.headers_mut().insert("x-idempotency", "true".parse().unwrap());
    }
    response
}

// aws-powertools/powertools-lambda-java#1780: executions are counted, and replays are not.
// aws-powertools/powertools-lambda-python#5620: the key of each new record is logged.
// aws-powertools/powertools-lambda-typescript#2887: a replay has a header of one's own.
#[tokio::test]
async fn a_layer_and_an_observer_tell_a_replay_from_an_execution() {
    let executed = Arc::new(Mutex::new(Vec::new()));
    let seen = executed.clone();
    let operation = Operation::new("create-order").observe(move |observed| {
        if observed.how == Some(How::Executed) {
            seen.lock().unwrap().push(observed.key.hash().to_string());
        }
    });
    let guard = Idempotency::new(MemoryStore::new(), operation).tenant(SingleTenant::new("shop"));
    let route = post(async || "an order").route_layer(guard);
    let app: Router = Router::new().route("/orders", route).layer(from_fn(mark));
    for is_replay in [false, true, true] {
        let response = app.clone().oneshot(order()).await.unwrap();
        assert_eq!(response.headers().contains_key("x-idempotency"), is_replay);
    }
    assert_eq!(executed.lock().unwrap().len(), 1);
}

// aws-powertools/powertools-lambda-python#2164, powertools-lambda-dotnet#795: what a caller gets is made of the result and its record.
#[tokio::test]
async fn a_direct_caller_gets_what_is_made_of_a_replay() {
    let guard = Guard::new(MemoryStore::new(), Operation::new("ship"), Tenant::parse("shop").unwrap());
    let ship = async |_: Execution, order: Value| Ok::<_, Failure>(order);
    let reply = |ran: Ran<Value>| match ran.how {
        How::Executed => json!({ "order": ran.value }),
        How::Replayed { first_at } => {
            json!({ "order": ran.value, "first": first_at.as_millis(), "kept": ran.expires_at.is_some() })
        }
    };
    let service = invocation_with(guard, KeyFrom::body("/orderId"), ship, reply);
    for is_replay in [false, true] {
        let event = LambdaEvent::new(to_raw_value(&json!({ "orderId": "o-1" })).unwrap(), Context::default());
        let got = service.clone().oneshot(event).await.unwrap();
        assert_eq!((got["first"].is_u64(), got["kept"] == true), (is_replay, is_replay), "{got}");
    }
}
