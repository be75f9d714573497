//! Requests whose future is dropped. The execution still runs to its end, and its answer is kept.

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use lambda_idempotency::store::{Store, memory::MemoryStore};
use macro_rules_attribute::apply;
use tower::{Service, ServiceExt};

use crate::support::{
    http::{Counter, Gate, api, dynamodb, guard, pay, record, send, state, until_state},
    on_each_store,
};

fn held(store: impl Store) -> (Router, Gate, Counter) {
    let (gate, effects) = (Gate::closed(), Counter::default());
    let (held, counter) = (gate.clone(), effects.clone());
    let app = api(guard(store), move |_, _| {
        let (held, counter) = (held.clone(), counter.clone());
        async move {
            held.pass().await;
            format!("effect {}", counter.add())
        }
    });
    (app, gate, effects)
}

// T35, T31
#[apply(on_each_store)]
async fn a_dropped_request_runs_to_its_end_and_is_kept(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let (app, gate, effects) = held(store.clone());
    tokio::select! {
        answer = app.clone().oneshot(pay("order-1")) => panic!("answered at a closed gate: {answer:?}"),
        () = gate.reached(1) => {}
    }
    // The client has gone. Its retry finds the first execution, which is still running.
    send(&app, pay("order-1")).await.assert_problem(409, "in-flight");
    gate.open();
    until_state(&store, "order-1", "completed").await;
    let replay = send(&app, pay("order-1")).await;
    assert!(replay.replayed());
    assert_eq!((&replay.body[..], effects.count()), (&b"effect 1"[..], 1));
}

// T35
#[apply(on_each_store)]
async fn a_timeout_outside_the_guard_does_not_stop_the_execution(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let (app, gate, effects) = held(store.clone());
    // A timeout that fires as soon as the handler runs.
    let late = gate.clone();
    let timeout = move |request: Request, next: Next| {
        let late = late.clone();
        async move {
            tokio::select! {
                answer = next.run(request) => answer,
                () = late.reached(1) => StatusCode::GATEWAY_TIMEOUT.into_response(),
            }
        }
    };
    let behind_timeout = app.clone().layer(from_fn(timeout));
    assert_eq!(send(&behind_timeout, pay("order-1")).await.status, 504);
    assert_eq!(state(&store, "order-1").await, "in_progress");
    gate.open();
    until_state(&store, "order-1", "completed").await;
    assert!(send(&app, pay("order-1")).await.replayed());
    assert_eq!(effects.count(), 1);
}

// T35, T17
#[apply(on_each_store)]
async fn a_request_dropped_before_its_reservation_either_runs_or_never_existed(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let (app, gate, effects) = held(store.clone());
    gate.open();
    // The future is created, polled once, and dropped. The reservation cannot have been answered yet.
    let mut call: futures_util::future::BoxFuture<Result<Response, _>> =
        app.clone().oneshot(pay("order-1")).boxed();
    assert!((&mut call).now_or_never().is_none());
    drop(call);
    until_state(&store, "order-1", "completed").await;
    assert!(send(&app, pay("order-1")).await.replayed());
    assert_eq!(effects.count(), 1);

    // A future that is never polled sends no request. Nothing was reserved for it.
    drop(app.clone().oneshot(pay("order-2")));
    assert_eq!(record(&store, "order-2").await, None);
}

// T35: a caller may be dropped after its runtime, or in a thread that has none.
#[test]
fn a_request_dropped_without_a_runtime_is_left_to_its_lease() {
    for is_shut_down in [false, true] {
        let begin = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (store, runtime) = (MemoryStore::new(), begin());
        let (mut app, gate, effects) = held(store.clone());
        let mut call = Box::pin(app.call(pay("order-1")));
        runtime.block_on(async {
            tokio::select! {
                answer = &mut call => panic!("answered at a closed gate: {answer:?}"),
                () = gate.reached(1) => {}
            }
        });
        let next = if is_shut_down {
            drop(runtime);
            begin()
        } else {
            runtime
        };
        drop(call);
        gate.open();
        assert_eq!(next.block_on(state(&store, "order-1")), "in_progress");
        next.block_on(send(&app, pay("order-1"))).assert_problem(409, "in-flight");
        assert_eq!(effects.count(), 0);
    }
}

// T35
#[tokio::test]
async fn a_dropped_request_whose_handler_panics_leaves_an_unknown() {
    let store = MemoryStore::new();
    let gate = Gate::closed();
    let held = gate.clone();
    let mut app = api(guard(store.clone()), move |_, _| {
        let held = held.clone();
        async move {
            held.pass().await;
            assert!(held.is_closed(), "panics after its client has gone");
        }
    });
    tokio::select! {
        answer = app.call(pay("order-1")) => panic!("answered at a closed gate: {answer:?}"),
        () = gate.reached(1) => {}
    }
    gate.open();
    until_state(&store, "order-1", "unknown").await;
    send(&app, pay("order-1")).await.assert_problem(409, "outcome-unknown");
}
