//! What a layer around the guard, and an operation's observer, are told of each request.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Extension, Router,
    body::Body,
    http::{Request, StatusCode},
    response::{IntoResponse, Response},
};
use lambda_idempotency::{
    How, Operation, Outcome,
    http::{Guarded, ProblemType},
    operation::{Observed, ServerErrors},
    store::memory::MemoryStore,
};
use macro_rules_attribute::apply;
use tower::ServiceExt;

use crate::support::{
    http::{PAY, api, dynamodb, guard_of, order, pay, pay_other, unkeyed},
    on_each_store,
};

/// A handler that ends as the request's header says.
async fn ends(parts: axum::http::request::Parts) -> Response {
    match parts.headers.get("x-ends").and_then(|ends| ends.to_str().ok()) {
        Some("refused") => (StatusCode::PAYMENT_REQUIRED, "no").into_response(),
        Some("nothing") => (Extension(Outcome::NotExecuted), "not now").into_response(),
        Some("not begun") => (Extension(Outcome::NotBegun), StatusCode::UNPROCESSABLE_ENTITY).into_response(),
        Some("fails") => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Some("panics") => panic!("in the handler"),
        _ => "paid".into_response(),
    }
}

fn that(key: &str, ends: &str) -> Request<Body> {
    order(key).header("x-ends", ends).body(Body::empty()).unwrap()
}

async fn guarded(app: &Router, request: Request<Body>) -> Guarded {
    let response = app.clone().oneshot(request).await.unwrap();
    response.extensions().get::<Guarded>().expect("each response of a guard has it").clone()
}

#[apply(on_each_store)]
async fn each_response_of_a_guard_says_what_it_is(endpoint: &str) {
    let operation = Operation::new(PAY).server_errors(ServerErrors::Reconcile);
    let app = api(guard_of(dynamodb(endpoint).await, operation), |parts, _| ends(parts));
    let first = guarded(&app, pay("k-1")).await;
    assert_eq!((first.how(), first.outcome()), (Some(How::Executed), Some(Outcome::Completed)));
    assert_eq!((first.attempts(), first.problem()), (1, None));
    let retry = guarded(&app, pay("k-1")).await;
    assert!(matches!(retry.how(), Some(How::Replayed { .. })), "{retry:?}");
    assert_eq!((retry.outcome(), retry.attempts()), (Some(Outcome::Completed), 0));
    let reused = guarded(&app, pay_other("k-1")).await;
    assert_eq!(
        (reused.how(), reused.outcome(), reused.problem()),
        (None, None, Some(ProblemType::KeyReused))
    );
    for (ends, outcome, how) in [
        ("refused", Outcome::Completed, Some(How::Executed)),
        ("nothing", Outcome::NotExecuted, None),
        ("not begun", Outcome::NotBegun, None),
        ("fails", Outcome::PerhapsExecuted, None),
    ] {
        let said = guarded(&app, that(&ends.replace(' ', "-"), ends)).await;
        assert_eq!((said.outcome(), said.how(), said.problem()), (Some(outcome), how, None), "{ends}");
    }
    assert_eq!(guarded(&app, that("nothing", "nothing")).await.attempts(), 2);
    let panicked = guarded(&app, that("panics", "panics")).await;
    assert_eq!(panicked.problem(), Some(ProblemType::OutcomeUnknown));
    let keyless = guarded(&app, unkeyed().body(Body::empty()).unwrap()).await;
    assert_eq!(keyless.problem(), Some(ProblemType::KeyMissing));
}

/// What an observer is told: the hash of the key, the name of what its caller is told, whether it is a replay, and the attempts.
type Seen = Arc<Mutex<Vec<(String, &'static str, Option<bool>, Option<u32>)>>>;

fn observing(seen: &Seen) -> impl Fn(&Observed<'_>) + Send + Sync + 'static {
    let seen = seen.clone();
    move |observed| {
        let how = observed.how.map(How::is_replay);
        let hash = observed.key.hash().to_string();
        seen.lock().unwrap().push((hash, observed.says, how, observed.attempts));
    }
}

#[apply(on_each_store)]
async fn an_observer_is_told_of_each_request_once(endpoint: &str) {
    let seen = Seen::default();
    let operation = Operation::new(PAY).server_errors(ServerErrors::Reconcile).observe(observing(&seen));
    let app = api(guard_of(dynamodb(endpoint).await, operation), |parts, _| ends(parts));
    for request in
        [pay("k-1"), pay("k-1"), that("k-2", "fails"), that("k-2", "fails"), that("k-3", "nothing")]
    {
        guarded(&app, request).await;
    }
    let told: Vec<_> =
        seen.lock().unwrap().iter().map(|(_, told, how, attempts)| (*told, *how, *attempts)).collect();
    assert_eq!(
        told,
        [
            ("own", Some(false), Some(1)),
            ("replay", Some(true), None),
            // Its caller gets a 5xx, and not the operation's answer.
            ("own", None, Some(1)),
            ("unknown", None, None),
            ("released", None, Some(1)),
        ]
    );
    let hashes: Vec<_> = seen.lock().unwrap().iter().map(|(hash, ..)| hash.clone()).collect();
    assert!(hashes[0] == hashes[1] && hashes[0] != hashes[2] && hashes.iter().all(|hash| hash.len() == 16));
}

#[apply(on_each_store)]
async fn what_is_accepted_is_not_observed_as_executed(endpoint: &str) {
    let seen = Seen::default();
    let operation = Operation::new(PAY).asynchronous(Duration::from_secs(3600)).observe(observing(&seen));
    let app = api(guard_of(dynamodb(endpoint).await, operation), |parts, _| ends(parts));
    let accepted = guarded(&app, pay("k-1")).await;
    assert_eq!((accepted.how(), accepted.outcome(), accepted.problem()), (None, None, None));
    let again = guarded(&app, pay("k-1")).await;
    assert_eq!((again.how(), again.problem()), (None, Some(ProblemType::InFlight)));
    let told: Vec<_> = seen.lock().unwrap().iter().map(|(_, told, how, _)| (*told, *how)).collect();
    assert_eq!(told, [("own", None), ("in_flight", None)]);
}

// T35: the caller has its answer whatever the observer does.
#[tokio::test]
async fn an_observer_that_panics_takes_no_answer_from_a_caller() {
    let operation = Operation::new(PAY).observe(|_| panic!("in the observer"));
    let app = api(guard_of(MemoryStore::new(), operation), |parts, _| ends(parts));
    for is_replay in [false, true] {
        let said = guarded(&app, pay("k-1")).await;
        assert_eq!(said.how().map(How::is_replay), Some(is_replay));
    }
}
