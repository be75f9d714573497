//! The operators' brake: nothing new begins for a stopped tenant, anywhere, once that is known.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::{
    Failure, Guard, Operation, RunError,
    engine::Executor,
    key::Tenant,
    operation::OnLeaseExpiry,
    record::State,
    telemetry::{RESERVE_CREATED, RESERVE_STOPPED, STORE_ERROR},
};
use macro_rules_attribute::apply;
use tokio::sync::Barrier;

use super::*;
use crate::support::{
    counts::counting,
    faults::Fault,
    guarded::{GRACE, Item, LEASE, outcome_of, owned, request},
    http::{order, pay, record, send},
    on_each_store,
};

#[apply(on_each_store)]
async fn a_stop_is_known_once_the_rules_are_too_old(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let (app, store) = (app(&guarded, Bounds::of(guarded.store()), &runs), guarded.undisturbed_store());
    let first = send(&app, pay("k-1")).await;
    let fails = || order("k-2").body("\"fails\"".into()).unwrap();
    assert_eq!(send(&app, fails()).await.status, 503);
    set(&store, stopped(Stop::New)).await;
    outdate(&guarded);
    // This one is reserved while the rules are read: its handler does not begin.
    let (refused, counts) = counting(send(&app, pay("k-3"))).await;
    refused.assert_problem(403, "tenant-stopped");
    assert_eq!((refused.header("retry-after"), counts[RESERVE_STOPPED]), (Some("300"), 1));
    assert!(!counts.contains_key(STORE_ERROR) && !counts.contains_key(RESERVE_CREATED), "{counts:?}");
    // This one is known to be stopped before.
    send(&app, pay("k-4")).await.assert_problem(403, "tenant-stopped");
    assert!(!is_recorded(&store, "k-4").await);
    // What was released does not run again; what is completed is replayed.
    send(&app, fails()).await.assert_problem(403, "tenant-stopped");
    send(&app, pay("k-1")).await.assert_replay_of(&first);
    assert_eq!(runs.count(), 2);
    // Nothing is left of the one that was reserved: it counts as no execution.
    let taken_back = record(&store, "k-3").await.expect("a record");
    assert!(matches!(taken_back.state, State::FailedRetryable { .. }), "{taken_back:?}");
    set(&store, TenantRule::default()).await;
    outdate(&guarded);
    assert_eq!(send(&app, pay("k-3")).await.status, 201);
    let executed = record(&store, "k-3").await.expect("a record");
    assert_eq!((executed.state.name(), executed.attempts), ("completed", 1));
}

#[apply(on_each_store)]
async fn a_process_without_rules_begins_nothing_of_a_stopped_tenant(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    set(&guarded.undisturbed_store(), stopped(Stop::New)).await;
    let app = app(&guarded, Bounds::of(guarded.store()), &runs);
    guarded.faults.for_all("GetItem", Fault::DropRequest);
    let answer = guarded.clock.passing(send(&app, pay("k-1"))).await;
    answer.assert_problem(503, "store-unavailable");
    guarded.faults.clear();
    // What has just failed is not read again at once, and nothing is reserved meanwhile.
    send(&app, pay("k-2")).await.assert_problem(503, "store-unavailable");
    assert!(!is_recorded(&guarded.undisturbed_store(), "k-2").await);
    guarded.clock.advance(std::time::Duration::from_secs(1));
    send(&app, pay("k-1")).await.assert_problem(403, "tenant-stopped");
    assert_eq!(runs.count(), 0);
}

#[apply(on_each_store)]
async fn rules_that_were_read_are_used_for_ten_seconds_at_most(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let runs = Counter::default();
    let app = app(&guarded, Bounds::of(guarded.store()), &runs);
    assert_eq!(send(&app, pay("k-1")).await.status, 201);
    guarded.faults.for_all("GetItem", Fault::DropRequest);
    outdate(&guarded);
    // They cannot be read again, and then that is not tried for a second.
    for key in ["k-2", "k-3"] {
        assert_eq!(send(&app, pay(key)).await.status, 201);
    }
    outdate(&guarded);
    for key in ["k-4", "k-5"] {
        send(&app, pay(key)).await.assert_problem(503, "store-unavailable");
    }
    assert_eq!(runs.count(), 3);
}

#[apply(on_each_store)]
async fn a_single_transaction_without_rules_commits_nothing(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let guard = guard_of(guarded.store(), Operation::new(PAY)).single_transaction();
    let guard = guard.world(guarded.clock.clone()).bounds(Bounds::of(guarded.store()));
    let app = api(guard, |_, _| async { StatusCode::CREATED });
    // That of the rules. The next one is of the record.
    guarded.faults.script("GetItem", [Fault::DropRequest]);
    send(&app, pay("k-1")).await.assert_problem(503, "store-unavailable");
    assert!(!is_recorded(&guarded.undisturbed_store(), "k-1").await);
    assert_eq!(guarded.faults.left(), 0);
    outdate(&guarded);
    assert_eq!(send(&app, pay("k-1")).await.status, 201);
}

/// It is sent again for as long as that, and not for as long as its operation could wait.
#[apply(on_each_store)]
async fn a_transaction_is_not_sent_longer_than_its_rules_hold(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let operation = Operation::new(PAY).completion_timeout(4 * RULES_FOR);
    let guard = guard_of(guarded.store(), operation).single_transaction();
    let guard = guard.world(guarded.clock.clone()).bounds(Bounds::of(guarded.store()));
    let app = api(guard, |_, _| async { StatusCode::CREATED });
    guarded.faults.for_all("TransactWriteItems", Fault::DropRequest);
    guarded.faults.for_all("PutItem", Fault::DropRequest);
    let began = guarded.now();
    let answer = guarded.clock.passing(send(&app, pay("k-1"))).await;
    answer.assert_problem(503, "outcome-unknown");
    assert!(guarded.now().since(began) < 3 * RULES_FOR, "{:?}", guarded.now().since(began));
}

#[apply(on_each_store)]
async fn rules_that_this_version_cannot_read_stop_nobody(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let store = guarded.undisturbed_store();
    let app = app(&guarded, Bounds::of(guarded.store()), &runs);
    set(&store, stopped(Stop::New)).await;
    let written: Item = guarded.items("tenant-rules").await.pop().expect("behind its audit lines");
    let spoil = async |name: &str, value: AttributeValue| {
        let mut item = written.clone();
        item.insert(name.to_owned(), value);
        guarded.write_raw(item).await;
    };
    spoil("schema", AttributeValue::N("999".into())).await;
    // An alarm looks at that.
    let (answer, counts) = counting(send(&app, pay("k-1"))).await;
    assert_eq!((answer.status, counts[STORE_ERROR]), (201, 1));
    guarded.write_raw(written.clone()).await;
    outdate(&guarded);
    send(&app, pay("k-2")).await.assert_problem(403, "tenant-stopped");
    // Those before them apply.
    spoil("tenants", AttributeValue::S("no JSON".into())).await;
    outdate(&guarded);
    send(&app, pay("k-3")).await.assert_problem(403, "tenant-stopped");
}

#[apply(on_each_store)]
async fn rules_beyond_64_kb_are_not_written(endpoint: &str) {
    let store = Guarded::on(endpoint).await.undisturbed_store();
    let tenants = (0..1_000).map(|number| (format!("{number:0100}"), stopped(Stop::New))).collect();
    let rules = TenantRules { revision: fresh(), tenants };
    let line = AuditLine::new(["op", "stop", "a test"], fresh_time(), None, None);
    let error = store.write_rules(None, &rules, &line).await.unwrap_err();
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(cause.contains("64 KB"), "{cause}");
    assert_eq!(store.rules().await.unwrap(), None);
}

#[apply(on_each_store)]
async fn a_function_of_a_stopped_tenant_does_not_run(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    set(&guarded.undisturbed_store(), stopped(Stop::New)).await;
    let guard = Guard::new(guarded.store(), Operation::new(PAY), tenant(TENANT))
        .world(guarded.clock.clone())
        .bounds(Bounds::of(guarded.store()));
    for _ in 0..2 {
        let ran = guard.run(&["k-1"], (), async |_, ()| Ok::<_, Failure>(())).await;
        assert!(matches!(ran, Err(RunError::Stopped)), "{ran:?}");
    }
}

#[apply(on_each_store)]
async fn a_single_transaction_of_a_stopped_tenant_commits_nothing(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    set(&guarded.undisturbed_store(), stopped(Stop::New)).await;
    let guard = guard_of(guarded.store(), Operation::new(PAY)).single_transaction();
    let guard = guard.world(guarded.clock.clone()).bounds(Bounds::of(guarded.store()));
    let app = api(guard, |_, _| async { StatusCode::CREATED });
    for _ in 0..2 {
        send(&app, pay("k-1")).await.assert_problem(403, "tenant-stopped");
    }
    assert!(!is_recorded(&guarded.undisturbed_store(), "k-1").await);
}

/// Stops this tenant, and its accepted work.
async fn stop(guarded: &Guarded, tenant: &Tenant) {
    let rules = TenantRules { revision: fresh(), tenants: [].into() };
    let stopped = rules.with(tenant, stopped(Stop::NewAndWork));
    let line = AuditLine::new(["op", "stop", "a test"], fresh_time(), None, None);
    assert!(guarded.undisturbed_store().write_rules(None, &stopped, &line).await.unwrap());
}

/// By a process that reads the rules beside its reservation. It would run from its beginning, and is taken back.
#[apply(on_each_store)]
async fn a_dead_workers_operation_does_not_run_again_for_a_stopped_tenant(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let runs_again = || crate::support::guarded::operation().on_lease_expiry(OnLeaseExpiry::RunAgain);
    let request = request();
    let _dead = owned(guarded.executor_of(runs_again()).reserve(&request).await);
    guarded.clock.advance(LEASE + GRACE);
    stop(&guarded, request.key.tenant()).await;
    let another = guarded.executor_of(runs_again()).bounds(Bounds::of(guarded.store()));
    // The rules do not arrive before it has decided: an insert is refused, and the next write takes over.
    let gate = Arc::new(Barrier::new(2));
    guarded.faults.script("PutItem", [Fault::Pass, Fault::Meet(gate.clone())]);
    guarded.faults.script("GetItem", [Fault::Meet(gate)]);
    assert_eq!(outcome_of(&another.reserve(&request).await), "stopped");
    assert_eq!(guarded.faults.left(), 0);
    // It did nothing, but the dead worker perhaps did: that is unknown once the lease is over, as it was.
    let waits = guarded.record(&request.key).await.expect("a record");
    assert_eq!((waits.state.name(), waits.attempts), ("in_progress", 2));
    guarded.clock.advance(LEASE + GRACE);
    assert_eq!(outcome_of(&another.reserve(&request).await), "unknown");
}

/// By a process that knows the stop before it decides: the lease ends, and the outcome is unknown until the tenant may go on.
#[apply(on_each_store)]
async fn a_dead_workers_operation_runs_again_once_its_tenant_resumes(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let runs_again = || crate::support::guarded::operation().on_lease_expiry(OnLeaseExpiry::RunAgain);
    let request = request();
    let _dead = owned(guarded.executor_of(runs_again()).reserve(&request).await);
    guarded.clock.advance(LEASE + GRACE);
    stop(&guarded, request.key.tenant()).await;
    let another = guarded.executor_of(runs_again()).bounds(Bounds::of(guarded.store()));
    let other = lambda_idempotency::engine::Request {
        key: crate::support::guarded::record_key(request.key.tenant().as_str(), "other"),
        ..request.clone()
    };
    assert_eq!(outcome_of(&another.reserve(&other).await), "stopped");
    assert_eq!(outcome_of(&another.reserve(&request).await), "unknown");
    let going_on = guarded.executor_of(runs_again());
    assert_eq!(outcome_of(&going_on.reserve(&request).await), "owned");
}

/// An operation that was interrupted resumes although its tenant is stopped: a process whose rules are fresh, and one that reads them now.
#[apply(on_each_store)]
async fn what_is_interrupted_resumes_for_a_stopped_tenant(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let operation = || crate::support::guarded::operation().resumes(["charge"], MINUTE);
    let executor = || {
        Executor::new(guarded.store(), operation())
            .world(guarded.clock.clone())
            .bounds(Bounds::of(guarded.store()))
    };
    let request = request();
    let ours = owned(executor().reserve(&request).await);
    let kept = ours.execution().phase("charge").call(async |_| Ok(1)).await;
    kept.expect("a result");
    let interrupted = lambda_idempotency::engine::Report::NotExecuted(None);
    executor().finish(ours, interrupted).await;
    stop(&guarded, request.key.tenant()).await;
    let resumed = executor().reserve(&request).await;
    assert_eq!(outcome_of(&resumed), "owned");
    let other = lambda_idempotency::engine::Request {
        key: crate::support::guarded::record_key(request.key.tenant().as_str(), "other"),
        ..request
    };
    assert_eq!(outcome_of(&executor().reserve(&other).await), "stopped");
}
