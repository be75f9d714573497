//! A slow, failing, refusing or missing store: nothing runs unreserved, and nothing that ran is forgotten.

use std::{net::TcpListener, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    config::{Builder, timeout::TimeoutConfig},
};
use lambda_idempotency::{
    engine::{Executor, Report},
    operation::WhileInFlight,
    record::Says,
    store::dynamodb::DynamoDbStore,
    time_budget::STORE_TRY,
};
use macro_rules_attribute::apply;

use crate::support::{
    client::connect,
    clock::{SENT_AGAIN, STORE_TIMEOUT, in_time},
    embedded,
    faults::{ANY, Fault, Late},
    guarded::{
        GRACE, Guarded, LEASE, body_of, completed, operation, outcome_of, owned, random, replayed,
        replayed_text, request, written,
    },
    on_each_store,
};

// T17
#[apply(on_each_store)]
async fn a_reservation_that_the_store_does_not_accept_runs_nothing(endpoint: &str) {
    let again = SENT_AGAIN;
    // What got no answer is taken back at once, by as many tries, as far as there is time to answer.
    for (fault, tries, waits) in [
        (Fault::Status(500), 6, vec![again; 2]),
        (Fault::Status(503), 6, vec![again; 2]),
        (Fault::Throttle, 3, vec![again, 2 * again]),
        (Fault::DropRequest, 6, vec![again; 2]),
        (Fault::BlackHole, 4, vec![STORE_TRY, STORE_TRY, again, STORE_TRY, ANSWER_TIME]),
        (Fault::AccessDenied, 1, vec![]),
        (Fault::ExpiredSignature, 2, vec![]),
    ] {
        // No reservation of another round is taken back meanwhile.
        let guarded = Guarded::on(endpoint).await;
        let (executor, request) = (guarded.executor(), request());
        guarded.faults.for_all(ANY, fault.clone());
        let reserved = guarded.clock.through(&waits, executor.reserve(&request)).await;
        let told = if matches!(fault, Fault::Throttle) { "throttled" } else { "unavailable" };
        assert_eq!(outcome_of(&reserved), told, "{fault:?}");
        assert_eq!(guarded.faults.asked("PutItem"), tries, "{fault:?}");
        guarded.faults.clear();
        assert_eq!(guarded.state(&request).await, "absent", "{fault:?}");
        assert_eq!(guarded.faults.sent(ANY), 0, "{fault:?}");
    }
}

#[tokio::test]
async fn a_refused_connection_and_a_missing_table_run_nothing() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let unreachable = connect(&format!("http://{closed}")).client();
    for store in [
        DynamoDbStore::from_client(unreachable, guarded.table.as_str()),
        DynamoDbStore::from_client(guarded.client.clone(), "no-such-table"),
    ] {
        let executor = Executor::new(store, operation());
        assert_eq!(outcome_of(&executor.reserve(&request()).await), "unavailable");
    }
}

// T17: the executor's own timeout, for a client without any.
#[tokio::test]
async fn the_executor_itself_times_out_a_store_that_never_answers() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let config = connect(embedded::endpoint()).http_client(guarded.faults.clone()).sdk_config();
    let without_timeout = Builder::from(&config).timeout_config(TimeoutConfig::disabled()).build();
    let store = DynamoDbStore::from_client(Client::from_conf(without_timeout), guarded.table.as_str());
    let executor = Executor::new(store, operation()).world(guarded.clock.clone());
    let (late, request) = (Late::hanging(), request());
    guarded.faults.script("PutItem", [late.fault()]);
    let waiting = executor.reserve(&request);
    let time = async {
        late.held(1).await;
        guarded.clock.advance(STORE_TIMEOUT);
    };
    let reserved = in_time(async { tokio::join!(waiting, time).0 }).await;
    assert_eq!(outcome_of(&reserved), "unavailable");
    assert_eq!(late.release().await.status, 200);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight");
}

#[apply(on_each_store)]
async fn the_breaker_opens_after_five_failures_and_closes_on_recovery(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let executor = guarded.executor();
    guarded.faults.for_all(ANY, Fault::Status(503));
    for failures in 1..=5 {
        assert_eq!(outcome_of(&executor.reserve(&request()).await), "unavailable");
        // The reservation, and a try to take it back.
        assert_eq!(guarded.faults.asked(ANY), 2 * failures);
    }
    for _ in 0..10 {
        assert_eq!(outcome_of(&executor.reserve(&request()).await), "unavailable");
    }
    assert_eq!(guarded.faults.asked(ANY), 10, "a store that is down is not asked");

    // Each is taken back once more, and then no longer.
    guarded.clock.slept(Duration::from_millis(50), 5).await;
    guarded.clock.advance(Duration::from_secs(20));
    in_time(async {
        while guarded.faults.asked(ANY) < 15 {
            tokio::task::yield_now().await;
        }
    })
    .await;

    // From time to time one request tries. While it fails, the others do not.
    guarded.clock.advance(Duration::from_secs(2));
    for _ in 0..10 {
        assert_eq!(outcome_of(&executor.reserve(&request()).await), "unavailable");
    }
    assert_eq!(guarded.faults.asked(ANY), 17);

    guarded.faults.clear();
    assert_eq!(outcome_of(&executor.reserve(&request()).await), "unavailable");
    guarded.clock.advance(Duration::from_secs(2));
    for _ in 0..10 {
        assert_eq!(outcome_of(&executor.reserve(&request()).await), "owned");
    }
}

// T9
#[apply(on_each_store)]
async fn a_reservation_that_meets_a_transaction_is_in_flight(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    // More than enough to open the breaker: a conflict is not a failure of the store.
    for _ in 0..10 {
        guarded.faults.script("PutItem", [Fault::TransactionConflict]);
        assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight");
    }
    let first = owned(executor.reserve(&request).await);
    written(executor.finish(first, Report::NotExecuted(None)).await);
    // A take-over that meets the conflict does not cause a second run either.
    guarded.faults.script("PutItem", [Fault::Pass, Fault::TransactionConflict]);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight");
    assert_eq!((guarded.state(&request).await, guarded.faults.left()), ("failed_retryable", 0));
}

// T9
#[apply(on_each_store)]
async fn a_waiting_reservation_waits_for_a_transaction_too(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let waiting = operation().while_in_flight(WhileInFlight::Wait(Duration::from_secs(5)));
    let (executor, request) = (guarded.executor_of(waiting), request());
    guarded.faults.script("PutItem", [Fault::TransactionConflict, Fault::TransactionConflict]);
    let reserved = guarded.clock.passing(executor.reserve(&request)).await;
    assert_eq!((outcome_of(&reserved), guarded.faults.left()), ("owned", 0));
    // But it does not wait longer than for anything else.
    guarded.faults.for_all("PutItem", Fault::TransactionConflict);
    let (another, began_at) = (self::request(), guarded.now());
    let reserved = guarded.clock.passing(executor.reserve(&another)).await;
    assert_eq!(outcome_of(&reserved), "in flight");
    assert!(guarded.now().since(began_at) <= Duration::from_secs(6));
}

// T9
#[apply(on_each_store)]
async fn a_completion_that_meets_a_transaction_is_written_after_it(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    guarded.faults.script("PutItem", vec![Fault::TransactionConflict; 4]);
    written(guarded.clock.passing(executor.finish(ours, completed("{}"))).await);
    assert_eq!((guarded.faults.sent("PutItem"), guarded.faults.left()), (2, 0));
    assert_eq!(replayed_text(executor.reserve(&request).await), "{}");
}

#[apply(on_each_store)]
async fn a_completion_waits_for_a_store_that_comes_back(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let faults = [
        Fault::Status(500),
        Fault::Throttle,
        Fault::DropRequest,
        Fault::AccessDenied,
        Fault::ExpiredSignature,
    ];
    for (round, fault) in (1..).zip(faults) {
        let (executor, request) = (guarded.executor(), request());
        let ours = owned(executor.reserve(&request).await);
        guarded.faults.for_all(ANY, fault.clone());
        let back = async {
            // It has failed twice, and waits before the third try.
            guarded.clock.slept(Duration::from_millis(25), round).await;
            guarded.clock.advance(Duration::from_millis(25));
            guarded.clock.slept(Duration::from_millis(50), round).await;
            guarded.faults.clear();
            guarded.clock.advance(Duration::from_millis(50));
        };
        let (ended, ()) = tokio::join!(executor.finish(ours, completed("{}")), back);
        written(ended);
        assert_eq!(replayed_text(executor.reserve(&request).await), "{}", "{fault:?}");
    }
}

#[apply(on_each_store)]
async fn a_completion_that_cannot_be_written_becomes_unknown_and_never_reruns(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    for fault in [Fault::Status(500), Fault::AccessDenied, Fault::TransactionConflict] {
        let completion_timeout = Duration::from_secs(7);
        let (executor, request) =
            (guarded.executor_of(operation().completion_timeout(completion_timeout)), request());
        let ours = owned(executor.reserve(&request).await);
        guarded.faults.for_all(ANY, fault.clone());
        let started = guarded.now();
        let ended = guarded.clock.passing(executor.finish(ours, completed("{}"))).await;
        assert!(matches!(ended, Says::Own { expires_at: None }), "{fault:?}: {ended:?}");
        let tried = guarded.now().since(started);
        assert!(
            tried < completion_timeout && tried + Duration::from_secs(1) >= completion_timeout,
            "{tried:?}"
        );

        guarded.faults.clear();
        assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight", "{fault:?}");
        guarded.clock.advance(LEASE + GRACE);
        for _ in 0..3 {
            assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown", "{fault:?}");
            guarded.clock.advance(LEASE + GRACE);
        }
    }
}

/// The part of an invocation's time that the executor leaves for its answer.
const ANSWER_TIME: Duration = Duration::from_millis(300);

#[apply(on_each_store)]
async fn a_completion_leaves_time_for_the_answer(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let (executor, mut request) = (guarded.executor(), request());
    let deadline = guarded.now().plus(Duration::from_secs(3));
    request.deadline = Some(deadline);
    let ours = owned(executor.reserve(&request).await);
    guarded.faults.for_all(ANY, Fault::Status(500));
    let ended = guarded.clock.passing(executor.finish(ours, completed("{}"))).await;
    assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
    assert!(guarded.now().plus(ANSWER_TIME) <= deadline, "{:?}", guarded.now());
}

// As above, but the store hangs instead of failing. Each step ends while there is time to answer.
#[apply(on_each_store)]
async fn a_store_that_hangs_leaves_time_for_the_answer(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, late, left) = (guarded.executor(), Late::hanging(), Duration::from_secs(3));
    let hangs = async |number| {
        late.held(number).await;
        guarded.clock.advance(left - ANSWER_TIME);
    };

    let (mut hanging, mut completing) = (request(), request());
    hanging.deadline = Some(guarded.now().plus(left));
    guarded.faults.script("PutItem", [late.fault()]);
    let reserved = in_time(async { tokio::join!(executor.reserve(&hanging), hangs(1)).0 }).await;
    assert_eq!(outcome_of(&reserved), "unavailable");

    completing.deadline = Some(guarded.now().plus(left));
    let ours = owned(executor.reserve(&completing).await);
    guarded.faults.script("PutItem", [late.fault()]);
    let ended = in_time(async { tokio::join!(executor.finish(ours, completed("{}")), hangs(2)).0 }).await;
    assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
}

// Reads fail, writes do not.
#[apply(on_each_store)]
async fn a_replay_with_an_unreadable_body_is_refused_and_never_runs(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request, body) = (guarded.executor(), request(), random(20_000));
    let ours = owned(executor.reserve(&request).await);
    written(executor.finish(ours, completed(body.clone())).await);

    guarded.faults.for_all("GetItem", Fault::Status(500));
    assert_eq!(outcome_of(&executor.reserve(&request).await), "unavailable");
    guarded.faults.clear();
    assert_eq!(body_of(&replayed(executor.reserve(&request).await)), Some(&body));
}
