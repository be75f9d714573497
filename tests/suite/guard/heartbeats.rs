//! Heartbeats: work of unknown length keeps its lease, and learns that it has lost it.

use std::time::Duration;

use lambda_idempotency::{
    engine::{Executor, Ownership, Request},
    operation::{OnLeaseExpiry, Operation},
    record::{Record, State},
    store::{Store, conformance::samples},
    time::Timestamp,
    world::ManualWorld,
};
use macro_rules_attribute::apply;

use crate::support::{
    clock::in_time,
    faults::{Fault, Late},
    guarded::{
        GRACE, Guarded, LEASE, RETENTION, completed, operation, outcome_of, owned, replayed_text, request,
        written,
    },
    on_each_store,
};

const EVERY: Duration = Duration::from_secs(20);

/// An execution with heartbeats: the test advances the clock by [`EVERY`], and a heartbeat is sent.
struct Beating {
    guarded: Guarded,
    executor: Executor,
    request: Request,
    ours: Ownership,
}

impl Beating {
    /// The SDK does not retry, so that one fault affects one heartbeat.
    async fn on(endpoint: &str, operation: Operation) -> Self {
        let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
        let (executor, request) = (guarded.executor_of(operation.heartbeat(EVERY)), request());
        let ours = owned(executor.reserve(&request).await);
        guarded.clock.slept(EVERY, 1).await;
        Self { guarded, executor, request, ours }
    }

    /// Lets the `number`th heartbeat happen. Returns when it has been answered.
    async fn beat(&self, number: usize) {
        self.guarded.clock.advance(EVERY);
        self.guarded.clock.slept(EVERY, number + 1).await;
    }

    async fn lease_until(&self) -> Timestamp {
        match self.guarded.record(&self.request.key).await {
            Some(Record { state: State::InProgress { lease_until }, .. }) => lease_until,
            other => panic!("not in progress: {other:?}"),
        }
    }

    /// An executor whose clock says that the lease has expired.
    fn ahead(&self, operation: Operation) -> Executor {
        let ahead = ManualWorld::at(self.guarded.now().plus(LEASE + GRACE));
        Executor::new(self.guarded.undisturbed_store(), operation).world(ahead)
    }
}

#[apply(on_each_store)]
async fn heartbeats_extend_the_lease_as_long_as_the_handler_runs(endpoint: &str) {
    let beating = Beating::on(endpoint, operation()).await;
    let (guarded, another) = (&beating.guarded, beating.guarded.another(operation()));
    let first_lease = beating.lease_until().await;
    for number in 1..=6 {
        beating.beat(number).await;
        assert_eq!(beating.lease_until().await, guarded.now().plus(LEASE + GRACE));
        assert_eq!(outcome_of(&another.reserve(&beating.request).await), "in flight");
    }
    assert!(guarded.now() > first_lease.plus(LEASE / 2), "the first lease is long over");

    written(beating.executor.finish(beating.ours, completed("{}")).await);
    assert_eq!(replayed_text(another.reserve(&beating.request).await), "{}");
}

// T1
#[apply(on_each_store)]
async fn a_heartbeats_lost_answer_blocks_neither_the_next_nor_the_completion(endpoint: &str) {
    let beating = Beating::on(endpoint, operation()).await;
    let guarded = &beating.guarded;
    // It landed unseen. The next heartbeat finds it, and the one after that extends the lease.
    guarded.faults.script("PutItem", [Fault::DropAnswer]);
    for number in 1..=3 {
        beating.beat(number).await;
    }
    assert_eq!(beating.lease_until().await, guarded.now().plus(LEASE + GRACE));

    guarded.faults.script("PutItem", [Fault::DropAnswer]);
    beating.beat(4).await;
    assert_eq!(guarded.faults.left(), 0);
    written(beating.executor.finish(beating.ours, completed("{}")).await);
    assert_eq!(guarded.state(&beating.request).await, "completed");
}

#[apply(on_each_store)]
async fn a_hanging_heartbeat_neither_blocks_nor_undoes_the_completion(endpoint: &str) {
    let beating = Beating::on(endpoint, operation()).await;
    let (guarded, late) = (&beating.guarded, Late::hanging());
    guarded.faults.script("PutItem", [late.fault()]);
    guarded.clock.advance(EVERY);
    late.held(1).await;

    written(beating.executor.finish(beating.ours, completed("{}")).await);
    assert_eq!(late.release().await.status, 400);
    assert_eq!(guarded.state(&beating.request).await, "completed");
}

#[apply(on_each_store)]
async fn heartbeats_stop_if_another_execution_owns_the_record(endpoint: &str) {
    let runs_again = operation().on_lease_expiry(OnLeaseExpiry::RunAgain);
    let beating = Beating::on(endpoint, runs_again.clone()).await;
    let (guarded, theirs) = (&beating.guarded, beating.ahead(runs_again));
    let new_owner = owned(theirs.reserve(&beating.request).await);
    let before = guarded.item(&beating.request.key).await;

    guarded.clock.advance(EVERY);
    guarded.clock.no_sleepers().await;
    assert_eq!(guarded.item(&beating.request.key).await, before);
    let asked = guarded.faults.asked("PutItem");
    guarded.clock.advance(EVERY * 10);
    written(theirs.finish(new_owner, completed("theirs")).await);
    assert_eq!(guarded.faults.asked("PutItem"), asked);
}

// T41
#[apply(on_each_store)]
async fn a_heartbeat_reclaims_a_record_expired_by_a_fast_clock(endpoint: &str) {
    let beating = Beating::on(endpoint, operation()).await;
    let guarded = &beating.guarded;
    assert_eq!(outcome_of(&beating.ahead(operation()).reserve(&beating.request).await), "unknown");

    beating.beat(1).await;
    assert_eq!(beating.lease_until().await, guarded.now().plus(LEASE + GRACE));
    assert!(!beating.ours.execution().is_lost());
    assert_eq!(outcome_of(&guarded.another(operation()).reserve(&beating.request).await), "in flight");
    written(beating.executor.finish(beating.ours, completed("{}")).await);
    assert_eq!(guarded.state(&beating.request).await, "completed");
}

// T5
#[apply(on_each_store)]
async fn heartbeats_do_not_revive_a_settled_record(endpoint: &str) {
    let beating = Beating::on(endpoint, operation()).await;
    let guarded = &beating.guarded;
    let seen = guarded.record(&beating.request.key).await.expect("a record");
    let released = samples::released(&seen, guarded.now(), RETENTION);
    guarded.undisturbed_store().put(Some(seen.revision), &released, &[]).await.expect("the store answers");
    let before = guarded.item(&beating.request.key).await;

    guarded.clock.advance(EVERY);
    guarded.clock.no_sleepers().await;
    assert_eq!(guarded.item(&beating.request.key).await, before);
    assert!(beating.ours.execution().is_lost(), "the handler can stop before its effect");
    // The handler's final outcome is recorded all the same.
    written(beating.executor.finish(beating.ours, completed("{}")).await);
    assert_eq!(guarded.state(&beating.request).await, "completed");
}

// A handler that hangs is found in this way.
#[apply(on_each_store)]
async fn heartbeats_end_with_the_longest_lease(endpoint: &str) {
    let longest = LEASE + EVERY;
    let beating = Beating::on(endpoint, operation().max_lease(longest)).await;
    let (guarded, began) = (&beating.guarded, beating.guarded.now());
    for number in 1..=3 {
        beating.beat(number).await;
    }
    assert_eq!(beating.lease_until().await, began.plus(longest + GRACE), "no heartbeat reaches further");
    assert!(!beating.ours.execution().is_lost());
    guarded.clock.advance(EVERY);
    guarded.clock.no_sleepers().await;
    assert!(beating.ours.execution().is_lost());
    guarded.clock.advance(GRACE);
    assert_eq!(outcome_of(&guarded.another(operation()).reserve(&beating.request).await), "unknown");
}

#[apply(on_each_store)]
async fn an_execution_learns_that_it_has_lost_its_record(endpoint: &str) {
    let runs_again = operation().on_lease_expiry(OnLeaseExpiry::RunAgain);
    // Another execution takes the record over.
    let beating = Beating::on(endpoint, runs_again.clone()).await;
    let execution = beating.ours.execution().clone();
    assert!(!execution.is_lost());
    let lost = tokio::spawn(async move { execution.lost().await });
    let _theirs = owned(beating.ahead(runs_again).reserve(&beating.request).await);
    beating.guarded.clock.advance(EVERY);
    in_time(lost).await.expect("it ends");
    assert!(beating.ours.execution().is_lost());

    // The lease has expired, by either clock, and no heartbeat is sent.
    for frozen in [false, true] {
        let guarded = Guarded::on(endpoint).await;
        let ours = owned(guarded.executor().reserve(&request()).await);
        let execution = ours.execution().clone();
        let lost = tokio::spawn(async move { execution.lost().await });
        let looks = Duration::from_secs(1);
        guarded.clock.slept(looks, 1).await;
        if frozen {
            // The machine was suspended. The monotonic clock stood still.
            guarded.clock.set(guarded.now().plus(LEASE));
            assert!(ours.execution().is_lost());
            guarded.clock.advance(looks);
        } else {
            guarded.clock.advance(LEASE - Duration::from_millis(1));
            assert!(!ours.execution().is_lost());
            guarded.clock.slept(Duration::from_millis(1), 1).await;
            guarded.clock.advance(Duration::from_millis(1));
        }
        in_time(lost).await.expect("it ends");
    }
}

#[apply(on_each_store)]
async fn heartbeats_end_with_the_execution(endpoint: &str) {
    let beating = Beating::on(endpoint, operation()).await;
    let guarded = &beating.guarded;
    // The handler is dropped, and the execution gets no report.
    drop(beating.ours);
    guarded.clock.no_sleepers().await;
    guarded.clock.advance(LEASE + GRACE);
    assert_eq!(outcome_of(&beating.executor.reserve(&beating.request).await), "unknown");
}

// T8
#[apply(on_each_store)]
async fn a_lease_from_a_deadline_has_no_heartbeats(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, mut request) = (guarded.executor_of(operation().heartbeat(EVERY)), request());
    request.deadline = Some(guarded.now().plus(EVERY * 2));
    let ours = owned(executor.reserve(&request).await);
    // A heartbeat's task would sleep by now: this runtime has one thread.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(guarded.clock.sleepers(), 0);
    written(executor.finish(ours, completed("{}")).await);
}
