//! What a tenant gets that is over a bound, and what it costs to know.

use lambda_idempotency::{
    Failure, Guard, Operation, RunError,
    bounds::Rate,
    record::UnknownCause,
    store::conformance::samples,
    telemetry::{RESERVE_CREATED, RESERVE_OVER_BOUND},
};
use macro_rules_attribute::apply;

use super::*;
use crate::support::{
    counts::counting,
    embedded,
    faults::Fault,
    guarded::{fingerprints, record_key},
    http::{order, pay, pay_other, send},
    on_each_store,
};

/// One in a minute, and two at once.
const FEW: Rate = Rate::per_minute(1).burst(2);

// T86
#[apply(on_each_store)]
async fn a_tenant_over_its_bound_gets_429_for_new_keys_alone(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let app = app(&guarded, Bounds::of(guarded.store()).new_keys(FEW), &runs);
    let fails = |key: &str| order(key).body("\"fails\"".into()).unwrap();
    let first = send(&app, pay("k-1")).await;
    assert_eq!(send(&app, fails("k-2")).await.status, 503);
    assert_eq!(send(&app, pay("k-3")).await.status, 201);
    let (over, counts) = counting(send(&app, pay("k-4"))).await;
    over.assert_problem(429, "over-bound");
    assert_eq!((over.header("retry-after"), counts[RESERVE_OVER_BOUND]), (Some("60"), 1));
    assert_eq!(over.header("ratelimit"), Some("\"new-operations\";r=0;t=60"));
    assert!(!is_recorded(&guarded.undisturbed_store(), "k-4").await);
    // What has a record is served.
    send(&app, pay("k-1")).await.assert_replay_of(&first);
    send(&app, pay_other("k-1")).await.assert_problem(422, "key-reused");
    let before = runs.count();
    assert_eq!(send(&app, fails("k-2")).await.status, 503);
    assert_eq!(runs.count(), before + 1, "what was released runs again");
    // Another tenant is as it was.
    let mut other = pay("k-4");
    other.extensions_mut().insert(tenant("other"));
    assert_eq!(send(&app, other).await.status, 201);
    // The bucket leaks.
    guarded.clock.advance(MINUTE);
    assert_eq!(send(&app, pay("k-4")).await.status, 201);
    send(&app, pay("k-5")).await.assert_problem(429, "over-bound");
}

#[apply(on_each_store)]
async fn a_bound_holds_for_all_processes_together(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let process = || app(&guarded, Bounds::of(guarded.store()).new_keys(FEW), &runs);
    let mut statuses = Vec::new();
    for number in 0..6 {
        statuses.push(send(&process(), pay(&format!("k-{number}"))).await.status);
    }
    // Each of these processes learns it by its first count.
    assert_eq!(statuses, [201; 6]);
    let last = process();
    assert_eq!(send(&last, pay("k-6")).await.status, 201);
    let over = send(&last, pay("k-7")).await;
    over.assert_problem(429, "over-bound");
    // It pays for all that was too much: five, by one in a minute.
    assert_eq!(over.header("retry-after"), Some("300"));
}

#[tokio::test]
async fn a_bound_costs_a_tenth_of_a_write_and_no_round_trip() {
    let (guarded, runs) = (Guarded::on(embedded::endpoint()).await, Counter::default());
    let app = app(&guarded, Bounds::of(guarded.store()).new_keys(Rate::per_minute(100)), &runs);
    send(&app, pay("first")).await;
    guarded.meter.reset();
    for number in 0..100 {
        assert_eq!(send(&app, pay(&format!("k-{number}"))).await.status, 201);
    }
    let used = guarded.meter.reading().total();
    // A reservation and a completion each, and each tenth is counted.
    assert_eq!((used.round_trips, used.billed_write_units()), (210, 210.0));
    guarded.meter.reset();
    for number in 0..100 {
        send(&app, pay(&format!("k-{number}"))).await;
    }
    assert_eq!(guarded.meter.reading().total().round_trips, 100, "a replay is not counted");
}

#[apply(on_each_store)]
async fn what_cannot_be_counted_is_admitted(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let app = app(&guarded, Bounds::of(guarded.store()).new_keys(FEW), &runs);
    guarded.faults.for_all("UpdateItem", Fault::Throttle);
    for number in 0..5 {
        let (answer, counts) = counting(send(&app, pay(&format!("k-{number}")))).await;
        assert_eq!((answer.status, counts[RESERVE_CREATED]), (201, 1));
    }
}

/// The count, or the look at the open records, is cut off. Its answer does not wait longer.
#[apply(on_each_store)]
async fn a_count_that_never_ends_holds_no_answer(endpoint: &str) {
    for request in ["UpdateItem", "Query"] {
        let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
        let bounds = Bounds::of(guarded.store());
        let bounds = if request == "Query" { bounds.open_records(3) } else { bounds.new_keys(FEW) };
        let app = app(&guarded, bounds, &runs);
        guarded.faults.for_all(request, Fault::BlackHole);
        // No other time passes.
        let answer = guarded.clock.through(&[Duration::from_secs(1)], send(&app, pay("k-1"))).await;
        assert_eq!(answer.status, 201, "{request}");
    }
}

#[apply(on_each_store)]
async fn operators_limits_replace_those_of_the_program(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let app = app(&guarded, Bounds::of(guarded.store()).new_keys(Rate::per_second(1_000)), &runs);
    set(&guarded.undisturbed_store(), limited(Limits { new_keys: Some(FEW), ..Limits::default() })).await;
    for number in 0..3 {
        assert_eq!(send(&app, pay(&format!("k-{number}"))).await.status, 201);
    }
    send(&app, pay("k-3")).await.assert_problem(429, "over-bound");
    set(&guarded.undisturbed_store(), TenantRule::default()).await;
    outdate(&guarded);
    assert_eq!(send(&app, pay("k-3")).await.status, 201);
}

#[apply(on_each_store)]
async fn too_many_open_records_end_what_is_new_of_each_operation(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let (store, now) = (guarded.undisturbed_store(), guarded.now());
    let open = async |tenant: &str, numbers: std::ops::Range<usize>| {
        for number in numbers {
            let key = record_key(tenant, &format!("open-{number}"));
            let began = samples::in_progress(key, fingerprints("{}"), now, now);
            let unknown = samples::unknown(&began, UnknownCause::PerhapsExecuted, now);
            store.put(None, &unknown, &[]).await.unwrap();
        }
    };
    let app = app(&guarded, Bounds::of(guarded.store()).open_records(3), &runs);
    open(TENANT, 0..2).await;
    open("other", 0..20).await;
    assert_eq!(send(&app, pay("k-1")).await.status, 201);
    open(TENANT, 2..3).await;
    // It looks each half minute.
    guarded.clock.advance(MINUTE);
    assert_eq!(send(&app, pay("k-2")).await.status, 201);
    let over = send(&app, pay("k-3")).await;
    over.assert_problem(429, "over-bound");
    assert_eq!(over.header("retry-after"), Some("30"));
    let settled = store.load(&record_key(TENANT, "open-0")).await.unwrap().unwrap();
    guarded.delete(&settled.key).await;
    guarded.clock.advance(MINUTE);
    assert_eq!(send(&app, pay("k-3")).await.status, 201);
    assert_eq!(send(&app, pay("k-4")).await.status, 201);
}

#[apply(on_each_store)]
async fn a_function_of_a_tenant_over_its_bound_does_not_run(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let guard = Guard::new(guarded.store(), Operation::new(PAY), tenant(TENANT))
        .world(guarded.clock.clone())
        .bounds(Bounds::of(guarded.store()).new_keys(FEW));
    let run = async |key: &str| guard.run(&[key], (), async |_, ()| Ok::<_, Failure>(1_u8)).await;
    for key in ["k-1", "k-2", "k-3"] {
        run(key).await.unwrap();
    }
    match run("k-4").await {
        Err(RunError::OverBound { wait }) => assert_eq!(wait, MINUTE),
        other => panic!("{:?}", other.map(|ran| ran.value)),
    }
    assert!(run("k-1").await.unwrap().how.is_replay());
}

#[apply(on_each_store)]
async fn a_single_transaction_over_its_bound_commits_nothing(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let guard = guard_of(guarded.store(), Operation::new(PAY)).single_transaction();
    let guard = guard.world(guarded.clock.clone()).bounds(Bounds::of(guarded.store()).new_keys(FEW));
    let counted = runs.clone();
    let app = api(guard, move |_, _| {
        counted.add();
        async { StatusCode::CREATED }
    });
    let first = send(&app, pay("k-1")).await;
    for key in ["k-2", "k-3"] {
        assert_eq!(send(&app, pay(key)).await.status, 201);
    }
    send(&app, pay("k-4")).await.assert_problem(429, "over-bound");
    assert_eq!(runs.count(), 3);
    send(&app, pay("k-1")).await.assert_replay_of(&first);
    guarded.clock.advance(MINUTE);
    assert_eq!(send(&app, pay("k-4")).await.status, 201);
}

#[apply(on_each_store)]
async fn accepted_bytes_are_bounded_besides_the_keys(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let operation = Operation::new(PAY).asynchronous(60 * MINUTE);
    let bounds = Bounds::of(guarded.store()).accepted_bytes(Rate::per_minute(1_000).burst(10_000));
    let guard = guard_of(guarded.store(), operation).world(guarded.clock.clone()).bounds(bounds);
    let app = api(guard, |_, _| async {});
    let large = |key: &str| order(key).body(format!("\"{}\"", "x".repeat(8_000)).into()).unwrap();
    assert_eq!(send(&app, large("k-1")).await.status, 202);
    assert_eq!(send(&app, large("k-2")).await.status, 202);
    send(&app, pay("k-3")).await.assert_problem(429, "over-bound");
    assert_eq!(send(&app, large("k-1")).await.status, 202, "it is accepted already");
}
