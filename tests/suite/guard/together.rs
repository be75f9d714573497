//! Many simultaneous requests, and several guards in one process.

use axum::{
    Extension, Router,
    body::Body,
    http::{Request, StatusCode},
    response::IntoResponse,
};
use futures_util::future::join_all;
use lambda_idempotency::{
    http::Outcome,
    operation::Operation,
    store::{Store, dynamodb::DynamoDbStore},
};
use macro_rules_attribute::apply;

use crate::support::{
    client::client,
    http::{
        Answer, Counter, Gate, PAY, TENANT, api, dynamodb, execution, guard, guard_of, pay, record_key, send,
    },
    on_each_store, tables,
};

const MANY: usize = 100;

/// Four guards, as in four workers: one table, and a separate client for each.
async fn workers(endpoint: &str, handler_runs: &Counter, gate: &Gate) -> Vec<Router> {
    let table = tables::idempotency_table(&client(endpoint)).await;
    let worker = |_| {
        let (runs, gate) = (handler_runs.clone(), gate.clone());
        api(guard(DynamoDbStore::from_client(client(endpoint), table.clone())), move |_, _| {
            let (runs, gate) = (runs.clone(), gate.clone());
            async move {
                let run = runs.add();
                gate.pass().await;
                (StatusCode::CREATED, [("location", "/payments/1")], format!("run {run}"))
            }
        })
    };
    (0..4).map(worker).collect()
}

async fn all_at_once(workers: &[Router], gate: &Gate) -> Vec<Answer> {
    // The executing request is released once all the others have arrived or have an answer.
    let open = async {
        gate.reached(1).await;
        gate.open();
    };
    let sent = join_all((0..MANY).map(|number| send(&workers[number % workers.len()], pay("order-1"))));
    tokio::join!(sent, open).0
}

// T20
#[apply(on_each_store)]
async fn of_a_hundred_simultaneous_requests_one_is_executed(endpoint: &str) {
    let (runs, gate) = (Counter::default(), Gate::closed());
    let workers = workers(endpoint, &runs, &gate).await;
    let answers = all_at_once(&workers, &gate).await;
    let (first, rest): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|answer| answer.status == 201 && !answer.replayed());
    assert_eq!((first.len(), runs.count()), (1, 1), "{rest:?}");
    for answer in &rest {
        match answer.replayed() {
            true => answer.assert_replay_of(&first[0]),
            false => answer.assert_problem(409, "in-flight"),
        }
    }
    for replay in all_at_once(&workers, &gate).await {
        replay.assert_replay_of(&first[0]);
    }
    assert_eq!(runs.count(), 1);
}

// T20
#[apply(on_each_store)]
async fn of_a_hundred_simultaneous_retries_one_takes_over(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let runs = Counter::default();
    let counter = runs.clone();
    let app = api(guard(store), move |parts, _| {
        counter.add();
        async move {
            match execution(&parts).attempts() {
                1 => (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted)).into_response(),
                attempts => format!("attempt {attempts}").into_response(),
            }
        }
    });
    assert_eq!(send(&app, pay("order-1")).await.status, 503);
    let answers = join_all((0..MANY).map(|_| send(&app, pay("order-1")))).await;
    let taken_over: Vec<_> =
        answers.iter().filter(|answer| answer.status == 200 && !answer.replayed()).collect();
    assert_eq!((taken_over.len(), runs.count()), (1, 2), "{answers:?}");
    assert_eq!(taken_over[0].body, "attempt 2");
    assert!(
        answers.iter().all(|answer| answer.status == 200 || answer.problem().1 == "in-flight"),
        "{answers:?}"
    );
}

// T23
#[apply(on_each_store)]
async fn nested_guards_share_nothing(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let inner_runs = Counter::default();
    let counter = inner_runs.clone();
    let inner = api(guard_of(store.clone(), Operation::new("charge-card")), move |parts, _| {
        counter.add();
        async move { execution(&parts).operation().to_string() }
    });
    // Nested by a call: the outer handler calls the inner service with the same key while it runs.
    let called = inner.clone();
    let outer = api(guard(store.clone()), move |parts, body| {
        let called = called.clone();
        async move {
            let before = execution(&parts).attempt();
            let charged = send(&called, Request::from_parts(parts.clone(), Body::from(body))).await;
            assert_eq!(execution(&parts).attempt(), before);
            format!("{} after {:?}", execution(&parts).operation(), charged.body)
        }
    });
    let first = send(&outer, pay("order-1")).await;
    assert_eq!(first.body, r#"create-payment after b"charge-card""#);
    send(&outer, pay("order-1")).await.assert_replay_of(&first);
    for operation in [PAY, "charge-card"] {
        let record = store.load(&record_key(TENANT, operation, "order-1")).await.unwrap().unwrap();
        assert_eq!((record.state.name(), record.attempts), ("completed", 1), "{operation}");
    }
    assert!(send(&inner, pay("order-1")).await.replayed());

    // Nested as layers: the handler's execution is that of the nearest guard.
    let both = inner.clone().layer(guard_of(store, Operation::new("around")));
    let first = send(&both, pay("order-2")).await;
    assert_eq!(first.body, "charge-card");
    send(&both, pay("order-2")).await.assert_replay_of(&first);
    assert_eq!(inner_runs.count(), 2);
}

// T23
#[apply(on_each_store)]
async fn two_simultaneous_operations_under_one_key_share_nothing(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let gate = Gate::closed();
    let of = |operation: &'static str| {
        let gate = gate.clone();
        api(guard_of(store.clone(), Operation::new(operation)), move |parts, _| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                execution(&parts).operation().to_string()
            }
        })
    };
    let (pays, refunds) = (of(PAY), of("refund"));
    let both_at_once = async {
        gate.reached(2).await;
        gate.open();
    };
    let (paid, refunded, ()) =
        tokio::join!(send(&pays, pay("order-1")), send(&refunds, pay("order-1")), both_at_once);
    assert_eq!((&paid.body[..], &refunded.body[..]), (&b"create-payment"[..], &b"refund"[..]));
    send(&pays, pay("order-1")).await.assert_replay_of(&paid);
    send(&refunds, pay("order-1")).await.assert_replay_of(&refunded);
}
