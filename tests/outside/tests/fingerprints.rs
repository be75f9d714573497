//! What makes two inputs one.

use std::{collections::HashMap, iter};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    routing::post,
};
use lambda_idempotency::{Failure, Idempotency, MemoryStore, Operation, Ran, RunError, SingleTenant};
use outside::guard;
use serde::Serialize;
use serde_json::{Value, json};
use tower::ServiceExt;

/// Whether two inputs under one key are one.
async fn are_one<I: Serialize + Send + 'static>(first: I, second: I) -> bool {
    let guard = guard(Operation::new("ship"));
    let ship = |_, _| async { Ok::<_, Failure>(()) };
    guard.run(&["order-1"], first, ship).await.unwrap();
    match guard.run(&["order-1"], second, ship).await {
        Ok(_) => true,
        Err(RunError::Mismatch) => false,
        Err(other) => panic!("{other:?}"),
    }
}

/// As many entries as it takes until no two maps of them have one order.
fn names() -> impl Iterator<Item = String> {
    (0..32).map(|number| format!("sku-{number}"))
}

// T25
#[tokio::test]
async fn maps_are_one_in_every_order_and_lists_are_not() {
    let map = || names().zip(1..).collect::<HashMap<String, u32>>();
    let (first, second) = (map(), map());
    assert!(!first.keys().eq(second.keys()), "two maps have one order");
    assert!(are_one(first, second).await);
    assert!(!are_one(vec![1, 2], vec![2, 1]).await, "the order of a list counts");
}

// T25, T71
#[tokio::test]
async fn numbers_are_one_by_their_exact_value() {
    assert!(are_one(json!({ "a": 1 }), json!({ "a": 1.0 })).await);
    assert!(are_one(0.0, -0.0).await);
    assert!(!are_one(117.633_311_394_000_17, 117.633_311_394_000_16).await, "neighbours");
    assert!(!are_one(9_007_199_254_740_992_u64, 9_007_199_254_740_993).await);
    assert!(!are_one(u128::MAX, u128::MAX - 1).await);
    assert!(!are_one(json!(1), json!("1")).await);
    assert!(!are_one(None, Some(0)).await);
}

// T25, T71
#[tokio::test]
async fn a_json_body_is_compared_by_its_exact_numbers() {
    let guard = || {
        let guard = Idempotency::new(MemoryStore::new(), Operation::new("ship"));
        guard.tenant(SingleTenant::new("shop"))
    };
    for (second, status) in [
        (r#"{"cents":100,"rate":117.63331139400017}"#, StatusCode::OK),
        (r#"{ "rate": 11763331139400017e-14, "cents": 1.00e2 }"#, StatusCode::OK),
        (r#"{"cents":100,"rate":117.63331139400016}"#, StatusCode::UNPROCESSABLE_ENTITY),
        (r#"{"cents":100,"rate":117.633311394000170000000000000001}"#, StatusCode::UNPROCESSABLE_ENTITY),
        (r#"{"cents":"100","rate":117.63331139400017}"#, StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        let app: Router = Router::new().route("/", post(async || "shipped").route_layer(guard()));
        let statuses = iter::once(r#"{"cents":100,"rate":117.63331139400017}"#).chain([second]).map(|body| {
            let request = Request::post("/").header("idempotency-key", "order-1");
            let request = request.header("content-type", "application/json").body(Body::from(body));
            app.clone().oneshot(request.unwrap())
        });
        let mut seen = Vec::new();
        for answer in statuses {
            seen.push(answer.await.unwrap().status());
        }
        assert_eq!(seen, [StatusCode::OK, status], "{second}");
    }
}

// T69
#[tokio::test]
async fn an_input_that_json_cannot_carry_is_refused() {
    async fn assert_refused<I: Serialize + Send + 'static>(input: I) {
        let guard = guard(Operation::new("ship"));
        let refused: Result<Ran<()>, _> =
            guard.run(&["order-1"], input, |_, _| async { panic!("it ran") }).await;
        assert!(matches!(refused, Err(RunError::Input(_))), "{refused:?}");
    }
    assert_refused(f64::NAN).await;
    assert_refused([Some(())]).await;
    assert_refused(HashMap::from([((1, 2), 3)])).await;
}

#[tokio::test]
async fn a_value_is_one_with_the_type_that_it_was_made_of() {
    #[derive(Serialize)]
    struct Parcel {
        grams: f64,
        to: Option<String>,
    }
    let typed: Value = serde_json::to_value(Parcel { grams: 0.1, to: None }).unwrap();
    assert!(are_one(typed, json!({ "to": null, "grams": 0.1 })).await);
}
