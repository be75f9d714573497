//! The guard for HTTP: its layer alone, and a function's whole way from the event to the answer.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Json, Router,
    routing::{MethodRouter, post},
};
use bytes::Bytes;
use http_body_util::Full;
use lambda_http::{
    Body, LambdaEvent,
    http::{Request, Response, StatusCode, header::CONTENT_TYPE},
};
use lambda_idempotency::{
    JwtClaim, KeyFrom, Operation,
    bounds::{Bounds, Rate},
    http::{
        IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, Idempotency, OrNotBegun, Profile, SingleTenant, TenantResolver,
    },
    lambda::{Event, http_event},
    store::{Store, Tenants},
};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use super::{Guarded, OPERATION, ORDER, Order, Payment, Ran, TENANT, context, key};
use crate::meter::spent;

const EVENT: &str = include_str!("../../../tests/suite/fixtures/http_api_jwt.json");
/// The key in it.
const KEY: &str = "order-1";

const JSON: &str = "application/json";

type Guard = Idempotency<Arc<dyn TenantResolver>>;

pub fn layer(store: impl Store, body: Bytes) -> Guarded {
    call(of(store), body, |number| in_header(number, ORDER.to_owned()))
}

pub fn bounded(store: impl Tenants + Clone, body: Bytes, new_keys: Rate) -> Guarded {
    let bounds = Bounds::of(store.clone()).new_keys(new_keys);
    call(of(store).bounds(bounds), body, |number| in_header(number, ORDER.to_owned()))
}

pub fn long_body(store: impl Store, body: Bytes) -> Guarded {
    call(of(store), body, |number| in_header(number, long_order(number)))
}

pub fn key_in_body(store: impl Store, body: Bytes) -> Guarded {
    let profile = Profile::default().key_from(KeyFrom::body("/idempotency_key"));
    call(of(store).profile(profile), body, |number| {
        let request = Request::post("/payments").header(CONTENT_TYPE, JSON);
        request.body(Body::from(long_order(number))).expect("a request")
    })
}

fn in_header(number: u64, body: String) -> Request<Body> {
    let request = Request::post("/payments").header(CONTENT_TYPE, JSON).header(IDEMPOTENCY_KEY, key(number));
    request.body(Body::from(body)).expect("a request")
}

/// An order of 1 KB, with the key between its members.
fn long_order(number: u64) -> String {
    let items = |from: u64| {
        let item = |sku| json!({ "sku": format!("A-{sku}"), "quantity": 2, "note": "gift wrap" });
        (from..from + 9).map(item).collect::<Value>()
    };
    let order = json!({
        "customerId": "c-20391", "amountCents": 1999, "currency": "EUR", "source": "tok_ok",
        "idempotency_key": key(number), "items": items(1001), "next": items(2001),
    });
    order.to_string()
}

fn of(store: impl Store) -> Guard {
    Idempotency::new(store, Operation::new(OPERATION)).tenant(SingleTenant::new(TENANT))
}

/// Calls the layer with the requests that `request` makes.
fn call(guard: Guard, body: Bytes, request: impl Fn(u64) -> Request<Body> + 'static) -> Guarded {
    let service = guard.layer(service_fn(move |_: Request<Body>| {
        let mut response = Response::new(Full::new(body.clone()));
        *response.status_mut() = StatusCode::CREATED;
        response.headers_mut().insert(CONTENT_TYPE, JSON.parse().expect("a header"));
        async { Ok::<_, Infallible>(response) }
    }));
    Box::new(move |number| {
        let (service, request) = (service.clone(), request(number));
        Box::pin(async move {
            let (response, spent) = spent(service.oneshot(request)).await;
            let response = response.expect("an answer");
            assert_eq!(response.status(), StatusCode::CREATED);
            assert!(response.headers().contains_key("idempotency-expires"), "the completion was not written");
            Ran { spent, is_replay: response.headers().contains_key(IDEMPOTENT_REPLAYED) }
        })
    })
}

/// A function with one guarded route.
pub fn event(store: impl Store) -> Guarded {
    let guard = Idempotency::new(store, Operation::new(OPERATION)).tenant(JwtClaim("sub"));
    serve(post(create).route_layer(guard), true)
}

pub fn event_unguarded() -> Guarded {
    serve(post(create), false)
}

fn serve(route: MethodRouter, is_guarded: bool) -> Guarded {
    let router = Router::new().route("/payments", route);
    Box::new(move |number| {
        let (router, event, context) = (router.clone(), EVENT.replace(KEY, &key(number)), context());
        Box::pin(async move {
            // As `lambda::run_http` does, but without the Runtime API.
            let call = async {
                let event: Event = serde_json::from_str(&event).expect("an event");
                let answer = http_event(router, LambdaEvent::new(event, context)).await.expect("an answer");
                serde_json::to_string(&answer).expect("JSON")
            };
            let (answer, spent) = spent(call).await;
            let answer: Value = serde_json::from_str(&answer).expect("JSON");
            assert_eq!(answer["statusCode"], 201);
            let headers = &answer["headers"];
            assert_eq!(headers["idempotency-expires"].is_string(), is_guarded);
            Ran { spent, is_replay: headers[IDEMPOTENT_REPLAYED.as_str()].is_string() }
        })
    })
}

async fn create(OrNotBegun(Json(order)): OrNotBegun<Json<Order>>) -> (StatusCode, Json<Payment>) {
    (StatusCode::CREATED, Json(order.paid()))
}
