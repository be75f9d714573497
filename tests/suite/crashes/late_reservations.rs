//! Reservations that are answered late, or that land late. The owner of a record has not necessarily begun to run.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use lambda_idempotency::{
    async_trait,
    engine::{Executor, Report, Request},
    operation::{OnLeaseExpiry, Operation, WhileInFlight},
    queue::MemoryQueue,
    reconcile::{Finding, Question, ReconcileOutcome, Reconciler, Reconciliation},
    record::{Record, Revision},
    store::{Companion, Store, StoreError, WriteOutcome, dynamodb::DynamoDbStore},
    time_budget::STORE_TRY,
    world::World,
};
use macro_rules_attribute::apply;

use lambda_http::{Context, RequestExt};

use crate::support::{
    BoxError,
    clock::{STORE_TIMEOUT, in_time},
    counts::counting,
    faults::{Fault, Late},
    guarded::{
        GRACE, Guarded, LEASE, completed, operation, outcome_of, owned, replayed_text, request, too_old,
        written,
    },
    http::{Counter, PAY, api, guard_of, pay, send},
    meddling::{Meddled, Meddling},
    on_each_store,
};

const SECOND: Duration = Duration::from_secs(1);
const FIRST_BACKOFF: Duration = Duration::from_millis(50);

/// A store that acts between its first insertion and the answer: meanwhile, the process is frozen.
struct Frozen {
    store: DynamoDbStore,
    meanwhile: Mutex<Option<BoxFuture<'static, ()>>>,
    /// Whether the insertion is sent again afterwards, as the SDK does if it gets no answer.
    again: bool,
}

impl Frozen {
    fn new(guarded: &Guarded, meanwhile: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { store: guarded.store(), meanwhile: Mutex::new(Some(Box::pin(meanwhile))), again: false }
    }

    fn sent_again(self) -> Self {
        Self { again: true, ..self }
    }
}

#[async_trait]
impl Meddling for Frozen {
    fn store(&self) -> &DynamoDbStore {
        &self.store
    }

    async fn put(
        &self,
        seen: Option<Revision>,
        record: &Record,
        with: &[Companion],
    ) -> Result<WriteOutcome, StoreError> {
        let answer = self.store.put(seen, record, with).await;
        if seen.is_some() {
            return answer;
        }
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile.await;
            if self.again {
                return self.store.put(None, record, with).await;
            }
        }
        answer
    }
}

/// A reconciler that finds nothing.
struct Nothing;

#[async_trait]
impl Reconciler for Nothing {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok(Finding::NotFound)
    }
}

/// Either the machine is frozen, so that only its wall clock advances, or the wall clock is set back meanwhile.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Frozen,
    SetBack,
}

impl Meanwhile {
    const EACH: [Self; 2] = [Self::Frozen, Self::SetBack];

    fn pass(self, guarded: &Guarded, span: Duration) {
        let began = guarded.now();
        match self {
            Self::Frozen => guarded.clock.set(began.plus(span)),
            Self::SetBack => {
                guarded.clock.advance(span);
                guarded.clock.set(began);
            }
        }
    }
}

fn due_in(guarded: &Guarded, span: Duration) -> Request {
    let mut request = request();
    request.deadline = Some(guarded.now().plus(span));
    request
}

// T39
#[apply(on_each_store)]
async fn a_frozen_reservation_that_others_have_overtaken_runs_nothing(endpoint: &str) {
    let guarded = Arc::new(Guarded::on(endpoint).await);
    for deadline in [None, Some(29 * SECOND)] {
        let mut request = request();
        request.deadline = deadline.map(|span| guarded.now().plus(span));
        let (world, key) = (guarded.clone(), request.clone());
        let frozen = Frozen::new(&guarded, async move {
            Meanwhile::Frozen.pass(&world, LEASE + GRACE);
            let other = world.another(operation());
            assert_eq!(outcome_of(&other.reserve(&key).await), "unknown");
            let reconciliation = Reconciliation::new(world.undisturbed_store(), MemoryQueue::new())
                .world(world.clock.clone())
                .not_found_grace(Duration::ZERO)
                .operation(operation(), Nothing);
            let released = reconciliation.ask(&key.key).await.expect("an answer");
            assert_eq!(released, ReconcileOutcome::Resolved("failed_retryable"));
            let theirs = owned(other.reserve(&key).await);
            written(other.finish(theirs, completed("theirs")).await);
        });
        let resumed = Executor::new(Meddled(frozen), operation()).world(guarded.clock.clone());
        assert_eq!(outcome_of(&resumed.reserve(&request).await), "too late", "{deadline:?}");
        assert_eq!(replayed_text(guarded.another(operation()).reserve(&request).await), "theirs");
    }
}

// T39
#[apply(on_each_store)]
async fn a_frozen_reservation_without_a_rival_is_taken_back(endpoint: &str) {
    let guarded = Arc::new(Guarded::on(endpoint).await);
    for meanwhile in Meanwhile::EACH {
        let (world, request) = (guarded.clone(), due_in(&guarded, 29 * SECOND));
        let frozen = Frozen::new(&guarded, async move { meanwhile.pass(&world, 28 * SECOND) });
        let resumed = Executor::new(Meddled(frozen), operation()).world(guarded.clock.clone());
        assert_eq!(outcome_of(&resumed.reserve(&request).await), "too late", "{meanwhile:?}");
        assert_eq!(guarded.state(&request).await, "failed_retryable", "{meanwhile:?}");
        let retry = Request { deadline: None, ..request };
        assert_eq!(owned(resumed.reserve(&retry).await).execution().attempts(), 1);
    }
}

// T39: by default the smaller of two seconds and a quarter of the invocation's time.
#[apply(on_each_store)]
async fn an_execution_begins_with_enough_time_and_not_with_less(endpoint: &str) {
    let guarded = Arc::new(Guarded::on(endpoint).await);
    let millisecond = Duration::from_millis(1);
    for (least, whole, left) in [
        (None, 29 * SECOND, 2 * SECOND),
        (None, 8 * SECOND, 2 * SECOND),
        (None, 2 * SECOND, SECOND / 2),
        (Some(10 * SECOND), 29 * SECOND, 10 * SECOND),
    ] {
        let operation =
            || least.into_iter().fold(operation(), |operation, least| operation.min_time_to_run(least));
        for (passed, expected) in [(whole - left, "owned"), (whole - left + millisecond, "too late")] {
            let (world, request) = (guarded.clone(), due_in(&guarded, whole));
            let frozen = Frozen::new(&guarded, async move { world.clock.advance(passed) });
            let executor = Executor::new(Meddled(frozen), operation()).world(guarded.clock.clone());
            assert_eq!(outcome_of(&executor.reserve(&request).await), expected, "{least:?} {whole:?}");
        }
    }
    // Without a deadline the lease has to last long enough.
    for (passed, expected) in [(LEASE - 2 * SECOND, "owned"), (LEASE - SECOND, "too late")] {
        let world = guarded.clone();
        let frozen = Frozen::new(&guarded, async move { world.clock.advance(passed) });
        let executor = Executor::new(Meddled(frozen), operation()).world(guarded.clock.clone());
        assert_eq!(outcome_of(&executor.reserve(&request()).await), expected, "{passed:?}");
    }
}

// T39
#[apply(on_each_store)]
async fn a_waiter_with_too_little_time_left_takes_nothing_over(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let first = guarded.another(operation());
    let waits = operation().while_in_flight(WhileInFlight::Wait(60 * SECOND));
    let (executor, request) = (guarded.executor_of(waits), due_in(&guarded, 20 * SECOND));
    let ours = owned(first.reserve(&request).await);
    let waiting = tokio::spawn({
        let request = request.clone();
        async move { executor.reserve(&request).await }
    });
    guarded.clock.slept(FIRST_BACKOFF, 1).await;
    written(first.finish(ours, Report::NotExecuted(None)).await);
    let before = guarded.item(&request.key).await;
    guarded.clock.advance(20 * SECOND - 2 * SECOND + Duration::from_millis(1));
    assert_eq!(outcome_of(&in_time(waiting).await.expect("it ends")), "too late");
    assert_eq!(guarded.item(&request.key).await, before);
}

/// A released key, and its take-over, which lands when the test decides. The caller of the take-over got a 503.
async fn held_take_over(guarded: &Guarded) -> (Request, Late) {
    let (executor, request, late) = (guarded.executor(), request(), Late::timing_out());
    let first = owned(executor.reserve(&request).await);
    written(executor.finish(first, Report::NotExecuted(None)).await);
    guarded.faults.script("PutItem", [Fault::Pass, late.fault()]);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "unavailable");
    (request, late)
}

// T47
#[apply(on_each_store)]
async fn a_take_over_that_lands_late_is_taken_back(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let (request, late) = held_take_over(&guarded).await;
    guarded.clock.slept(FIRST_BACKOFF, 1).await;
    guarded.clock.advance(FIRST_BACKOFF);
    // It has looked, and the record to be taken over is unchanged.
    guarded.clock.slept(FIRST_BACKOFF, 2).await;
    assert_eq!(late.release().await.status, 200);
    assert_eq!(guarded.state(&request).await, "in_progress");
    guarded.clock.advance(FIRST_BACKOFF);
    guarded.clock.no_sleepers().await;
    assert_eq!(guarded.state(&request).await, "failed_retryable");
    assert_eq!(owned(guarded.executor().reserve(&request).await).execution().attempts(), 2);
}

// T47, T6
#[apply(on_each_store)]
async fn a_take_over_of_a_changed_record_is_not_waited_for(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let (request, late) = held_take_over(&guarded).await;
    let theirs = owned(guarded.another(operation()).reserve(&request).await);
    let before = guarded.item(&request.key).await;
    guarded.clock.slept(FIRST_BACKOFF, 1).await;
    guarded.clock.advance(FIRST_BACKOFF);
    guarded.clock.no_sleepers().await;
    assert_eq!(late.release().await.status, 400);
    assert_eq!(guarded.item(&request.key).await, before);
    written(guarded.executor().finish(theirs, completed("theirs")).await);
}

// T9, T1: the first try was applied, and the SDK's retry conflicts with a transaction.
#[apply(on_each_store)]
async fn a_reservation_that_conflicted_after_it_landed_is_taken_back(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(2)).await;
    let (executor, request) = (guarded.executor(), request());
    guarded.faults.script("PutItem", [Fault::DropAnswer, Fault::TransactionConflict]);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight");
    assert_eq!((guarded.faults.left(), guarded.state(&request).await), (0, "in_progress"));
    guarded.clock.slept(FIRST_BACKOFF, 1).await;
    guarded.clock.advance(FIRST_BACKOFF);
    guarded.clock.no_sleepers().await;
    assert_eq!(owned(executor.reserve(&request).await).execution().attempts(), 1);
}

// T17, T47: its first try was throttled, which says more than no answer.
#[apply(on_each_store)]
async fn a_reservation_that_lands_after_a_throttled_try_is_taken_back(endpoint: &str) {
    // The last try says as little as the second, or more.
    for last in [Fault::DropAnswer, Fault::Throttle] {
        let guarded = Guarded::through(endpoint, |connect| connect).await;
        let (executor, request) = (guarded.executor(), request());
        guarded.faults.script("PutItem", [Fault::Throttle, Fault::DropAnswer, last]);
        let reserved = guarded.clock.passing(executor.reserve(&request)).await;
        assert_eq!((outcome_of(&reserved), guarded.faults.left()), ("unavailable", 0));
        // Before its caller is answered.
        assert_eq!(guarded.state(&request).await, "failed_retryable");
        assert_eq!(owned(executor.reserve(&request).await).execution().attempts(), 1);
    }
}

// T38, T47
#[apply(on_each_store)]
async fn a_throttling_or_refusing_store_is_asked_only_once_more(endpoint: &str) {
    for (fault, told) in [(Fault::Throttle, "throttled"), (Fault::AccessDenied, "unavailable")] {
        for only_once in [true, false] {
            let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
            if only_once {
                guarded.faults.script("PutItem", [fault.clone()]);
            } else {
                guarded.faults.for_all("PutItem", fault.clone());
            }
            assert_eq!(outcome_of(&guarded.executor().reserve(&request()).await), told);
            assert_eq!(guarded.faults.asked("PutItem"), 1);
            guarded.clock.slept(FIRST_BACKOFF, 1).await;
            // Longer than any completion timeout, in the steps of the backoff.
            for step in [50, 200, 800, 3_200, 5_000, 10_000, 10_000] {
                guarded.clock.advance(Duration::from_millis(step));
                guarded.clock.no_sleepers().await;
            }
            assert_eq!(
                (guarded.faults.asked("PutItem"), guarded.faults.asked("GetItem")),
                (2, 0),
                "{fault:?}"
            );
        }
    }
}

// T47: an insertion lands between two looks.
#[apply(on_each_store)]
async fn a_reservation_that_lands_between_two_looks_is_taken_back(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let (executor, request, late) = (guarded.executor(), request(), Late::timing_out());
    guarded.faults.script("PutItem", [late.fault()]);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "unavailable");
    guarded.clock.slept(FIRST_BACKOFF, 1).await;
    guarded.clock.advance(FIRST_BACKOFF);
    // The first look found nothing.
    guarded.clock.slept(FIRST_BACKOFF, 2).await;
    assert_eq!((late.release().await.status, guarded.state(&request).await), (200, "in_progress"));
    guarded.clock.advance(FIRST_BACKOFF);
    guarded.clock.no_sleepers().await;
    assert_eq!(owned(executor.reserve(&request).await).execution().attempts(), 1);
}

// T39: it landed unseen, other workers expired its lease, and its own retry finds the record in that state.
#[apply(on_each_store)]
async fn a_reservation_that_others_have_expired_meanwhile_is_taken_back(endpoint: &str) {
    let guarded = Arc::new(Guarded::through(endpoint, |connect| connect.max_attempts(1)).await);
    let (world, request) = (guarded.clone(), request());
    let again = request.clone();
    let frozen = Frozen::new(&guarded, async move {
        Meanwhile::Frozen.pass(&world, LEASE + GRACE);
        assert_eq!(outcome_of(&world.another(operation()).reserve(&again).await), "unknown");
        world.clock.set(world.now().minus(LEASE + GRACE));
    })
    .sent_again();
    let resumed = Executor::new(Meddled(frozen), operation()).world(guarded.clock.clone());
    assert_eq!(outcome_of(&resumed.reserve(&request).await), "too late");
    in_time(async { while guarded.state(&request).await != "failed_retryable" {} }).await;
    assert_eq!(owned(guarded.executor().reserve(&request).await).execution().attempts(), 1);
}

// T39: the client gets the same answer as if the store did not respond.
#[apply(on_each_store)]
async fn a_request_that_comes_too_late_gets_a_503_and_runs_nothing(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let runs = Counter::default();
    let counter = runs.clone();
    let operation = Operation::new(PAY).min_time_to_run(10 * SECOND);
    let app = api(guard_of(guarded.store(), operation).world(guarded.clock.clone()), move |_, _| {
        counter.add();
        async { "paid" }
    });
    let within = |span: Duration| {
        let mut context = Context::default();
        context.deadline = guarded.now().plus(span).as_millis();
        pay("order-1").with_lambda_context(context)
    };
    let (refused, _) = counting(send(&app, within(9 * SECOND))).await;
    refused.assert_problem(503, "store-unavailable");
    assert!(refused.header("retry-after").is_some());
    assert_eq!((runs.count(), guarded.number_of_items().await), (0, 0));
    let first = send(&app, within(29 * SECOND)).await;
    assert_eq!((first.status, runs.count()), (200, 1));
    // A known answer is replayed, even if little time is left.
    send(&app, within(SECOND)).await.assert_replay_of(&first);
}

#[apply(on_each_store)]
async fn late_requests_and_old_keys_are_counted(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor_of(operation().min_time_to_run(10 * SECOND));
    let late = due_in(&guarded, 9 * SECOND);
    let (reserved, counted) = counting(executor.reserve(&late)).await;
    assert_eq!(
        (outcome_of(&reserved), counted.get("api.idempotency.reserve.too_late.count")),
        ("too late", Some(&1))
    );
    let old = Request { admission: too_old(), ..request() };
    let (reserved, counted) = counting(executor.reserve(&old)).await;
    let count = counted.get("api.idempotency.reserve.too_old.count");
    assert_eq!((outcome_of(&reserved), count), ("may not begin", Some(&1)));
}

// T52: even if the answer was lost and the executor finds its own write. The expiry is not undone.
#[apply(on_each_store)]
async fn the_writer_of_an_expiry_owns_nothing(endpoint: &str) {
    for (attempts, faults, expected) in [
        (2, vec![], "unknown"),
        (2, vec![Fault::Pass, Fault::DropAnswer], "unknown"),
        (1, vec![Fault::Pass, Fault::DropAnswer], "unavailable"),
    ] {
        let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(attempts)).await;
        let (executor, request) = (guarded.executor(), request());
        let dead = owned(executor.reserve(&request).await);
        guarded.clock.advance(LEASE + GRACE);
        guarded.faults.script("PutItem", faults);
        assert_eq!(outcome_of(&executor.reserve(&request).await), expected);
        assert_eq!(guarded.faults.left(), 0);
        tokio::task::yield_now().await;
        for _ in 0..3 {
            guarded.clock.advance(FIRST_BACKOFF);
            guarded.clock.no_sleepers().await;
        }
        let record = guarded.record(&request.key).await.expect("a record");
        assert_eq!((record.state.name(), record.attempt), ("unknown", dead.execution().attempt()));
        assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown");
    }
}

// T48
#[apply(on_each_store)]
async fn a_probe_that_is_throttled_closes_the_breaker(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let executor = guarded.executor();
    // Each reservation, and each try to take it back at once.
    guarded.faults.script("PutItem", vec![Fault::Status(503); 10]);
    for _ in 0..6 {
        assert_eq!(outcome_of(&executor.reserve(&request()).await), "unavailable");
    }
    assert_eq!(guarded.faults.asked("PutItem"), 10, "the breaker is open");
    // Taking reservations back needs the store too. That has ended by then.
    guarded.clock.slept(FIRST_BACKOFF, 5).await;
    guarded.clock.advance(20 * SECOND);
    guarded.clock.no_sleepers().await;
    guarded.clock.advance(2 * SECOND);
    // The probe is a request with a hot key. Throttling is an answer of the store.
    guarded.faults.script("PutItem", [Fault::Throttle]);
    assert_eq!(outcome_of(&executor.reserve(&request()).await), "throttled");
    for _ in 0..10 {
        assert_eq!(outcome_of(&executor.reserve(&request()).await), "owned");
    }
}

// T48
#[apply(on_each_store)]
async fn an_impatient_caller_does_not_open_the_breaker(endpoint: &str) {
    let second_and_a_half = Duration::from_millis(1500);
    for (whole, opens) in [(second_and_a_half, false), (2 * SECOND, true), (60 * SECOND, true)] {
        let guarded = Guarded::on(endpoint).await;
        let executor = guarded.executor();
        let waits = (whole - Duration::from_millis(300)).min(STORE_TIMEOUT);
        for number in 1..=5 {
            let (request, late) = (due_in(&guarded, whole), Late::hanging());
            guarded.faults.script("PutItem", [late.fault()]);
            let time_passes = async {
                late.held(1).await;
                guarded.clock.slept(waits.min(STORE_TRY), number).await;
                guarded.clock.advance(waits);
            };
            let (reserved, ()) = tokio::join!(executor.reserve(&request), time_passes);
            assert_eq!(outcome_of(&reserved), "unavailable");
        }
        let expected = if opens { "unavailable" } else { "owned" };
        assert_eq!(outcome_of(&executor.reserve(&request()).await), expected, "{whole:?}");
    }
}

// T51
#[apply(on_each_store)]
async fn a_step_of_the_wall_clock_neither_ends_nor_prolongs_a_wait(endpoint: &str) {
    let guarded = Arc::new(Guarded::on(endpoint).await);
    let (hour, bound) = (3600 * SECOND, FIRST_BACKOFF * 3);
    // In both directions of the clock step, the record stays with its worker.
    let long = operation().lease(hour * 10);
    for forward in [true, false] {
        let (first, request, began) = (guarded.another(long.clone()), request(), guarded.now());
        let _ours = owned(first.reserve(&request).await);
        let world = guarded.clone();
        // After it has begun to wait.
        let steps = Frozen::new(&guarded, async move {
            world.clock.set(if forward { began.plus(hour) } else { began.minus(hour) });
        });
        let waits = long.clone().while_in_flight(WhileInFlight::Wait(bound));
        let executor = Executor::new(Meddled(steps), waits).world(guarded.clock.clone());
        let running = guarded.clock.running();
        let reserved = in_time(guarded.clock.passing(executor.reserve(&request))).await;
        assert_eq!(
            (outcome_of(&reserved), guarded.clock.running() - running),
            ("in flight", bound),
            "{forward}"
        );
        guarded.clock.set(began);
    }
}

// T52: an operation that may run again is taken over, and then the executor owns it.
#[tokio::test]
async fn a_take_over_after_the_executors_own_expiry_is_a_new_attempt() {
    let guarded = Guarded::on(crate::support::embedded::endpoint()).await;
    let (expires, request) = (guarded.executor(), request());
    let dead = owned(expires.reserve(&request).await);
    guarded.clock.advance(LEASE + GRACE);
    assert_eq!(outcome_of(&expires.reserve(&request).await), "unknown");
    let runs_again = guarded.executor_of(operation().on_lease_expiry(OnLeaseExpiry::RunAgain));
    let ours = owned(runs_again.reserve(&request).await);
    assert_ne!(ours.execution().attempt(), dead.execution().attempt());
    assert_eq!(ours.execution().attempts(), 2);
}
