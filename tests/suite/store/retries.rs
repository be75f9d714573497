//! Who retries what: the engine retries writes, and the SDK's client retries reads and bodies.

use std::time::Duration;

use lambda_idempotency::{
    engine::Executor,
    operator::Operator,
    record::Says,
    store::{Store, StoreErrorKind, Unsettled},
};

use crate::support::{
    clock::in_time,
    embedded,
    faults::{ANY, Fault},
    guarded::{
        Guarded, body_of, completed, operation, outcome_of, owned, random, replayed, replayed_text, request,
        written,
    },
};

/// How often a process may send a write again that gets no answer, if none is answered.
const BUDGET: usize = 50;

// The waits of the engine are 25, 50, 100, 200 and 400 ms; the next would be too long.
#[tokio::test]
async fn each_try_of_the_engine_sends_one_request() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let executor = guarded.executor_of(operation().completion_timeout(Duration::from_secs(1)));
    for fault in [Fault::Status(500), Fault::DropRequest, Fault::Throttle] {
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        let asked = guarded.faults.asked(ANY);
        guarded.faults.for_all(ANY, fault.clone());
        let ended = guarded.clock.passing(executor.finish(ours, completed("{}"))).await;
        assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
        assert_eq!(guarded.faults.asked(ANY) - asked, 6, "{fault:?}");
        guarded.faults.clear();
    }
}

// No time passes for the engine: what waits is the SDK.
#[tokio::test]
async fn reads_and_bodies_keep_the_retries_of_the_sdk() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (executor, request, body) = (guarded.executor(), request(), random(20_000));
    let ours = owned(executor.reserve(&request).await);
    guarded.faults.script("PutItem", [Fault::Status(500), Fault::DropAnswer]);
    written(in_time(executor.finish(ours, completed(body.clone()))).await);
    guarded.faults.script("GetItem", [Fault::Status(500), Fault::DropRequest]);
    let replay = replayed(in_time(executor.reserve(&request)).await);
    assert_eq!((body_of(&replay), guarded.faults.left()), (Some(&body), 0));
}

// Those that no loop of the engine retries.
#[tokio::test]
async fn every_other_write_is_sent_again_twice() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let request = request();
    drop(owned(guarded.executor().reserve(&request).await));
    let operator = Operator::new(guarded.store()).world(guarded.clock.clone());
    for faults in [[Fault::DropAnswer, Fault::DropAnswer], [Fault::Throttle, Fault::DropRequest]] {
        guarded.faults.script("PutItem", faults);
        let noted = operator.note(&request.key, "redrive", "olga@bank", "asked");
        guarded.clock.passing(noted).await.expect("it is written");
        assert_eq!(guarded.faults.left(), 0);
    }
    let lines = guarded.store().audit_lines(&request.key).await.expect("the store answers");
    assert_eq!(lines.len(), 2);
    guarded.faults.script("PutItem", vec![Fault::DropRequest; 3]);
    let noted = operator.note(&request.key, "redrive", "olga@bank", "asked");
    let error = guarded.clock.passing(noted).await.expect_err("three tries are all");
    assert_eq!((error.kind(), guarded.faults.left()), (StoreErrorKind::Unavailable, 0));
}

/// Writes of a store that is down, each sent as often as the budget allows.
async fn drain(guarded: &Guarded, store: impl Unsettled) -> usize {
    let request = request();
    let (operator, before) =
        (Operator::new(store).world(guarded.clock.clone()), guarded.faults.asked("PutItem"));
    guarded.faults.for_all("PutItem", Fault::Status(500));
    for _ in 0..BUDGET {
        let noted = operator.note(&request.key, "redrive", "olga@bank", "asked");
        assert!(guarded.clock.passing(noted).await.is_err());
    }
    guarded.faults.clear();
    guarded.faults.asked("PutItem") - before
}

#[tokio::test]
async fn a_store_that_is_down_gets_no_more_retries_than_the_budget() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let store = guarded.store();
    assert_eq!(drain(&guarded, store.clone()).await, BUDGET + BUDGET);
    // Nothing is left, also for an operation's executor: one try, and one to take it back.
    let executor = Executor::new(store.clone(), operation()).world(guarded.clock.clone());
    let asked = guarded.faults.asked("PutItem");
    guarded.faults.for_all("PutItem", Fault::Status(500));
    assert_eq!(outcome_of(&executor.reserve(&request()).await), "unavailable");
    assert_eq!(guarded.faults.asked("PutItem") - asked, 2);
    guarded.faults.clear();
    // A store that answers fills it again.
    for _ in 0..10 {
        drop(owned(executor.reserve(&request()).await));
    }
    guarded.faults.script("PutItem", [Fault::DropRequest]);
    drop(owned(executor.reserve(&request()).await));
    // Another store has a budget of its own.
    guarded.faults.script("PutItem", [Fault::DropRequest]);
    drop(owned(guarded.executor().reserve(&request()).await));
}

// A report must not be lost, and may be all that its process writes.
#[tokio::test]
async fn without_a_budget_a_report_is_tried_each_second() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let store = guarded.store();
    let (executor, request) =
        (Executor::new(store.clone(), operation()).world(guarded.clock.clone()), request());
    let ours = owned(executor.reserve(&request).await);
    drain(&guarded, store).await;
    let asked = guarded.faults.asked("PutItem");
    guarded.faults.for_all("PutItem", Fault::Status(500));
    let back = async {
        for tries in 1..=3 {
            guarded.clock.slept(Duration::from_secs(1), tries).await;
            assert_eq!(guarded.faults.asked("PutItem") - asked, tries);
            if tries == 3 {
                guarded.faults.clear();
            }
            guarded.clock.advance(Duration::from_secs(1));
        }
    };
    let (ended, ()) = in_time(async { tokio::join!(executor.finish(ours, completed("{}")), back) }).await;
    written(ended);
    assert_eq!(replayed_text(executor.reserve(&request).await), "{}");
}

// One more try is worth more than the store's rest: the wait is half of what is left, not a second.
#[tokio::test]
async fn without_a_budget_a_short_report_has_more_than_one_try() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (store, request) = (guarded.store(), request());
    let operation = operation().completion_timeout(Duration::from_millis(900));
    let executor = Executor::new(store.clone(), operation).world(guarded.clock.clone());
    let ours = owned(executor.reserve(&request).await);
    drain(&guarded, store).await;
    guarded.faults.script("PutItem", [Fault::Status(500)]);
    let half = Duration::from_millis(450);
    let back = async {
        guarded.clock.slept(half, 1).await;
        guarded.clock.advance(half);
    };
    let (ended, ()) = in_time(async { tokio::join!(executor.finish(ours, completed("{}")), back) }).await;
    written(ended);
    assert_eq!(guarded.faults.left(), 0);
    assert_eq!(replayed_text(executor.reserve(&request).await), "{}");
}
