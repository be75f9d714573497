//! Accepted work of a tenant that operators have stopped: it is executed, or it waits for as long as they say.

use std::sync::Arc;

use axum::http::StatusCode;
use lambda_idempotency::{
    Finding,
    bounds::Bounds,
    engine::CallError,
    operation::Operation,
    operator::{TenantChange, TenantOperator},
    record::{Answer, State},
    store::Stop,
    time_budget::RULES_FOR,
};
use macro_rules_attribute::apply;
use serde_json::json;
use tokio::sync::Barrier;

use super::{BOUND, MINUTE, Reports, executed::reconciled, operation, report};
use crate::support::{
    faults::Fault,
    guarded::Guarded,
    http::{Counter, Gate, TENANT, execution, guard_of, tenant},
    on_each_store,
};

const REPORT: &str = r#""report""#;

const STOPS: [Stop; 2] = [Stop::New, Stop::NewAndWork];

/// Work that may be executed once, accepted under the key `r-1`.
async fn accepted(endpoint: &str, body: &str) -> Reports {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let reports = Reports::of(guarded, operation().max_attempts(1));
    assert_eq!(reports.post("r-1", body).await.status, 202);
    reports
}

/// Another process with these records. It has read no rules yet.
fn process(reports: &Reports) -> Reports {
    let runs = reports.runs.clone();
    reports.guarded_by(guard(reports), move |parts, body| {
        runs.add();
        report(parts, body)
    })
}

fn guard(reports: &Reports) -> crate::support::http::Guard {
    let store = reports.guarded.store();
    guard_of(store.clone(), reports.operation.clone()).bounds(Bounds::of(store))
}

/// Changes the tenant's rule as the command does. What processes have read before is too old then.
async fn change(reports: &Reports, change: TenantChange) {
    let (store, clock) = (reports.guarded.undisturbed_store(), reports.guarded.clock.clone());
    let operator = TenantOperator::new(store).world(clock.clone());
    let seen = operator.rules().await.expect("the store answers");
    let changed = operator.change(seen.as_ref(), &tenant(TENANT), &change, "olga", "INC-17").await;
    changed.expect("it is written");
    clock.advance(RULES_FOR);
}

/// Fails unless the work waits, as if no worker had ever come to it.
#[track_caller]
fn assert_waits(reports: &Reports, (state, attempts): (State, u32)) {
    assert_eq!((state, attempts), (State::Pending { released_by: None }, 0), "it counts as no execution");
    let [(_, hidden)] = &reports.queue.take_hidden()[..] else { panic!("it is hidden") };
    assert!((MINUTE * 3 / 4..=30 * MINUTE).contains(hidden), "{hidden:?}");
    assert_eq!((reports.runs.count(), reports.queue.take_dead().len()), (0, 0));
}

async fn seen(reports: &Reports) -> (State, u32) {
    let record = reports.record("r-1").await;
    (record.state, record.attempts)
}

/// By a worker that knows the stop, and by one that reads it now.
#[apply(on_each_store)]
async fn accepted_work_of_a_stopped_tenant_is_executed(endpoint: &str) {
    for knows in [true, false] {
        let reports = accepted(endpoint, REPORT).await;
        let asked = reports.asked("r-1").await;
        change(&reports, TenantChange::Stop(Stop::New)).await;
        let worker = process(&reports);
        if knows {
            worker.post("r-2", REPORT).await.assert_problem(403, "tenant-stopped");
        }
        assert_eq!(worker.post("r-1", REPORT).await.status, 202, "it is accepted already");
        assert!(worker.work(&asked).await);
        assert_eq!((worker.runs.count(), worker.polled("r-1").await.status), (1, 201));
        worker.post("r-2", REPORT).await.assert_problem(403, "tenant-stopped");
    }
}

#[apply(on_each_store)]
async fn stopped_work_waits_uncounted_and_runs_once_after_a_resume(endpoint: &str) {
    let reports = accepted(endpoint, REPORT).await;
    let asked = reports.asked("r-1").await;
    change(&reports, TenantChange::Stop(Stop::NewAndWork)).await;
    let worker = process(&reports);
    // First it does not know the stop. It reads its request and its record, and claims that while it reads the rules: the claim is taken back.
    let gate = Arc::new(Barrier::new(2));
    reports.guarded.faults.script("GetItem", [Fault::Pass, Fault::Pass, Fault::Meet(gate.clone())]);
    reports.guarded.faults.script("PutItem", [Fault::Meet(gate)]);
    for times in [1, 2, 19, 400] {
        assert!(!worker.received(&asked, times).await);
        assert_waits(&worker, seen(&worker).await);
    }
    assert_eq!(reports.guarded.faults.left(), 0);
    change(&reports, TenantChange::Resume).await;
    for times in [401, 402] {
        assert!(worker.received(&asked, times).await);
        let answer = worker.polled("r-1").await;
        assert_eq!((answer.status, &answer.json()["attempts"]), (201, &json!(1)));
        assert_eq!(
            (worker.runs.count(), worker.queue.take_dead().len(), worker.items("r-1").await),
            (1, 0, 1)
        );
    }
}

/// Operators may have stopped its tenant.
#[apply(on_each_store)]
async fn work_whose_tenants_rules_cannot_be_read_waits_uncounted(endpoint: &str) {
    let reports = accepted(endpoint, REPORT).await;
    let (worker, asked) = (process(&reports), reports.asked("r-1").await);
    reports.guarded.faults.script("GetItem", [Fault::Pass, Fault::Pass, Fault::DropRequest]);
    assert!(!worker.received(&asked, 19).await);
    assert_eq!(reports.guarded.faults.left(), 0);
    assert_eq!(seen(&worker).await, (State::Pending { released_by: None }, 0));
    assert_eq!((worker.runs.count(), worker.queue.take_dead().len()), (0, 0));
    reports.guarded.clock.advance(RULES_FOR);
    assert!(worker.work(&asked).await);
    assert_eq!((worker.runs.count(), worker.polled("r-1").await.status), (1, 201));
}

#[apply(on_each_store)]
async fn stopped_work_that_waits_too_long_ends_with_408(endpoint: &str) {
    let reports = accepted(endpoint, REPORT).await;
    let asked = reports.asked("r-1").await;
    change(&reports, TenantChange::Stop(Stop::NewAndWork)).await;
    let worker = process(&reports);
    assert!(!worker.work(&asked).await);
    worker.guarded.clock.advance(BOUND);
    assert!(worker.work(&asked).await);
    worker.polled("r-1").await.assert_problem(408, "operation-abandoned");
    assert_eq!(worker.runs.count(), 0);
}

#[apply(on_each_store)]
async fn work_in_progress_ends_although_its_tenant_is_stopped(endpoint: &str) {
    for stop in STOPS {
        let reports = accepted(endpoint, REPORT).await;
        let (asked, gate) = (reports.asked("r-1").await, Gate::closed());
        let held = gate.clone();
        let worker = reports.guarded_by(guard(&reports), move |parts, body| {
            let held = held.clone();
            async move {
                held.pass().await;
                report(parts, body).await
            }
        });
        let task = tokio::spawn(async move { worker.work(&asked).await });
        gate.reached(1).await;
        change(&reports, TenantChange::Stop(stop)).await;
        gate.open();
        assert!(task.await.expect("it ends"));
        assert_eq!(reports.polled("r-1").await.status, 201, "{stop:?}");
    }
}

#[apply(on_each_store)]
async fn unknown_work_of_a_stopped_tenant_is_settled(endpoint: &str) {
    for stop in STOPS {
        let reports = accepted(endpoint, r#""perhaps""#).await;
        let (worker, asked) = (process(&reports), reports.asked("r-1").await);
        assert!(!worker.work(&asked).await);
        change(&reports, TenantChange::Stop(stop)).await;
        assert!(!worker.work(&asked).await, "it is held");
        assert_eq!((worker.runs.count(), worker.state("r-1").await), (1, "unknown"));
        reconciled(&reports, Finding::Executed(Answer::json(201, r#"{"found":true}"#))).await;
        assert!(worker.work(&asked).await);
        assert_eq!(worker.polled("r-1").await.json(), json!({ "found": true }), "{stop:?}");
        assert_eq!((worker.runs.count(), worker.queue.take_dead().len()), (1, 0));
    }
}

/// What the provider denies runs from its beginning. That waits with `--work` alone.
#[apply(on_each_store)]
async fn denied_work_of_a_stopped_tenant_runs_again_unless_it_waits(endpoint: &str) {
    for (stop, runs) in [(Stop::New, 2), (Stop::NewAndWork, 1)] {
        let reports = Reports::on(endpoint).await;
        assert_eq!(reports.post("r-1", r#""perhaps""#).await.status, 202);
        let (worker, asked) = (process(&reports), reports.asked("r-1").await);
        assert!(!worker.work(&asked).await);
        change(&reports, TenantChange::Stop(stop)).await;
        reconciled(&reports, Finding::NotExecuted).await;
        assert!(!worker.work(&asked).await);
        assert_eq!(
            (worker.runs.count(), worker.record("r-1").await.attempts),
            (runs, runs as u32),
            "{stop:?}"
        );
        assert_eq!(worker.queue.take_dead().len(), 0);
    }
}

/// A part of it is done: to leave it so could do harm.
#[apply(on_each_store)]
async fn interrupted_work_of_a_stopped_tenant_resumes(endpoint: &str) {
    for stop in STOPS {
        let resumes =
            Operation::new(crate::support::http::PAY).asynchronous(BOUND).resumes(["charge"], BOUND);
        let reports = Reports::of(Guarded::on(endpoint).await, resumes);
        reports.post("r-1", REPORT).await;
        let (asked, charges, runs) = (reports.asked("r-1").await, Counter::default(), Counter::default());
        let (charged, counted) = (charges.clone(), runs.clone());
        let worker = reports.guarded_by(guard(&reports), move |parts, _| {
            let (charges, execution, run) = (charged.clone(), execution(&parts).clone(), counted.add());
            async move {
                let charge = execution.phase("charge").keys_live(BOUND);
                charge.call(|_| async move { Ok::<_, CallError>(charges.add()) }).await.expect("it is kept");
                if run == 1 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::CREATED }
            }
        });
        assert!(!worker.work(&asked).await);
        assert_eq!(worker.state("r-1").await, "between_workers");
        change(&reports, TenantChange::Stop(stop)).await;
        assert!(worker.work(&asked).await, "{stop:?}");
        assert_eq!((runs.count(), charges.count(), worker.polled("r-1").await.status), (2, 1, 201));
    }
}
