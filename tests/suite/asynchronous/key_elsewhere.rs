//! Accepted work whose key is not in the header `Idempotency-Key`: its worker, its status and its retry find the same record.

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    routing::post,
};
use lambda_idempotency::{
    Execution, Idempotency, KeyFrom,
    event::{Consumer, MemorySource},
    http::{Profile, operation_key, operation_status},
    key::{IdempotencyKey, OperationName},
    store::Store,
    world::World,
};
use macro_rules_attribute::apply;
use serde_json::json;

use super::{MINUTE, operation};
use crate::support::{
    guarded::Guarded,
    http::{Answer, Counter, PAY, Resolver, TENANT, caller, record_key, send, tenant},
    messages::{QUEUE, deliver_within, message},
    on_each_store,
};

fn order() -> Request<Body> {
    let order = Request::post("/reports/r%2D1?year=2026").header("x-shop", "tea").extension(tenant(TENANT));
    order.header("content-type", "application/json").body(r#"{"id":"b-1"}"#.into()).unwrap()
}

/// A route whose key is there. It answers with the key that its worker has claimed.
fn app(guarded: &Guarded, from: KeyFrom, runs: &Counter) -> Router {
    let guard = Idempotency::new(guarded.store(), operation()).tenant(caller as Resolver);
    let guard = guard.world(guarded.clock.clone()).profile(Profile::ietf_draft().key_from(from));
    let runs = runs.clone();
    let report = async move |execution: Execution, body: String| {
        runs.add();
        (StatusCode::CREATED, format!("{} {body}", execution.idempotency_key().as_str()))
    };
    Router::new().route("/reports/{id}", post(report).route_layer(guard))
}

#[apply(on_each_store)]
async fn accepted_work_is_found_by_its_key_wherever_that_was(endpoint: &str) {
    let header = || KeyFrom::header("X-Shop");
    for (from, key) in [
        (KeyFrom::body("/id"), &["b-1"][..]),
        (KeyFrom::path("/reports/{key}"), &["r-1"]),
        (KeyFrom::query("year"), &["2026"]),
        (header(), &["tea"]),
        (KeyFrom::first([KeyFrom::header("Idempotency-Key"), KeyFrom::body("/id")]), &["b-1"]),
        (KeyFrom::all([header(), KeyFrom::body("/id")]), &["tea", "b-1"]),
        (KeyFrom::function(|parts, _| parts.uri.query().map(str::to_owned)), &["year=2026"]),
    ] {
        let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
        let app = app(&guarded, from.clone(), &runs);
        let key = record_key(TENANT, PAY, IdempotencyKey::of(key).unwrap().as_str());

        let accepted = send(&app, order()).await;
        let location = accepted.header("location").expect("the URL of its status").to_owned();
        let (asks, ()) = Request::get(&location).body(()).unwrap().into_parts();
        let other = OperationName::parse("other").unwrap();
        let asked_for = operation_key(&asks, tenant(TENANT), "/operations", &other);
        assert_eq!((accepted.status, asked_for), (202, Some(key.clone())), "{from:?} {location}");
        let store = guarded.undisturbed_store();
        let polled = async || {
            let profile = Profile::ietf_draft();
            Answer::of(operation_status(&store, &key, guarded.now(), &profile).await).await
        };
        assert_eq!(polled().await.json()["state"], "pending");
        let retry = send(&app, order()).await;
        assert_eq!((retry.status, retry.header("location"), runs.count()), (202, Some(&*location), 0));

        let record = guarded.record(&key).await.expect("a record");
        let request = record.accepted.expect("it was accepted").request.to_string();
        let asked = json!({ "version": 1, "kind": "work", "key": key.partition_key(), "request": request });
        let queue = MemorySource::new(QUEUE);
        let worker = Consumer::worker(queue.clone()).world(guarded.clock.clone());
        let worker = worker.work(guarded.store(), app.clone());
        let now = std::time::UNIX_EPOCH + Duration::from_millis(guarded.clock.now().as_millis());
        for _ in 0..2 {
            let back = deliver_within(&worker, &[message("m-1", &asked)], now, MINUTE).await;
            assert_eq!((back.expect("an answer").len(), queue.take_dead().len()), (0, 0));
        }
        assert_eq!(runs.count(), 1, "{from:?}");
        assert!(store.load(&key).await.unwrap().unwrap().accepted.is_some());
        let expected = format!("{} {}", key.idempotency_key().as_str(), r#"{"id":"b-1"}"#);
        for answer in [polled().await, send(&app, order()).await] {
            assert_eq!((answer.status, &*answer.body), (201, expected.as_bytes()), "{from:?}");
            assert!(answer.replayed());
        }
        assert_eq!(runs.count(), 1);
    }
}
