//! A queue as another front of a guarded route.

use std::{io, time::Duration};

use axum::{
    Extension, Router,
    body::Body,
    http::{Request, StatusCode},
    response::IntoResponse,
    routing::post,
};
use lambda_idempotency::{
    Idempotency, MemoryStore, NotBegun, Operation, SingleTenant,
    engine::{CallError, PhaseError},
    event::{BatchFunction, Consumer, KeyFrom, MemorySource, Message},
    http::{Outcome, Profile},
    key::IdempotencyKey,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::queue;
use crate::support::{
    faults::{ANY, Fault},
    guarded::Guarded,
    http::{Counter, Guard, PAY, api, execution, guard_of, record, send, unkeyed},
    messages::{deliver, message, received},
    on_each_store,
};

pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);

/// The request that an order by HTTP would be.
pub(super) fn request(message: &Message) -> Result<Request<Body>, String> {
    let mut body: Value = serde_json::from_str(&message.body).map_err(|_| "the order is not JSON")?;
    let order = body.as_object_mut().ok_or("the order is not an object")?;
    order.remove("orderId");
    Ok(order_of(&body))
}

pub(super) fn order_of(body: &Value) -> Request<Body> {
    unkeyed().body(body.to_string().into()).expect("a request")
}

/// A consumer of orders, which tries each twice.
pub(super) fn consumer(guarded: &Guarded, app: Router, source: &MemorySource) -> impl BatchFunction {
    let consumer = Consumer::new(source.clone(), KeyFrom::body("/orderId")).world(guarded.clock.clone());
    consumer.max_attempts(2).route(app, request)
}

/// Answers as the order says, and counts its runs.
pub(super) fn shop(guarded: &Guarded, runs: &Counter) -> Router {
    shop_of(guard_of(guarded.store(), Operation::new(PAY)).world(guarded.clock.clone()), runs)
}

/// The same behind another guard.
pub(super) fn shop_of(guard: Guard, runs: &Counter) -> Router {
    let runs = runs.clone();
    api(guard, move |_, body| {
        let runs = runs.clone();
        async move {
            let run = runs.add();
            let order: Value = serde_json::from_slice(&body).expect("JSON");
            match order["does"].as_str() {
                Some("sold_out") => (StatusCode::CONFLICT, "sold out").into_response(),
                Some("invalid") => NotBegun((StatusCode::UNPROCESSABLE_ENTITY, "invalid")).into_response(),
                Some("explained") => {
                    // Its detail quotes the order.
                    let problem = json!({ "type": "urn:shop:invalid", "title": "The order is invalid", "detail": order });
                    let kind = [("content-type", "application/problem+json")];
                    NotBegun((StatusCode::BAD_REQUEST, kind, problem.to_string())).into_response()
                }
                Some("nothing") => {
                    (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted)).into_response()
                }
                Some("fails") => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
                Some("panics") => panic!("in the handler"),
                _ => (StatusCode::CREATED, format!("order {run}")).into_response(),
            }
        }
    })
}

// The message has one member more than the request, which is the key there.
#[apply(on_each_store)]
async fn an_order_by_both_fronts_happens_once(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let app = shop(&guarded, &runs);
    let consumer = consumer(&guarded, app.clone(), &queue);
    let by_message = message("m-1", json!({ "orderId": "o-1", "sku": "tea" }));
    assert!(deliver(&consumer, &[by_message]).await.expect("an answer").is_empty());
    let mut by_http = order_of(&json!({ "sku": "tea" }));
    by_http.headers_mut().insert("idempotency-key", "o-1".parse().expect("a header"));
    let replay = send(&app, by_http).await;
    assert!(replay.replayed() && replay.body == "order 1", "{replay:?}");
    assert_eq!(runs.count(), 1);
}

// Clients cannot send such a key.
#[apply(on_each_store)]
async fn a_key_of_several_parts_goes_through_a_route(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let parts = KeyFrom::all([KeyFrom::body("/orderId"), KeyFrom::body("/sku")]);
    let consumer = Consumer::new(queue.clone(), parts).world(guarded.clock.clone());
    let consumer = consumer.max_attempts(2).route(shop(&guarded, &runs), request);
    for id in ["m-1", "m-2"] {
        let message = message(id, json!({ "orderId": "o-1", "sku": "tea" }));
        assert!(deliver(&consumer, &[message]).await.expect("an answer").is_empty());
    }
    assert_eq!(runs.count(), 1);
    let key = IdempotencyKey::of(&["o-1", "tea"]).expect("a key");
    let record = record(&guarded.store(), key.as_str()).await.expect("a record");
    assert!(record.origin.is_some_and(|origin| origin.as_str().ends_with(r#" ["o-1","tea"]"#)));
}

// Two orders would have one record.
#[tokio::test]
async fn a_header_of_the_contract_is_not_the_key_of_a_message() {
    let (store, queue) = (MemoryStore::new(), queue());
    let profile = Profile::ietf_draft().key_from(KeyFrom::header("X-Request-Id"));
    let guard = Idempotency::new(store, Operation::new("create-order")).tenant(SingleTenant::new("shop"));
    let runs = Counter::default();
    let counted = runs.clone();
    let route = post(async move || {
        counted.add();
    });
    let app = Router::new().route("/orders", route.route_layer(guard.profile(profile)));
    let request =
        |_: &Message| Ok(Request::post("/orders").header("x-request-id", "r-1").body(Body::empty()).unwrap());
    let consumer = Consumer::new(queue.clone(), KeyFrom::body("/orderId")).route(app, request);
    for order in ["o-1", "o-2"] {
        let message = message("m-1", json!({ "orderId": order }));
        assert!(deliver(&consumer, &[message]).await.expect("an answer").is_empty());
    }
    assert_eq!((runs.count(), queue.take_dead().len()), (2, 0));
}

#[apply(on_each_store)]
async fn what_a_route_answers_decides_what_the_queue_sees(endpoint: &str) {
    // The first two deliveries: whether it is handed back, and why it is dead.
    let cases = [
        ("orders", [(false, None), (false, None)]),
        // Kept answers, whatever their status.
        ("sold_out", [(false, None), (false, None)]),
        ("invalid", [(false, Some("the request was refused with 422")); 2]),
        (
            "explained",
            [(false, Some("the request was refused with 400: The order is invalid (urn:shop:invalid)")); 2],
        ),
        ("nothing", [(true, None), (false, Some("it was tried 2 times"))]),
        ("fails", [(true, None), (true, None)]),
        ("panics", [(true, None), (true, None)]),
    ];
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, shop(&guarded, &runs), &queue);
    for (does, deliveries) in cases {
        for (times, (is_back, reason)) in (1..).zip(deliveries) {
            let order = received("m-1", json!({ "orderId": does, "does": does }), times);
            let back = deliver(&consumer, &[order]).await.expect("an answer");
            let dead = queue.take_dead();
            let reasons: Vec<_> = dead.iter().map(|dead| &*dead.reason).collect();
            assert_eq!((!back.is_empty(), reasons), (is_back, Vec::from_iter(reason)), "{does}, {times}");
        }
    }
    // Those that did nothing ran twice.
    assert_eq!(runs.count(), cases.len() + 3);
}

#[apply(on_each_store)]
async fn an_interrupted_order_is_resumed_by_its_message(endpoint: &str) {
    let (guarded, queue, charges) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let operation = Operation::new(PAY).resumes(["charge", "ship"], DAY);
    let (charged, shipments) = (charges.clone(), Counter::default());
    let guard = guard_of(guarded.store(), operation).world(guarded.clock.clone());
    let app = api(guard, move |parts, _| {
        let (charged, shipments) = (charged.clone(), shipments.clone());
        async move {
            let execution = execution(&parts);
            execution.phase("charge").keys_live(DAY).call(async |_| Ok(charged.add())).await?;
            let ship = execution.phase("ship").keys_live(DAY).call(async |_| match shipments.add() {
                1 => Err(CallError::not_executed(io::Error::other("no connection"))),
                shipment => Ok(shipment),
            });
            Ok::<_, PhaseError>(format!("shipment {}", ship.await?))
        }
    });
    let consumer = consumer(&guarded, app, &queue);
    let order = message("m-1", json!({ "orderId": "o-1" }));
    assert_eq!(deliver(&consumer, std::slice::from_ref(&order)).await.expect("an answer"), ["m-1"]);
    assert!(deliver(&consumer, &[order]).await.expect("an answer").is_empty());
    assert_eq!((charges.count(), queue.take_dead().len()), (1, 0));
}

#[apply(on_each_store)]
async fn while_the_store_is_away_no_order_runs(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, shop(&guarded, &runs), &queue);
    guarded.faults.for_all(ANY, Fault::DropRequest);
    for times in 1..=4 {
        let messages = [received("m-1", json!({ "orderId": "o-1" }), times)];
        let delivered = deliver(&consumer, &messages);
        assert_eq!(guarded.clock.passing(delivered).await.expect("an answer"), ["m-1"]);
    }
    assert_eq!((runs.count(), queue.take_dead().len()), (0, 0));
}

// A key that no header can have, an order that no request can be made of, a path that nothing guards.
#[apply(on_each_store)]
async fn an_order_that_cannot_be_guarded_does_not_run(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, shop(&guarded, &runs), &queue);
    let messages = [
        message("key", json!({ "orderId": "tab\there" })),
        message("quotes", json!({ "orderId": "a \"quoted\\\" key" })),
        message("no-key", json!({ "sku": "tea" })),
        message("no-json", "tea"),
    ];
    assert!(deliver(&consumer, &messages).await.expect("an answer").is_empty());
    assert_eq!((runs.count(), queue.take_dead().len()), (2, 2), "a key with a tab is hashed");
    let unguarded = Router::new().route("/payments", axum::routing::post(|| async { "done" }));
    let consumer = Consumer::new(queue.clone(), KeyFrom::body("/orderId")).route(unguarded, request);
    assert!(
        deliver(&consumer, &[message("m-1", json!({ "orderId": "o-1" }))])
            .await
            .expect("an answer")
            .is_empty()
    );
    assert_eq!(queue.take_dead()[0].reason, "the route is not guarded: it answered 200");
    let refused = |_: &Message| Err::<Request<Body>, _>("no such shop".to_owned());
    let consumer =
        Consumer::new(queue.clone(), KeyFrom::body("/orderId")).route(shop(&guarded, &runs), refused);
    assert!(
        deliver(&consumer, &[message("m-1", json!({ "orderId": "o-1" }))])
            .await
            .expect("an answer")
            .is_empty()
    );
    assert_eq!(queue.take_dead()[0].reason, "no such shop");
}
