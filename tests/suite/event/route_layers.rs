//! What is around the guard of a route, and the keys that it takes from messages.

use axum::{
    Router,
    body::Body,
    http::{Method, Request, StatusCode},
    middleware::{Next, from_fn},
    response::IntoResponse,
    routing::post,
};
use lambda_idempotency::{
    Operation,
    event::{Consumer, KeyFrom, Message},
    http::{KeySyntax, Profile},
};
use macro_rules_attribute::apply;
use serde_json::json;

use super::{
    queue,
    routes::{self, consumer, order_of, shop, shop_of},
};
use crate::support::{
    guarded::Guarded,
    http::{Counter, Gate, PAY, api, guard_of, send, until_state},
    messages::{deliver, message, received},
    on_each_store,
};

// T44: such an answer speaks of the moment. A later one may be the order's.
#[apply(on_each_store)]
async fn a_layer_around_a_guard_that_sheds_load_hands_orders_back(endpoint: &str) {
    for status in [408, 425, 429, 502, 503, 504].map(|status| StatusCode::from_u16(status).expect("a status"))
    {
        let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
        let calls = Counter::default();
        let layer = from_fn(move |request: Request<Body>, next: Next| {
            let call = calls.add();
            async move { if call <= 3 { status.into_response() } else { next.run(request).await } }
        });
        let consumer = consumer(&guarded, shop(&guarded, &runs).layer(layer), &queue);
        for times in 1..=4 {
            let order = received("m-1", json!({ "orderId": "o-1" }), times);
            let back = deliver(&consumer, &[order]).await.expect("an answer");
            assert_eq!(back.is_empty(), times == 4, "{status}, {times}");
        }
        let ends = (runs.count(), queue.take_hidden().len(), queue.take_dead().len());
        assert_eq!(ends, (1, 3, 0), "{status}: more receives than attempts, and none of them counts");
    }
}

// T44, T35: its time-out drops the call and not the handler.
#[apply(on_each_store)]
async fn an_order_that_outlives_a_time_out_around_it_is_acknowledged(endpoint: &str) {
    let (guarded, queue, runs, gate) =
        (Guarded::on(endpoint).await, queue(), Counter::default(), Gate::closed());
    let guard = guard_of(guarded.store(), Operation::new(PAY)).world(guarded.clock.clone());
    let (held, counted) = (gate.clone(), runs.clone());
    let app = api(guard, move |_, _| {
        let (held, counted) = (held.clone(), counted.clone());
        async move {
            held.pass().await;
            (StatusCode::CREATED, format!("order {}", counted.add()))
        }
    });
    let reached = gate.clone();
    let app = app.layer(from_fn(move |request: Request<Body>, next: Next| {
        let reached = reached.clone();
        async move {
            tokio::select! {
                response = next.run(request) => response,
                () = reached.reached(1), if reached.is_closed() => StatusCode::REQUEST_TIMEOUT.into_response(),
            }
        }
    }));
    let consumer = consumer(&guarded, app, &queue);
    let order = |times| received("m-1", json!({ "orderId": "o-1" }), times);
    assert_eq!(deliver(&consumer, &[order(1)]).await.expect("an answer"), ["m-1"]);
    gate.open();
    until_state(&guarded.undisturbed_store(), "o-1", "completed").await;
    assert!(deliver(&consumer, &[order(2)]).await.expect("an answer").is_empty());
    assert_eq!((runs.count(), queue.take_dead().len()), (1, 0));
}

#[apply(on_each_store)]
async fn an_unguarded_route_buries_orders_with_its_status(endpoint: &str) {
    for status in [200, 303, 403, 404, 500] {
        let (guarded, queue) = (Guarded::on(endpoint).await, queue());
        let answer = StatusCode::from_u16(status).expect("a status");
        let app = Router::new().route("/payments", post(move || async move { answer }));
        let consumer = consumer(&guarded, app, &queue);
        let order = message("m-1", json!({ "orderId": "o-1" }));
        assert!(deliver(&consumer, &[order]).await.expect("an answer").is_empty());
        let reasons: Vec<_> = queue.take_dead().into_iter().map(|dead| dead.reason).collect();
        assert_eq!(reasons, [format!("the route is not guarded: it answered {status}")]);
        assert_eq!(guarded.number_of_items().await, 0);
    }
}

// In this syntax, no header has quotes: a message's key with quotes is another one, and no header names it.
#[apply(on_each_store)]
async fn an_order_by_both_fronts_has_one_bare_key(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let guard = guard_of(guarded.store(), Operation::new(PAY)).world(guarded.clock.clone());
    let app = shop_of(guard.profile(Profile::default().key_syntax(KeySyntax::Bare)), &runs);
    let consumer = consumer(&guarded, app.clone(), &queue);
    for (key, run) in [("o-1", 1), ("\"o-1\"", 2)] {
        let by_message = message("m-1", json!({ "orderId": key, "sku": "tea" }));
        assert!(deliver(&consumer, &[by_message]).await.expect("an answer").is_empty());
        let mut by_http = order_of(&json!({ "sku": "tea" }));
        by_http.headers_mut().insert("idempotency-key", key.parse().expect("a header"));
        let answer = send(&app, by_http).await;
        match run {
            1 => assert!(answer.replayed() && answer.body == "order 1", "{key}: {answer:?}"),
            _ => answer.assert_problem(400, "key-malformed"),
        }
    }
    assert_eq!((runs.count(), queue.take_dead().len()), (2, 0));
}

// No header has such a key in every syntax.
#[apply(on_each_store)]
async fn a_message_has_a_key_that_no_header_can_have(endpoint: &str) {
    for syntax in [KeySyntax::Item, KeySyntax::Bare, KeySyntax::Either] {
        let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
        let guard = guard_of(guarded.store(), Operation::new(PAY)).world(guarded.clock.clone());
        let app = shop_of(guard.profile(Profile::default().key_syntax(syntax)), &runs);
        let consumer = consumer(&guarded, app, &queue);
        let long = "x".repeat(300);
        let keys = ["two words", "a \"quoted\\\" key", "\"", "a, b", "schlüssel", "line\nbreak", " ", &long];
        for (number, key) in (1..).zip(keys) {
            for id in ["m-1", "m-2"] {
                let order = message(id, json!({ "orderId": key }));
                assert!(deliver(&consumer, &[order]).await.expect("an answer").is_empty());
                assert_eq!((runs.count(), queue.take_dead().len()), (number, 0), "{syntax:?}, {key:?}");
            }
        }
    }
}

// An idempotent method passes unguarded by HTTP. A message would then run each time that it comes.
#[apply(on_each_store)]
async fn an_order_is_guarded_whatever_its_method(endpoint: &str) {
    for profile in [Profile::default(), Profile::default().key_optional(), Profile::acp()] {
        let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
        let guard = guard_of(guarded.store(), Operation::new(PAY)).world(guarded.clock.clone());
        let app = shop_of(guard.profile(profile.clone()), &runs);
        let methods = [Method::POST, Method::PUT, Method::DELETE, Method::GET];
        for method in methods.clone() {
            let order = message("m-1", json!({ "orderId": method.as_str() }));
            let request = move |message: &Message| {
                let mut request = routes::request(message)?;
                *request.method_mut() = method.clone();
                Ok(request)
            };
            let consumer =
                Consumer::new(queue.clone(), KeyFrom::body("/orderId")).route(app.clone(), request);
            for _ in 0..2 {
                let back = deliver(&consumer, std::slice::from_ref(&order)).await.expect("an answer");
                assert!(back.is_empty(), "{profile:?}");
            }
        }
        assert_eq!((runs.count(), queue.take_dead().len()), (methods.len(), 0), "{profile:?}");
    }
}
