//! Leases: how long a record stays with its worker, and what happens afterwards.

use std::time::Duration;

use lambda_idempotency::{
    engine::{Executor, Report},
    operation::OnLeaseExpiry,
    record::{Record, Says, State},
    time::Timestamp,
    time_budget::CLOCK_SKEW,
    world::ManualWorld,
};
use macro_rules_attribute::apply;

use crate::support::{
    guarded::{
        GRACE, Guarded, LEASE, completed, operation, outcome_of, owned, replayed_text, request, written,
    },
    on_each_store,
};

const MILLISECOND: Duration = Duration::from_millis(1);

#[apply(on_each_store)]
async fn an_expired_lease_is_handled_as_the_operation_chose(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (choice, reported_then, state) in
        [(OnLeaseExpiry::Unknown, "unknown", "unknown"), (OnLeaseExpiry::RunAgain, "owned", "in_progress")]
    {
        let (executor, request) = (guarded.executor_of(operation().on_lease_expiry(choice)), request());
        drop(owned(executor.reserve(&request).await));
        guarded.clock.advance(LEASE + GRACE - MILLISECOND);
        assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight", "{choice:?}");
        guarded.clock.advance(MILLISECOND);
        let then = executor.reserve(&request).await;
        assert_eq!((outcome_of(&then), guarded.state(&request).await), (reported_then, state), "{choice:?}");
        if reported_then == "owned" {
            let second = owned(then);
            assert_eq!(second.execution().attempts(), 2);
            assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight", "{choice:?}");
            written(executor.finish(second, completed("{}")).await);
            assert_eq!(outcome_of(&executor.reserve(&request).await), "replay", "{choice:?}");
        }
    }
}

#[apply(on_each_store)]
async fn an_outcome_the_handler_left_unknown_stays_unknown(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    written(executor.finish(ours, Report::perhaps("handler_failed")).await);
    let before = guarded.item(&request.key).await;

    for choice in [OnLeaseExpiry::Unknown, OnLeaseExpiry::RunAgain] {
        let executor = guarded.executor_of(operation().on_lease_expiry(choice));
        guarded.clock.advance(Duration::from_secs(365 * 24 * 3600));
        assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown", "{choice:?}");
    }
    assert_eq!(guarded.item(&request.key).await, before);
}

async fn lease_until(guarded: &Guarded, key: &lambda_idempotency::key::RecordKey) -> Timestamp {
    match guarded.record(key).await {
        Some(Record { state: State::InProgress { lease_until }, .. }) => lease_until,
        other => panic!("not in progress: {other:?}"),
    }
}

#[apply(on_each_store)]
async fn a_lease_comes_from_the_deadline_and_its_grace(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, mut request) = (guarded.executor(), request());
    let deadline = guarded.now().plus(Duration::from_secs(29));
    request.deadline = Some(deadline);

    let ours = owned(executor.reserve(&request).await);
    assert_eq!(ours.execution().deadline(), Some(deadline));
    assert_eq!(lease_until(&guarded, &request.key).await, deadline.plus(GRACE));
    // The retry's deadline is later, and does not count.
    guarded.clock.advance(Duration::from_secs(29) + GRACE - MILLISECOND);
    request.deadline = Some(guarded.now().plus(Duration::from_secs(29)));
    assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight");
    guarded.clock.advance(MILLISECOND);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown");
}

// T8
#[apply(on_each_store)]
async fn an_impossible_deadline_leaves_the_operations_lease(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor();
    let impossible = [
        Timestamp::from_millis(0),
        Timestamp::from_millis(600_000),
        guarded.now(),
        guarded.now().minus(Duration::from_secs(3600)),
        Timestamp::from_secs(3_218_000_000),
        Timestamp::from_millis(u64::MAX),
    ];
    for deadline in impossible {
        let mut request = request();
        request.deadline = Some(deadline);
        let ours = owned(executor.reserve(&request).await);
        assert_eq!(ours.execution().deadline(), None, "{deadline:?}");
        assert_eq!(lease_until(&guarded, &request.key).await, guarded.now().plus(LEASE + GRACE));
        assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight", "{deadline:?}");
        // There is still time for the completion, too.
        written(executor.finish(ours, completed("{}")).await);
        assert_eq!(replayed_text(executor.reserve(&request).await), "{}");
    }

    let mut abandoned = request();
    abandoned.deadline = Some(Timestamp::from_millis(600_000));
    drop(owned(executor.reserve(&abandoned).await));
    guarded.clock.advance(LEASE + GRACE);
    assert_eq!(outcome_of(&executor.reserve(&abandoned).await), "unknown");
}

// T22
#[apply(on_each_store)]
async fn a_live_lease_outlasts_a_shorter_retention(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (retention, lease) = (CLOCK_SKEW, CLOCK_SKEW * 3);
    let (executor, request) = (guarded.executor_of(operation().retain(retention).lease(lease)), request());

    let slow = owned(executor.reserve(&request).await);
    guarded.clock.advance(lease + GRACE - MILLISECOND);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight");
    assert!(!guarded.item(&request.key).await.unwrap().contains_key("expires_at"));
    let Says::Own { expires_at: Some(expires_at) } = executor.finish(slow, completed("{}")).await else {
        panic!("not written");
    };
    // Counted from completion, not from reservation.
    assert!(expires_at >= guarded.now().plus(retention), "{expires_at:?}");
    assert_eq!(outcome_of(&executor.reserve(&request).await), "replay");

    // The record of a dead worker does not expire after its retention either.
    let dead = self::request();
    drop(owned(executor.reserve(&dead).await));
    guarded.clock.advance(retention * 1000);
    assert_eq!(outcome_of(&executor.reserve(&dead).await), "unknown");
}

// T28
#[apply(on_each_store)]
async fn clocks_minutes_apart_lead_to_no_second_run(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let minutes = Duration::from_secs(5 * 60);
    for (skew, reported_then) in [(Apart::Ahead(minutes), "unknown"), (Apart::Behind(minutes), "in flight")] {
        let (ours, request) = (guarded.executor(), request());
        let theirs = Executor::new(guarded.store(), operation()).world(skew.world(guarded.now()));
        let running = owned(ours.reserve(&request).await);
        assert_eq!(outcome_of(&theirs.reserve(&request).await), reported_then);
        assert_ne!(outcome_of(&ours.reserve(&request).await), "owned");

        // The worker is alive, and its report counts.
        written(ours.finish(running, completed("{}")).await);
        assert_eq!(replayed_text(theirs.reserve(&request).await), "{}");
        assert_eq!(replayed_text(ours.reserve(&request).await), "{}");
    }
}

enum Apart {
    Ahead(Duration),
    Behind(Duration),
}

impl Apart {
    fn world(&self, now: Timestamp) -> ManualWorld {
        ManualWorld::at(match self {
            Self::Ahead(by) => now.plus(*by),
            Self::Behind(by) => now.minus(*by),
        })
    }
}

// T28: the bound that `DEFAULT_GRACE` and `OnLeaseExpiry::RunAgain` state.
#[apply(on_each_store)]
async fn running_again_is_safe_while_clock_skew_stays_within_the_grace(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let grace = Duration::from_secs(3 * 60);
    let runs_again = operation().on_lease_expiry(OnLeaseExpiry::RunAgain).grace(grace);
    let (handler_takes, ours) = (Duration::from_secs(29), guarded.executor_of(runs_again.clone()));
    for (apart, reported_then) in [(grace - MILLISECOND, "in flight"), (grace, "owned")] {
        let mut request = request();
        request.deadline = Some(guarded.now().plus(handler_takes));
        let running = owned(ours.reserve(&request).await);
        // The last moment at which the handler can still run.
        guarded.clock.advance(handler_takes);
        let ahead = ManualWorld::at(guarded.now().plus(apart));
        let theirs = Executor::new(guarded.store(), runs_again.clone()).world(ahead);
        assert_eq!(outcome_of(&theirs.reserve(&request).await), reported_then, "{apart:?}");
        drop(running);
    }
}
