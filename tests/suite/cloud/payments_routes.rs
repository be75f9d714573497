//! The payments function: every route that changes state is guarded, and every answer is true.

use axum::{body::Body, http::Request};
use lambda_idempotency::{http::IDEMPOTENCY_KEY, record::Note, store::Store};
use macro_rules_attribute::apply;
use payments::policy::CREATE_PAYMENT;
use serde_json::{Value, json};

use crate::support::{
    http::{Answer, record_key},
    on_each_store,
    payments_api::{PaymentsApi, TestProvider, assert_guarded, order},
};

const NO_PROVIDER: &str = "http://127.0.0.1:1";

fn problem(answer: &Answer) -> (u16, String) {
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    let document = answer.json();
    assert_eq!(document["status"], answer.status);
    assert!(document["title"].is_string(), "{document}");
    let name = document["type"].as_str().and_then(|uri| uri.rsplit(':').next());
    (answer.status, name.unwrap_or_default().to_owned())
}

#[tokio::test]
async fn every_route_that_changes_something_is_guarded_and_refuses_a_keyless_request() {
    let api = PaymentsApi::on(crate::support::embedded::endpoint(), NO_PROVIDER).await;
    assert_guarded(&api.app, &api.routes(), &order("tok")).await;
}

#[apply(on_each_store)]
async fn a_payment_is_made_once_and_listed_to_its_tenant_alone(endpoint: &str) {
    let provider = TestProvider::start().await;
    let api = PaymentsApi::on(endpoint, &provider.url).await;
    let first = api.pay("acme", "order-1", order("tok")).await;
    assert_eq!(first.status, 201);
    let payment = first.json();
    let path = first.header("location").unwrap().to_owned();
    assert_eq!(path, format!("/payments/{}", payment["id"].as_str().unwrap()));
    api.pay("acme", "order-1", order("tok")).await.assert_replay_of(&first);
    assert_eq!(api.pay("acme", "order-1", order("other")).await.problem().1, "key-reused");
    assert_eq!(provider.charged(), 1);
    assert!(!String::from_utf8_lossy(&first.body).contains("tok"), "the card is not shown");

    // The same key of another tenant is a different key, and its payments are separate.
    let other = api.pay("globex", "order-1", order("tok")).await;
    assert_eq!((other.status, other.replayed(), provider.charged()), (201, false, 2));
    assert_ne!(other.json()["id"], payment["id"]);
    let listed = |answer: Answer| answer.json()["payments"].clone();
    assert_eq!(listed(api.get("acme", "/payments").await), json!([payment]));
    assert_eq!(listed(api.get("globex", "/payments").await), json!([other.json()]));
    assert_eq!(listed(api.get("initech", "/payments").await), json!([]));
    assert_eq!(api.get("acme", &path).await.json(), payment);
    assert_eq!(problem(&api.get("globex", &path).await), (404, "not-found".to_owned()));
    let after = format!("/payments?after={}", payment["id"].as_str().unwrap());
    assert_eq!(listed(api.get("acme", &after).await), json!([]));

    let status = api.get("acme", "/operations/order-1?operation=create-payment").await;
    assert_eq!((status.status, &status.json()["state"]), (200, &Value::from("completed")));
    let unseen = api.get("initech", "/operations/order-1?operation=create-payment").await;
    assert_eq!(problem(&unseen), (404, "operation-not-found".to_owned()));
}

#[apply(on_each_store)]
async fn a_declined_card_is_an_answer_that_is_kept(endpoint: &str) {
    let provider = TestProvider::start().await;
    let api = PaymentsApi::on(endpoint, &provider.url).await;
    for (card, expected) in [("declined", (402, "card-declined")), ("rejected", (422, "order-rejected"))] {
        let first = api.pay("acme", card, order(card)).await;
        assert_eq!(problem(&first), (expected.0, expected.1.to_owned()));
        let asked = provider.charged();
        api.pay("acme", card, order(card)).await.assert_replay_of(&first);
        assert_eq!(provider.charged(), asked, "the provider is not asked again");
    }
    assert_eq!(api.get("acme", "/payments").await.json()["payments"], json!([]));
}

#[apply(on_each_store)]
async fn a_refused_connection_charges_nothing_and_the_retry_runs(endpoint: &str) {
    let provider = TestProvider::start().await;
    let api = PaymentsApi::on(endpoint, &provider.url).await;
    let away = api.behind(NO_PROVIDER);
    for _ in 0..2 {
        let refused = away.pay("acme", "order-1", order("tok")).await;
        assert_eq!(problem(&refused), (503, "provider-away".to_owned()));
        assert!(refused.header("retry-after").is_some());
    }
    let paid = api.pay("acme", "order-1", order("tok")).await;
    assert_eq!((paid.status, paid.replayed(), provider.charged()), (201, false, 1));
    away.pay("acme", "order-1", order("tok")).await.assert_replay_of(&paid);
}

#[apply(on_each_store)]
async fn a_lost_provider_answer_is_unknown_and_never_charged_again(endpoint: &str) {
    let provider = TestProvider::start().await;
    let api = PaymentsApi::on(endpoint, &provider.url).await;
    // No answer in time, an unclassified failure, an unreadable answer.
    for (number, card) in ["hang", "500", "echo"].into_iter().enumerate() {
        let first = api.pay("acme", card, order(card)).await;
        assert_eq!(problem(&first), (504, "charge-unknown".to_owned()), "{card}");
        for _ in 0..2 {
            let retry = api.pay("acme", card, order(card)).await;
            assert_eq!(problem(&retry), (409, "outcome-unknown".to_owned()), "{card}");
        }
        assert_eq!(provider.charged(), number + 1, "the provider is not asked again");
        let status = api.get("acme", &format!("/operations/{card}")).await;
        assert_eq!(status.json()["state"], "unknown");
    }
    assert_eq!(api.get("acme", "/payments").await.json()["payments"], json!([]));
}

#[apply(on_each_store)]
async fn an_invalid_order_is_refused_without_revealing_internals(endpoint: &str) {
    let provider = TestProvider::start().await;
    let api = PaymentsApi::on(endpoint, &provider.url).await;
    let with = |member: &str, value: Value| {
        let mut order: Value = serde_json::from_str(&order("tok")).unwrap();
        order[member] = value;
        order.to_string()
    };
    let json = "application/json";
    let deep = format!("{}\"CHECKPOINT\"{}", "[".repeat(200), "]".repeat(200));
    let cases = [
        (json, "{\"CHECKPOINT".to_owned(), 400),
        (json, String::new(), 400),
        (json, deep, 422),
        (json, "\"CHECKPOINT\"".to_owned(), 422),
        (json, "{}".to_owned(), 422),
        (json, with("CHECKPOINT", 1.into()), 422),
        (json, with("amountCents", 0.into()), 422),
        (json, with("amountCents", (-1).into()), 422),
        (json, with("amountCents", 19.99.into()), 422),
        (json, with("amountCents", "CHECKPOINT".into()), 422),
        (json, with("amountCents", u64::MAX.into()), 422),
        (json, with("currency", "CHECKPOINT".into()), 422),
        (json, with("currency", "eur".into()), 422),
        (json, with("customerId", "CHECKPOINT".repeat(100).into()), 422),
        (json, with("source", Value::Null), 422),
        (json, with("source", "".into()), 422),
        (json, with("customerId", "x".repeat(3_000_000).into()), 413),
        ("text/plain", order("CHECKPOINT"), 415),
        ("CHECKPOINT", order("tok"), 415),
    ];
    for (number, (kind, body, status)) in cases.into_iter().enumerate() {
        let request = || {
            let request = Request::post("/payments").header(IDEMPOTENCY_KEY, format!("bad-{number}"));
            request.header("content-type", kind).body(Body::from(body.clone())).unwrap()
        };
        let refused = api.send("acme", request()).await;
        let shown = &body[..body.len().min(60)];
        assert_eq!(problem(&refused), (status, "invalid-order".to_owned()), "{shown}");
        let text = String::from_utf8(refused.body.to_vec()).unwrap();
        for internal in ["CHECKPOINT", "serde", "axum", "line ", "column", "expected", "xxx", ".rs"] {
            assert!(!text.contains(internal), "{internal} in {text}");
        }
        // Nothing was done: a corrected order may use the same key.
        assert!(!api.send("acme", request()).await.replayed());
        let asked = api.get("acme", &format!("/operations/bad-{number}")).await;
        assert_eq!(problem(&asked), (404, "operation-not-found".to_owned()));
    }
    assert_eq!(provider.charged(), 0);
    let corrected = api.pay("acme", "bad-0", order("tok")).await;
    assert_eq!((corrected.status, corrected.replayed(), provider.charged()), (201, false, 1));
    api.pay("acme", "bad-0", order("tok")).await.assert_replay_of(&corrected);
}

// T45
#[tokio::test]
async fn the_state_of_each_legal_key_is_shown_by_both_forms() {
    let provider = TestProvider::start().await;
    let api = PaymentsApi::on(crate::support::embedded::endpoint(), &provider.url).await;
    for key in ["order-1", "order-1#2", "a/b", "50%", "a?b", "a&b=c"] {
        assert_eq!(api.pay("acme", &format!("\"{key}\""), order("tok")).await.status, 201, "{key}");
        let encoded = percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC);
        for path in [format!("/operations?key={encoded}"), format!("/operations/{encoded}")] {
            let shown = api.get("acme", &path).await;
            assert_eq!((shown.status, &shown.json()["state"]), (200, &json!("completed")), "{path}");
            let other = api.get("acme", &format!("{path}x")).await;
            assert_eq!(problem(&other), (404, "operation-not-found".to_owned()), "{path}");
        }
    }
    assert_eq!(api.get("acme", "/operations").await.status, 404);
}

// T44: a method that no route has is outside the guard.
#[tokio::test]
async fn an_unsupported_method_leaves_no_record() {
    let api = PaymentsApi::on(crate::support::embedded::endpoint(), NO_PROVIDER).await;
    let request = Request::patch("/payments").header(IDEMPOTENCY_KEY, "order-1");
    assert_eq!(api.send("acme", request.body(Body::from(order("tok"))).unwrap()).await.status, 405);
    assert_eq!(api.get("acme", "/operations?key=order-1").await.status, 404);
}

// T43: a provider that compares requests rejects a changed one, and may have charged the first.
#[tokio::test]
async fn a_rejection_is_final_only_if_the_provider_has_no_charge() {
    let provider = TestProvider::start().await;
    let api = PaymentsApi::on(crate::support::embedded::endpoint(), &provider.url).await;
    let paid = api.pay("acme", "changed", order("changed")).await;
    assert_eq!((paid.status, &paid.json()["chargeId"]), (201, &json!("ch_earlier")));
    for (card, status, expected) in [
        ("refused", 402, "card-declined"),
        ("rejected", 422, "order-rejected"),
        ("unsure", 504, "charge-unknown"),
    ] {
        let first = api.pay("acme", card, order(card)).await;
        assert_eq!(problem(&first), (status, expected.to_owned()));
    }
}

#[tokio::test]
async fn the_record_shows_an_operator_its_route_and_its_failure() {
    let provider = TestProvider::start().await;
    let api = PaymentsApi::on(crate::support::embedded::endpoint(), &provider.url).await;
    for (card, status, why) in
        [("tok", 201, None), ("500", 504, Some("handler_failed, status 504")), ("declined", 402, None)]
    {
        assert_eq!(api.pay("acme", card, order(card)).await.status, status);
        let record =
            api.store().load(&record_key("acme", CREATE_PAYMENT, card)).await.unwrap().expect("a record");
        assert_eq!(record.origin.as_ref().map(Note::as_str), Some("POST /payments"), "{card}");
        assert_eq!(record.last_failure.as_ref().map(Note::as_str), why, "{card}");
    }
    let away = api.behind(NO_PROVIDER);
    assert_eq!(away.pay("acme", "away", order("tok")).await.status, 503);
    let record =
        api.store().load(&record_key("acme", CREATE_PAYMENT, "away")).await.unwrap().expect("a record");
    assert_eq!(record.last_failure.as_ref().map(Note::as_str), Some("not_executed, status 503"));
    // The next attempt preserves it.
    assert_eq!(api.pay("acme", "away", order("tok")).await.status, 201);
    let record =
        api.store().load(&record_key("acme", CREATE_PAYMENT, "away")).await.unwrap().expect("a record");
    assert_eq!((record.attempts, record.state.name()), (2, "completed"));
    assert_eq!(record.last_failure.as_ref().map(Note::as_str), Some("not_executed, status 503"));
    assert!(record.began_at >= record.created_at);
}

// Who guesses keys becomes slow. A payment, and the retry of one, is no look-up.
#[apply(on_each_store)]
async fn a_tenant_that_looks_up_too_much_is_slowed_down_alone(endpoint: &str) {
    let provider = TestProvider::start().await;
    let api = PaymentsApi::on(endpoint, &provider.url).await;
    let first = api.pay("acme", "order-1", order("tok")).await;
    let path = "/operations/order-1";
    // More than its burst, and than its rate gives it meanwhile.
    let mut refused = None;
    for _ in 0..10_000 {
        let answer = api.get("acme", path).await;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("a bound");
    refused.assert_problem(429, "too-many-look-ups");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(api.get("globex", path).await.status, 404);
    api.pay("acme", "order-1", order("tok")).await.assert_replay_of(&first);
    assert_eq!(api.pay("acme", "order-2", order("tok")).await.status, 201);
}
