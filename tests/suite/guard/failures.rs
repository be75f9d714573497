//! Handlers that fail in every possible way. An effect that may have happened is never repeated.

use std::{convert::Infallible, io, time::Duration};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    http::{Response, StatusCode},
    response::IntoResponse,
};
use futures_util::{StreamExt, stream};
use lambda_http::{Context, RequestExt};
use lambda_idempotency::{
    async_trait,
    http::Outcome,
    operation::Operation,
    queue::MemoryQueue,
    reconcile::{Finding, ProviderReport, Question, ReconcileOutcome, Reconciler, Reconciliation},
    record::{Answer, State},
    store::{Store, memory::MemoryStore},
    world::{ManualWorld, World},
};
use macro_rules_attribute::apply;
use tower::{Layer, service_fn};

use crate::support::{
    BoxError,
    guarded::{LEASE, fresh},
    http::{
        Counter, Gate, PAY, TENANT, api, clock, dynamodb, execution, guard, order, pay, record, send, state,
        tenant, until,
    },
    on_each_store,
};

/// A reconciler that finds a charge.
struct Charged;

#[async_trait]
impl Reconciler for Charged {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok(Finding::Executed(Answer::json(201, r#"{"id":"pay_1"}"#)))
    }
}

/// Fails unless the record is unknown, with a note of this reason, and retries are refused for that reason without running.
async fn assert_unknown(store: &impl Store, app: &Router, key: &str, because: &str) {
    let before = record(store, key).await.expect("an unknown is never deleted");
    assert!(matches!(before.state, State::Unknown { .. }), "{before:?}");
    assert_eq!(before.last_failure.as_ref().map(|note| note.as_str()), Some(because));
    for _ in 0..2 {
        let retry = send(app, pay(key)).await;
        retry.assert_problem(409, "outcome-unknown");
        assert!(retry.header("retry-after").is_some());
    }
    assert_eq!(record(store, key).await, Some(before), "only reconciliation ends it");
}

// T18
#[apply(on_each_store)]
async fn a_handler_that_panics_leaves_an_unknown_and_never_runs_again(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let (runs, effects) = (Counter::default(), Counter::default());
    let counters = (runs.clone(), effects.clone());
    let app = api(guard(store.clone()), move |parts, _| {
        let (runs, effects) = counters.clone();
        async move {
            runs.add();
            assert_ne!(parts.headers["idempotency-key"], "before", "panics before its effect");
            effects.add();
            panic!("panics after its effect");
            #[expect(unreachable_code, reason = "gives the handler its type")]
            "never"
        }
    });
    for (key, effects_so_far) in [("before", 0), ("after", 1)] {
        send(&app, pay(key)).await.assert_problem(500, "outcome-unknown");
        assert_unknown(&store, &app, key, "panicked").await;
        assert_eq!(effects.count(), effects_so_far);
    }
    assert_eq!(runs.count(), 2);
}

// T18
#[apply(on_each_store)]
async fn a_service_that_fails_leaves_an_unknown_and_never_runs_again(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let runs = Counter::default();
    let counter = runs.clone();
    let fails = service_fn(move |_: axum::http::Request<Body>| {
        counter.add();
        async { Err::<Response<Body>, _>(lambda_http::Error::from("the connection pool is closed")) }
    });
    let app = guard(store.clone()).layer(fails);
    let first = send(&app, pay("order-1")).await;
    first.assert_problem(500, "outcome-unknown");
    assert!(!String::from_utf8_lossy(&first.body).contains("pool"), "nothing internal reaches a client");
    send(&app, pay("order-1")).await.assert_problem(409, "outcome-unknown");
    let kept = record(&store, "order-1").await.unwrap();
    assert_eq!(kept.last_failure.unwrap().as_str(), "handler_failed");
    assert_eq!(runs.count(), 1);
}

#[apply(on_each_store)]
async fn an_operation_that_certainly_did_not_happen_runs_on_retry(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let app = api(guard(store.clone()), |parts, _| async move {
        match execution(&parts).attempts() {
            1 => (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted), "away").into_response(),
            attempts => format!("attempt {attempts}").into_response(),
        }
    });
    let first = send(&app, pay("order-1")).await;
    assert_eq!((first.status, &first.body[..]), (503, &b"away"[..]));
    assert_eq!(first.headers.get("idempotency-expires"), None, "nothing is kept that could expire");
    assert_eq!(state(&store, "order-1").await, "failed_retryable");

    let second = send(&app, pay("order-1")).await;
    assert_eq!((second.status, &second.body[..]), (200, &b"attempt 2"[..]));
    assert!(!second.replayed());
    send(&app, pay("order-1")).await.assert_replay_of(&second);
}

#[apply(on_each_store)]
async fn a_possible_effect_is_an_unknown_outcome(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    // Even a 2xx or a 4xx. The handler's statement about its effect counts more than its status.
    for status in [StatusCode::OK, StatusCode::BAD_REQUEST, StatusCode::GATEWAY_TIMEOUT] {
        let app = api(guard(store.clone()), move |_, _| async move {
            (status, Extension(Outcome::PerhapsExecuted), "no answer")
        });
        let first = send(&app, pay(status.as_str())).await;
        assert_eq!((first.status, &first.body[..]), (status.as_u16(), &b"no answer"[..]));
        assert_unknown(&store, &app, status.as_str(), &format!("handler_failed, status {}", status.as_u16()))
            .await;
    }
}

/// An API whose handler's response has the body that the key names.
fn streams(store: impl Store, clock: ManualWorld) -> Router {
    let half = || stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"half of it"))]);
    api(guard(store).world(clock), move |parts, _| async move {
        Ok::<_, Infallible>(Response::new(match parts.headers["idempotency-key"].to_str().unwrap() {
            "breaks" => Body::from_stream(half().chain(stream::iter([Err(io::Error::other("gone"))]))),
            "endless" => Body::from_stream(half().chain(stream::pending())),
            "too-long" => Body::from(vec![b'x'; 16 * 1024 * 1024 + 1]),
            "long" => Body::from(vec![b'x'; 16 * 1024 * 1024]),
            other => panic!("{other}"),
        }))
    })
}

// T37
#[apply(on_each_store)]
async fn a_body_that_breaks_off_or_is_too_long_leaves_an_unknown(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let app = streams(store.clone(), clock());
    for key in ["breaks", "too-long"] {
        send(&app, pay(key)).await.assert_problem(500, "outcome-unknown");
        assert_unknown(&store, &app, key, "response_lost").await;
    }
    // The longest permitted body is kept, or left out of replays. It is not a failure.
    let first = send(&app, pay("long")).await;
    assert_eq!((first.status, first.body.len()), (200, 16 * 1024 * 1024));
    assert_eq!(state(&store, "long").await, "completed");
}

// T37
#[tokio::test]
async fn a_response_body_that_never_ends_becomes_an_unknown_outcome() {
    // Without a deadline it is 30 seconds. With one, it is the rest of the invocation less the time to record the outcome.
    for (left, bound) in [(None, 30), (Some(10), 8)] {
        let (store, clock) = (MemoryStore::new(), clock());
        let app = streams(store.clone(), clock.clone());
        let mut request = pay("endless");
        if let Some(left) = left {
            let mut context = Context::default();
            context.deadline = clock.now().plus(Duration::from_secs(left)).as_millis();
            request = request.with_lambda_context(context);
        }
        let answering = tokio::spawn({
            let app = app.clone();
            async move { send(&app, request).await }
        });
        until(|| clock.sleepers() == 1).await;
        clock.advance(Duration::from_millis(bound * 1000 - 500));
        tokio::task::yield_now().await;
        assert!(!answering.is_finished() && clock.sleepers() == 1, "it ends too early");
        assert_eq!(state(&store, "endless").await, "in_progress");
        clock.advance(Duration::from_millis(500));
        answering.await.unwrap().assert_problem(500, "outcome-unknown");
        assert_unknown(&store, &app, "endless", "response_lost").await;
    }
}

#[tokio::test]
async fn one_tenants_failure_does_not_affect_another() {
    let app = api(guard(MemoryStore::new()), |parts, _| async move {
        assert_ne!(execution(&parts).tenant().as_str(), TENANT, "panics for one tenant");
    });
    send(&app, pay("order-1")).await.assert_problem(500, "outcome-unknown");
    let other = order("order-1").extension(tenant("globex")).body(Body::empty()).unwrap();
    assert_eq!(send(&app, other).await.status, 200);
}

// T46: a client that gets "declined" pays with another card.
#[apply(on_each_store)]
async fn a_refusal_of_a_claimed_effect_is_answered_as_unknown(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let theirs = store.clone();
    let reconciliation = |store| {
        Reconciliation::new(store, MemoryQueue::new()).world(clock()).operation(Operation::new(PAY), Charged)
    };
    let app = api(guard(store.clone()), move |parts, _| {
        let reconciliation = reconciliation(theirs.clone());
        async move {
            let key = execution(&parts).record_key().clone();
            let ended = reconciliation.reported(&key, &ProviderReport::executed(201, Charged)).await.unwrap();
            // Without a queue of questions, the provider has to send it again.
            assert!(matches!(ended, ReconcileOutcome::InFlight(_)), "{ended:?}");
            let refused = parts.headers["idempotency-key"] == "refused";
            let status = if refused { StatusCode::PAYMENT_REQUIRED } else { StatusCode::CREATED };
            (status, "its own answer")
        }
    });
    let refused = send(&app, pay("refused")).await;
    refused.assert_problem(409, "outcome-unknown");
    assert!(refused.header("retry-after").is_some());
    assert_unknown(&store, &app, "refused", "it was refused, but an effect was reported").await;
    let key = record(&store, "refused").await.expect("a record").key;
    let asked = reconciliation(store.clone()).ask_if_due(&key).await.unwrap();
    assert_eq!(asked, ReconcileOutcome::Resolved("completed"));
    assert_eq!(send(&app, pay("refused")).await.status, 201);
    // An answer that agrees is returned as usual.
    let agreed = send(&app, pay("agreed")).await;
    assert_eq!((agreed.status, &agreed.body[..]), (201, &b"its own answer"[..]));
}

// T5: one key has one answer.
#[apply(on_each_store)]
async fn a_handler_that_lost_its_record_sends_no_answer_of_its_own(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let theirs = store.clone();
    let app = api(guard(store.clone()), move |parts, _| {
        let store = theirs.clone();
        async move {
            // While it runs, another execution takes its record over.
            let key = execution(&parts).record_key().clone();
            let seen = store.load(&key).await.unwrap().expect("its own record");
            let mut other = seen.clone();
            (other.revision, other.attempt) = (fresh(), fresh());
            store.put(Some(seen.revision), &other, &[]).await.unwrap();
            let answers = [StatusCode::CREATED, StatusCode::INTERNAL_SERVER_ERROR];
            let status = answers[usize::from(parts.headers["idempotency-key"] == "fails")];
            (status, "a second answer")
        }
    });
    for key in ["succeeds", "fails"] {
        let refused = send(&app, pay(key)).await;
        refused.assert_problem(503, "answered-elsewhere");
        assert!(refused.header("retry-after").is_some());
        assert!(!String::from_utf8_lossy(&refused.body).contains("a second answer"));
        assert_eq!(state(&store, key).await, "in_progress");
    }
}

// T39: its environment was frozen, for example. Others may have settled its record, and another execution may run.
#[apply(on_each_store)]
async fn a_handler_that_stood_still_past_its_lease_goes_no_further(endpoint: &str) {
    let second = Duration::from_secs(1);
    for suspended in [false, true] {
        let (store, clock, effects) = (dynamodb(endpoint).await, clock(), Counter::default());
        let gates = [Gate::closed(), Gate::closed()];
        let (waits, counted) = (gates.clone(), effects.clone());
        let app = api(guard(store.clone()).world(clock.clone()), move |parts, _| {
            let gate = waits[usize::from(parts.headers["idempotency-key"] == "late")].clone();
            let counted = counted.clone();
            async move {
                gate.pass().await;
                counted.add();
                StatusCode::CREATED
            }
        });
        // Suspended, the monotonic clock stands still.
        let pass = |span: Duration| match suspended {
            true => clock.set(clock.now().plus(span)),
            false => clock.advance(span),
        };
        let in_time = tokio::spawn({
            let app = app.clone();
            async move { send(&app, pay("in-time")).await }
        });
        gates[0].reached(1).await;
        pass(LEASE - second);
        gates[0].open();
        assert_eq!((in_time.await.expect("it ends").status, effects.count()), (201, 1));

        let late = tokio::spawn({
            let app = app.clone();
            async move { send(&app, pay("late")).await }
        });
        gates[1].reached(1).await;
        pass(LEASE);
        gates[1].open();
        late.await.expect("it ends").assert_problem(500, "outcome-unknown");
        assert_eq!(effects.count(), 1, "suspended: {suspended}");
        assert_unknown(&store, &app, "late", "lease_over").await;
    }
}
