//! HTTP routes that are guarded in a single transaction, and guarded routes that return domain writes.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use lambda_idempotency::{
    domain::{DomainWrite, DomainWriteError, Table},
    engine::{Execution, SingleTransaction},
    http::{Idempotency, Outcome, Profile, SingleTenant},
    operation::Operation,
    record::Answer,
    store::memory::MemoryStore,
    telemetry::COMPLETION_DENIED,
    time_budget::MAX_SENDING_TIME,
};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use crate::support::{
    bank::Bank,
    counts::counting,
    faults::{ANY, Fault},
};

fn accounts() -> Table {
    Table::new("accounts", "id")
}

/// A store with one account, `a`, that has 100 cents.
fn bank() -> MemoryStore {
    let store = MemoryStore::new();
    store.put_item(&accounts(), json!({ "id": "a", "cents": 100 }));
    store
}

fn cents(store: &MemoryStore) -> u64 {
    let account: Value = store.item(&accounts(), json!({ "id": "a" })).unwrap().unwrap();
    account["cents"].as_u64().unwrap()
}

fn take(table: &Table, cents: u64) -> DomainWrite {
    table
        .update(json!({ "id": "a" }), "SET cents = cents - :cents")
        .condition("cents >= :cents")
        .value(":cents", cents)
        .or_answer(Answer::json(409, r#"{"title":"Not enough money"}"#))
}

/// Takes as many cents as the body says, or answers with the status that the body names.
async fn transfer(transaction: SingleTransaction, body: String) -> Response {
    if let Some(status) = body.strip_prefix("status ") {
        transaction.write(take(&accounts(), 1)).unwrap();
        return (StatusCode::from_bytes(status.as_bytes()).unwrap(), "as asked").into_response();
    }
    assert_ne!(body, "panic", "as a handler can");
    transaction.write(take(&accounts(), body.parse().unwrap())).unwrap();
    (StatusCode::CREATED, [("x-tenant", transaction.tenant().as_str().to_owned())], format!("took {body}"))
        .into_response()
}

fn guard(store: MemoryStore) -> Idempotency<std::sync::Arc<dyn lambda_idempotency::http::TenantResolver>> {
    Idempotency::new(store, Operation::new("transfer")).tenant(SingleTenant::new("bank"))
}

fn app(store: &MemoryStore) -> Router {
    Router::new().route("/transfers", post(transfer).route_layer(guard(store.clone()).single_transaction()))
}

async fn send(app: &Router, key: Option<&str>, body: &str) -> (u16, bool, String) {
    let mut request = Request::post("/transfers");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let response = app.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let replayed = response.headers().contains_key("idempotent-replayed");
    let (status, body) = (response.status().as_u16(), response.into_body());
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    (status, replayed, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_single_transaction_route_commits_once_and_replays() {
    let store = bank();
    let app = app(&store);
    assert_eq!(send(&app, Some("k"), "30").await, (201, false, "took 30".into()));
    assert_eq!(send(&app, Some("k"), "30").await, (201, true, "took 30".into()));
    assert_eq!(send(&app, Some("k"), "31").await.0, 422);
    assert_eq!(send(&app, None, "30").await.0, 400);
    assert_eq!(cents(&store), 70);
}

#[tokio::test]
async fn a_refused_write_is_a_kept_answer() {
    let store = bank();
    let app = app(&store);
    let refusal = r#"{"title":"Not enough money"}"#.to_owned();
    assert_eq!(send(&app, Some("k"), "101").await, (409, false, refusal.clone()));
    store.put_item(&accounts(), json!({ "id": "a", "cents": 1_000 }));
    assert_eq!(send(&app, Some("k"), "101").await, (409, true, refusal));
    assert_eq!(cents(&store), 1_000);
}

// T68: callers of a route could not read it. It says so when the write is added, and nothing is done.
#[tokio::test]
async fn a_refusal_of_a_function_is_no_answer_over_http() {
    let store = bank();
    let rich = || {
        let update = accounts().update(json!({ "id": "a" }), "SET cents = cents - :cents");
        update.value(":cents", 1).or_answer(Answer::refusal("not enough money"))
    };
    let of_another_kind = |written: Result<(), DomainWriteError>| match written {
        Err(DomainWriteError::AnswerKind(table)) if table == "accounts" => StatusCode::CREATED,
        _ => panic!("{written:?}"),
    };
    let single =
        move |transaction: SingleTransaction| async move { of_another_kind(transaction.write(rich())) };
    let plain = move |execution: Execution| async move { of_another_kind(execution.write(rich())) };
    let routes = [
        (503, post(single).route_layer(guard(store.clone()).single_transaction())),
        (409, post(plain).route_layer(guard(store.clone()))),
    ];
    for (status, route) in routes {
        let app = Router::new().route("/transfers", route);
        assert_eq!(send(&app, Some(&status.to_string()), "").await.0, status);
    }
    assert_eq!(cents(&store), 100);
}

// T18, T44
#[tokio::test]
async fn an_answer_that_is_not_kept_commits_nothing_and_the_retry_runs() {
    let store = bank();
    let app = app(&store);
    for status in ["500", "503", "401", "429"] {
        let (returned, replayed, _) = send(&app, Some("k"), &format!("status {status}")).await;
        assert_eq!((returned.to_string(), replayed), (status.to_owned(), false));
    }
    // Without a record, any request may use the key.
    assert_eq!(send(&app, Some("k"), "panic").await.0, 503);
    assert_eq!(cents(&store), 100);
    assert_eq!(send(&app, Some("k"), "status 404").await, (404, false, "as asked".into()));
    assert_eq!(send(&app, Some("k"), "status 404").await, (404, true, "as asked".into()));
    assert_eq!(cents(&store), 99);
}

#[tokio::test]
async fn a_handler_takes_only_what_its_guard_provides() {
    let store = bank();
    let wrong = |guarded: bool| {
        let route = match guarded {
            true => post(transfer).route_layer(guard(store.clone())),
            false => post(|_: Execution| async {}).route_layer(guard(store.clone()).single_transaction()),
        };
        Router::new().route("/transfers", route)
    };
    for guarded in [false, true, true] {
        let (status, _, body) = send(&wrong(guarded), Some("k"), "30").await;
        assert!(status == 500 && body.contains("not-guarded"), "{status} {body}");
    }
    // The handler has not begun. Once the route is repaired, the same request runs.
    let repaired = Router::new()
        .route("/transfers", post(transfer).route_layer(guard(store.clone()).single_transaction()));
    let (status, replayed, _) = send(&repaired, Some("k"), "30").await;
    assert_eq!((status, replayed, cents(&store)), (201, false, 70));
}

#[tokio::test]
async fn a_profile_applies_to_a_single_transaction_too() {
    let store = bank();
    let guard = guard(store.clone()).profile(Profile::acp()).single_transaction();
    let app = Router::new().route("/transfers", post(transfer).route_layer(guard));
    let request = |body: &'static str| {
        Request::post("/transfers").header("idempotency-key", "k").body(Body::from(body))
    };
    let response = app.clone().oneshot(request("30").unwrap()).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["idempotency-key"]),
        (201, &"k".parse().unwrap())
    );
    let mismatch = app.oneshot(request("31").unwrap()).await.unwrap();
    let body = axum::body::to_bytes(mismatch.into_body(), usize::MAX).await.unwrap();
    assert!(String::from_utf8_lossy(&body).contains("idempotency_conflict"));
}

// T11
#[test]
fn a_completion_timeout_beyond_the_sending_time_is_refused_at_start_up() {
    for (completion_timeout, starts) in
        [(MAX_SENDING_TIME, true), (MAX_SENDING_TIME + Duration::from_millis(1), false)]
    {
        let operation = Operation::new("transfer").completion_timeout(completion_timeout);
        let guard = Idempotency::new(bank(), operation);
        let panic = catch_unwind(AssertUnwindSafe(|| drop(guard.single_transaction()))).err();
        let message = panic.map(|panic| *panic.downcast::<String>().expect("a message"));
        assert_eq!(message.is_none(), starts, "{message:?}");
        let names = ["\"transfer\"", "completion_timeout(300.001s)", "single_transaction"];
        assert!(message.is_none_or(|message| names.iter().all(|name| message.contains(name))));
    }
}

// T17
#[tokio::test]
async fn an_unconfirmed_client_is_asked_to_retry_with_its_key() {
    let bank = Bank::on(crate::support::embedded::endpoint()).await;
    let accounts = bank.accounts.clone();
    let handler = move |transaction: SingleTransaction| {
        transaction.write(take(&accounts, 30)).unwrap();
        async { (StatusCode::CREATED, "took 30") }
    };
    let guard = Idempotency::new(bank.guarded.store(), Operation::new("transfer"))
        .tenant(SingleTenant::new("bank"))
        .world(bank.guarded.clock.clone())
        .single_transaction();
    let app = Router::new().route("/transfers", post(handler).route_layer(guard));
    bank.guarded.faults.for_all(ANY, Fault::DropAnswer);
    let (status, _, body) = bank.guarded.clock.passing(send(&app, Some("k"), "30")).await;
    let problem: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &problem["code"]), (503, &json!("outcome-unknown")));
    bank.guarded.faults.clear();
    assert_eq!(bank.guarded.clock.passing(send(&app, Some("k"), "30")).await, (201, true, "took 30".into()));
    assert_eq!(bank.cents("a").await, Some(70));
}

#[tokio::test]
async fn a_guarded_route_commits_its_writes_with_its_answer() {
    let store = bank();
    let handler = |execution: Execution, body: String| async move {
        execution.write(take(&accounts(), body.parse().unwrap())).unwrap();
        match &*body {
            "5" => (axum::Extension(Outcome::NotExecuted), StatusCode::SERVICE_UNAVAILABLE).into_response(),
            _ => (StatusCode::CREATED, "took").into_response(),
        }
    };
    let app = Router::new().route("/transfers", post(handler).route_layer(guard(store.clone())));
    assert_eq!(send(&app, Some("k-1"), "30").await, (201, false, "took".into()));
    assert_eq!(send(&app, Some("k-1"), "30").await, (201, true, "took".into()));
    assert_eq!(send(&app, Some("k-2"), "5").await.0, 503);
    assert_eq!(cents(&store), 70);
    let refusal = r#"{"title":"Not enough money"}"#.to_owned();
    for replayed in [false, true] {
        assert_eq!(send(&app, Some("k-3"), "71").await, (409, replayed, refusal.clone()));
    }
    assert_eq!(cents(&store), 70);
}

// A service that is ready once, and whose clones are not ready, is called with its permit.
#[tokio::test]
async fn a_limit_inside_the_guard_does_not_block_it() {
    let store = bank();
    let inner = tower::ServiceBuilder::new().layer(tower::limit::ConcurrencyLimitLayer::new(1)).service_fn(
        |request: Request<Body>| async move {
            let transaction = request.extensions().get::<SingleTransaction>().unwrap().clone();
            transaction.write(take(&accounts(), 30)).unwrap();
            Ok::<_, std::convert::Infallible>((StatusCode::CREATED, "took").into_response())
        },
    );
    let service = guard(store.clone()).single_transaction().layer(inner);
    let request = || Request::post("/transfers").header("idempotency-key", "k").body(Body::empty()).unwrap();
    for replayed in [false, true] {
        let answer = service.clone().oneshot(request()).await.unwrap();
        assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
    }
    assert_eq!(cents(&store), 70);
}

// Half of a transfer is no transfer. The second write gets `SameItem`.
#[tokio::test]
async fn a_write_refused_at_once_commits_nothing_of_its_run() {
    for status in [StatusCode::CREATED, StatusCode::UNPROCESSABLE_ENTITY, StatusCode::INTERNAL_SERVER_ERROR] {
        let store = bank();
        let handler = move |transaction: SingleTransaction| async move {
            transaction.write(take(&accounts(), 30)).unwrap();
            assert!(transaction.write(take(&accounts(), 1)).is_err());
            (status, "done")
        };
        // It keeps server errors too.
        let guard = guard(store.clone()).profile(Profile::stripe()).single_transaction();
        let app = Router::new().route("/transfers", post(handler).route_layer(guard));
        let mut denied = 0;
        for _ in 0..2 {
            let ((status, _, body), counts) = counting(send(&app, Some("k"), "30")).await;
            assert_eq!((status, body.contains("outcome-unknown")), (503, true), "{body}");
            denied += counts[COMPLETION_DENIED];
        }
        assert_eq!((cents(&store), denied), (100, 2));
    }
}

#[tokio::test]
async fn a_write_refused_at_once_leaves_a_guarded_outcome_unknown() {
    let store = bank();
    let handler = |execution: Execution| async move {
        execution.write(take(&accounts(), 30)).unwrap();
        assert!(execution.write(take(&accounts(), 1)).is_err());
        (StatusCode::CREATED, "done")
    };
    let app = Router::new().route("/transfers", post(handler).route_layer(guard(store.clone())));
    for _ in 0..2 {
        let (status, _, body) = send(&app, Some("k"), "30").await;
        assert_eq!((status, body.contains("outcome-unknown")), (409, true), "{body}");
    }
    assert_eq!(cents(&store), 100);
}

// A profile may let a request without a key pass.
#[tokio::test]
async fn a_request_that_runs_unguarded_has_no_transaction() {
    let handler = |transaction: Option<SingleTransaction>| async move {
        if transaction.is_some() { "guarded" } else { "unguarded" }
    };
    let guard = guard(bank()).profile(Profile::ietf_draft().key_optional()).single_transaction();
    let app = Router::new().route("/transfers", post(handler).route_layer(guard));
    assert_eq!(send(&app, None, "30").await.2, "unguarded");
    assert_eq!(send(&app, Some("k"), "30").await.2, "guarded");
}
