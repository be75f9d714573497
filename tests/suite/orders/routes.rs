//! The routes of orders: who may call them, and bad input.

use axum::{body::Body, http::Request};
use lambda_idempotency::http::IDEMPOTENCY_KEY;
use serde_json::json;

use crate::support::{
    embedded,
    orders::{OrdersApi, Placed},
    payments_api::{assert_guarded, send_as},
};

#[tokio::test]
async fn every_route_that_changes_something_is_guarded_and_refuses_a_keyless_request() {
    let api = OrdersApi::on(embedded::endpoint()).await;
    let body = Placed::new(1, "tok_ok", "tea", 1).body();
    assert_guarded(&api.app, &api.routes(), &body.to_string()).await;
}

#[tokio::test]
async fn an_invalid_order_leaves_its_key_free_and_shows_nothing_of_itself() {
    let api = OrdersApi::on(embedded::endpoint()).await;
    let good = Placed::new(1, "tok_secret", "tea", 1).body();
    let with = |member: &str, value: serde_json::Value| {
        let mut order = good.clone();
        order[member] = value;
        order.to_string()
    };
    let mut incomplete = good.clone();
    incomplete.as_object_mut().unwrap().remove("sku");
    let wrong = [
        (400, "{\"customerId\": \"tok_secret".to_owned()),
        (400, String::new()),
        (422, "[]".to_owned()),
        (422, "\"tok_secret\"".to_owned()),
        (422, incomplete.to_string()),
        (422, with("more", json!("tok_secret"))),
        (422, with("tok_secret", json!(1))),
        (422, with("quantity", json!(0))),
        (422, with("quantity", json!(101))),
        (422, with("quantity", json!(-1))),
        (422, with("quantity", json!(1.5))),
        (422, with("quantity", json!("1"))),
        (422, with("quantity", json!(18_446_744_073_709_551_616_f64))),
        (422, with("sku", json!(""))),
        (422, with("sku", json!("tok_secret#order"))),
        (422, with("sku", json!("tok/secret"))),
        (422, with("sku", json!("t".repeat(65)))),
        (422, with("sku", json!("t\u{0}"))),
        (422, with("sku", json!({ "S": "tea" }))),
        (422, with("amountCents", json!(0))),
        (422, with("amountCents", json!(1_000_000_001))),
        (422, with("currency", json!("eur"))),
        (422, with("customerId", json!(""))),
        (422, with("source", json!("tok_secret".repeat(20)))),
        (422, with("source", json!(null))),
    ];
    for (status, body) in &wrong {
        let refused = api.order("k", body.clone()).await;
        assert_eq!(
            (refused.status, &refused.json()["type"]),
            (*status, &json!("urn:orders:invalid-order")),
            "{body}"
        );
        assert!(!String::from_utf8_lossy(&refused.body).contains("secret"), "{body}");
    }
    let untyped =
        Request::post("/orders").header(IDEMPOTENCY_KEY, "k").body(Body::from(good.to_string())).unwrap();
    assert_eq!(send_as(&api.app, "acme", untyped).await.status, 415);
    let large = api.order("k", format!("[{}]", " ".repeat(3 << 20))).await;
    assert_eq!(large.status, 413, "{large:?}");
    // Another request under the same key begins, though the provider is away.
    api.order("k", good.to_string()).await.assert_problem(503, "interrupted");
}

#[tokio::test]
async fn what_is_not_there_is_not_found_however_it_is_named() {
    let api = OrdersApi::on(embedded::endpoint()).await;
    for path in
        ["/orders/ord_1", "/orders/%23", "/orders/..%2Fstock", "/stock/a%23b", "/stock/a%2Fb", "/stock/%00"]
    {
        assert_eq!(api.get("acme", path).await.status, 404, "{path}");
    }
    assert_eq!(api.get("acme", &format!("/orders/{}", "o".repeat(5_000))).await.status, 404);
    assert_eq!(api.get("acme", &format!("/stock/{}", "s".repeat(65))).await.status, 404);
}
