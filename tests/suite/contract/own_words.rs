//! Problems in an API's own words, and how long keys live.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use lambda_idempotency::{
    Operation,
    http::{ProblemType, Profile},
    store::{Store, memory::MemoryStore},
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    faults::Fault,
    guarded::Guarded,
    http::{Guard, PAY, api, guard, guard_of, order, pay, pay_other, send, unkeyed},
    on_each_store,
};

fn own() -> Profile {
    Profile::custom(|problem, mut response| {
        let words = json!({ "is": problem.problem_type().name(), "why": problem.reason(), "says": problem.message() });
        *response.body_mut() = words.to_string().into();
        response
    })
}

fn guard_with(store: impl Store, profile: Profile) -> Guard {
    guard(store).profile(profile)
}

#[apply(on_each_store)]
async fn problems_have_ones_own_words_and_keep_their_headers(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let guard = guard_with(guarded.store(), own()).world(guarded.clock.clone());
    let app = api(guard, |_, _| async { "done" });
    let is = |answer: &crate::support::http::Answer| answer.json()["is"].clone();
    let missing = send(&app, unkeyed().body("{}".into()).unwrap()).await;
    let says = "This operation needs an Idempotency-Key. The header Idempotency-Key is missing. Send the request with an Idempotency-Key \
                that you made for this intent alone.";
    assert_eq!(
        (missing.status, missing.json()),
        (400, json!({ "is": "key-missing", "why": "missing", "says": says }))
    );
    assert_eq!(send(&app, pay("k")).await.status, 200);
    let reused = send(&app, pay_other("k")).await;
    assert_eq!(
        (reused.status, is(&reused), reused.json()["why"].clone()),
        (422, json!("key-reused"), Value::Null)
    );
    let unverified =
        axum::http::Request::post("/payments").header("idempotency-key", "k").body("{}".into()).unwrap();
    let unverified = send(&app, unverified).await;
    assert_eq!((unverified.status, unverified.header("www-authenticate")), (401, Some("Bearer")));
    guarded.faults.for_all("PutItem", Fault::DropRequest);
    let away = guarded.clock.passing(send(&app, pay("other"))).await;
    assert_eq!(
        (away.status, is(&away), away.header("retry-after").is_some()),
        (503, json!("store-unavailable"), true)
    );
    assert_eq!(away.header("cache-control"), Some("no-store"));
}

// A handler's problem is an answer, in whatever words.
#[tokio::test]
async fn a_handlers_answer_is_not_reshaped() {
    let app = api(guard_with(MemoryStore::new(), own()), |_, _| async {
        (StatusCode::CONFLICT, [("content-type", "application/problem+json")], r#"{"type":"sold-out"}"#)
    });
    let first = send(&app, pay("k")).await;
    assert_eq!((first.status, first.body.clone()), (409, Bytes::from(r#"{"type":"sold-out"}"#)));
    send(&app, pay("k")).await.assert_replay_of(&first);
}

// Clients would take the refusal for a success, and send nothing again.
#[tokio::test]
async fn ones_own_words_cannot_turn_a_problem_into_a_success() {
    let profile = Profile::custom(|_, mut response| {
        *response.status_mut() = StatusCode::OK;
        response
    });
    let app = api(guard_with(MemoryStore::new(), profile), |_, _| async { "done" });
    assert_eq!(send(&app, unkeyed().body("{}".into()).unwrap()).await.status, 400);
    let profile = Profile::custom(|_, mut response| {
        *response.status_mut() = StatusCode::CONFLICT;
        response
    });
    let app = api(
        guard_with(MemoryStore::new(), profile.status(ProblemType::KeyMissing, StatusCode::GONE)),
        |_, _| async {},
    );
    assert_eq!(send(&app, unkeyed().body("{}".into()).unwrap()).await.status, 409);
}

// Clients need those headers, whatever the words are.
#[tokio::test]
async fn words_that_drop_headers_or_panic_lose_nothing() {
    let own = Profile::custom(|problem, _| {
        assert!(problem.reason() != Some("empty"), "a mistake in the program");
        axum::http::Response::builder().status(418).body(Bytes::from("own words")).unwrap()
    });
    let app = api(guard_with(MemoryStore::new(), own), |_, _| async { "done" });
    let unverified =
        axum::http::Request::post("/payments").header("idempotency-key", "k").body("{}".into()).unwrap();
    let unverified = send(&app, unverified).await;
    assert_eq!((unverified.status, &unverified.body[..]), (418, &b"own words"[..]));
    let headers = ["cache-control", "www-authenticate"].map(|name| unverified.header(name));
    assert_eq!(headers, [Some("no-store"), Some("Bearer")]);
    send(&app, order("").body("{}".into()).unwrap()).await.assert_problem(400, "key-malformed");
}

#[tokio::test]
async fn each_answer_of_a_guard_says_how_long_answers_are_kept() {
    let hour = Operation::new(PAY).retain(Duration::from_secs(3_600));
    let inner = [("idempotency-retention", "7")];
    let app = api(guard_of(MemoryStore::new(), hour), move |parts, _| async move {
        let status = if parts.method == Method::OPTIONS { 204 } else { 201 };
        // A service behind the handler has a guard too.
        (StatusCode::from_u16(status).unwrap(), inner)
    });
    let requests = [
        (201, pay("k")),
        (201, pay("k")),
        (422, pay_other("k")),
        (400, unkeyed().body("{}".into()).unwrap()),
        (400, order("").body("{}".into()).unwrap()),
        (204, unkeyed().method(Method::OPTIONS).body("".into()).unwrap()),
    ];
    for (status, request) in requests {
        let answer = send(&app, request).await;
        assert_eq!(answer.status, status);
        let said: Vec<_> = answer.headers.get_all("idempotency-retention").iter().collect();
        assert_eq!(said, ["3600"], "{status}");
    }
    // What passes it is not its answer.
    let read = send(&app, unkeyed().method(Method::GET).body("".into()).unwrap()).await;
    assert_eq!(read.header("idempotency-retention"), Some("7"));
}
