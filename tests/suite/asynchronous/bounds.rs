//! What ends accepted work that nobody executes any more: 408 if certainly nothing was done, operators otherwise.

use std::{sync::Arc, time::Duration};

use lambda_idempotency::{
    Finding, Operation,
    operation::OnLeaseExpiry,
    queue::MemoryQueue,
    record::{Answer, Head, State},
    stale::{CheckOutcome, Stale},
    telemetry::WORK_ABANDONED,
    time::Timestamp,
};
use macro_rules_attribute::apply;
use serde_json::json;
use tokio::sync::Barrier;

use super::{
    BOUND, MINUTE, Reports,
    executed::{reconciled, reconciliation},
    operation,
};
use crate::support::{
    clock::in_time, counts::counting, faults::Fault, guarded::Guarded, http::PAY, on_each_store,
};

/// Whether it waits for an operator.
async fn is_escalated(reports: &Reports) -> bool {
    matches!(reports.record("r-1").await.state, State::Unknown { reconcile_at: Timestamp::MAX, .. })
}

// T43, T68: "not found" is no proof. The effect may become visible later, and 408 would lead its client to a new key.
#[apply(on_each_store)]
async fn work_that_was_assumed_undone_never_ends_with_408(endpoint: &str) {
    for ends_by_attempts in [true, false] {
        let reports = Reports::on(endpoint).await;
        reports.post("r-1", r#""perhaps""#).await;
        let asked = reports.asked("r-1").await;
        assert!(!reports.work(&asked).await);
        reports.guarded.clock.advance(MINUTE * 20);
        reconciled(&reports, Finding::NotFound).await;
        assert_eq!(reports.state("r-1").await, "pending");
        if ends_by_attempts {
            // The next executions certainly do nothing: they speak for themselves alone.
            let quiet = reports.nothing();
            for _ in 0..2 {
                assert!(!quiet.work(&asked).await);
            }
        } else {
            reports.guarded.clock.advance(BOUND);
            assert!(!reports.work(&asked).await);
        }
        assert!(is_escalated(&reports).await, "{ends_by_attempts}");
        reports.post("r-1", r#""perhaps""#).await.assert_problem(409, "outcome-unknown");
        // An operator, or the effect itself, ends it.
        reconciled(&reports, Finding::Executed(Answer::json(201, "{}"))).await;
        assert_eq!(reports.polled("r-1").await.status, 201);
    }
}

// The provider speaks of every execution: all have one downstream key.
#[apply(on_each_store)]
async fn what_the_provider_denies_may_end_with_408(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""perhaps""#).await;
    let asked = reports.asked("r-1").await;
    assert!(!reports.work(&asked).await);
    reconciled(&reports, Finding::NotExecuted).await;
    reports.guarded.clock.advance(BOUND);
    assert!(reports.work(&asked).await);
    reports.polled("r-1").await.assert_problem(408, "operation-abandoned");
}

// T68: the process of each worker dies.
#[apply(on_each_store)]
async fn work_that_kills_its_workers_is_executed_no_more(endpoint: &str) {
    let again = operation().on_lease_expiry(OnLeaseExpiry::RunAgain);
    let reports = Reports::of(Guarded::on(endpoint).await, again);
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    for attempts in 1..=3 {
        let (dying, gate) = reports.hanging();
        let died = asked.clone();
        let task = tokio::spawn(async move { dying.work(&died).await });
        gate.reached(1).await;
        task.abort();
        assert_eq!(reports.record("r-1").await.attempts, attempts);
        reports.guarded.clock.advance(MINUTE * 2);
    }
    for _ in 0..2 {
        assert!(!reports.work(&asked).await);
        assert_eq!((reports.runs.count(), reports.state("r-1").await), (0, "unknown"));
    }
}

#[apply(on_each_store)]
async fn effects_in_a_transaction_end_with_408_by_certainty(endpoint: &str) {
    let reports = Reports::of(Guarded::on(endpoint).await, operation().effects_in_transaction());
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    for _ in 0..3 {
        let (dying, gate) = reports.hanging();
        let died = asked.clone();
        let task = tokio::spawn(async move { dying.work(&died).await });
        gate.reached(1).await;
        task.abort();
        // Its execution becomes a task of its own, which is polled once, and then never again: as if its process were dead.
        assert!(task.await.is_err_and(|ended| ended.is_cancelled()));
        tokio::task::yield_now().await;
        reports.guarded.clock.advance(MINUTE * 2);
    }
    // One is taken over by the next, which proves that it did nothing; the last is ended.
    let queues = [(); 3].map(|()| MemoryQueue::new());
    let [checks, sweeps, dead_letters] = queues;
    let stale = Stale::new(reports.guarded.store(), checks, sweeps, dead_letters);
    let stale = stale.world(reports.guarded.clock.clone());
    let checked = stale.check(&reports.key("r-1")).await.expect("the store answers");
    assert_eq!(checked, CheckOutcome::Abandoned);
    let State::Completed { answer, .. } = reports.record("r-1").await.state else { panic!("not completed") };
    assert_eq!((answer.head, reports.runs.count()), (Head::Abandoned, 0));
}

// The last execution did nothing, and cannot say so: its report waits in a queue.
#[apply(on_each_store)]
async fn a_deferred_report_of_the_last_execution_ends_the_work(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let once = operation().max_attempts(1).completion_timeout(Duration::ZERO);
    let (reports, queue) = (Reports::of(guarded, once), MemoryQueue::new());
    reports.post("r-1", r#""nothing""#).await;
    let asked = reports.asked("r-1").await;
    let lost = reports.deferring(queue.clone());
    let faults = reports.guarded.faults.clone();
    // The request, the record and the claim pass.
    faults.script("GetItem", [Fault::Pass, Fault::Pass]);
    faults.script("PutItem", [Fault::Pass, Fault::DropRequest]);
    assert!(!reports.guarded.clock.passing(lost.work(&asked)).await);
    assert_eq!(reports.state("r-1").await, "in_progress");
    let [(report, _)] = &queue.take()[..] else { panic!("not one report") };
    let reconciliation = reconciliation(&reports, Finding::NotFound);
    let (applied, counts) = counting(reconciliation.receive(report)).await;
    applied.expect("it is applied");
    assert_eq!(counts.get(WORK_ABANDONED), Some(&1));
    reports.polled("r-1").await.assert_problem(408, "operation-abandoned");
}

// T17, T68, T75: the table was slow, and no handler ran.
#[apply(on_each_store)]
async fn a_claim_that_is_taken_back_uses_up_no_attempt(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let reports = Reports::of(guarded, operation().max_attempts(1));
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    for _ in 0..2 {
        // The claim is applied, and its answer is lost.
        reports.guarded.faults.script("PutItem", [Fault::DropAnswer]);
        let taken_back = async {
            assert!(!reports.work(&asked).await);
            while reports.state("r-1").await == "in_progress" {}
        };
        in_time(reports.guarded.clock.passing(taken_back)).await;
        let record = reports.record("r-1").await;
        assert_eq!((record.state.clone(), record.attempts), (State::Pending { released_by: None }, 0));
    }
    assert!(reports.work(&asked).await);
    let answer = reports.polled("r-1").await;
    assert_eq!((answer.status, &answer.json()["attempts"]), (201, &json!(1)));
}

#[apply(on_each_store)]
async fn a_denial_of_the_last_execution_is_counted(endpoint: &str) {
    let reports = Reports::of(Guarded::on(endpoint).await, operation().max_attempts(1));
    reports.post("r-1", r#""perhaps""#).await;
    assert!(!reports.work(&reports.asked("r-1").await).await);
    let ((), counts) = counting(reconciled(&reports, Finding::NotExecuted)).await;
    assert_eq!(counts.get(WORK_ABANDONED), Some(&1));
    reports.polled("r-1").await.assert_problem(408, "operation-abandoned");
}

fn stale(reports: &Reports) -> Stale {
    let [checks, sweeps, dead_letters] = [(); 3].map(|()| MemoryQueue::new());
    Stale::new(reports.guarded.store(), checks, sweeps, dead_letters).world(reports.guarded.clock.clone())
}

// T2: whoever looks next finds it ended, and counts nothing.
#[apply(on_each_store)]
async fn an_end_whose_answer_was_lost_is_counted(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let reports = Reports::of(guarded, operation());
    reports.post("r-1", r#""report""#).await;
    reports.guarded.clock.advance(BOUND);
    let (stale, key) = (stale(&reports), reports.key("r-1"));
    reports.guarded.faults.script("PutItem", [Fault::DropAnswer]);
    let (unanswered, counts) = counting(reports.guarded.clock.passing(stale.check(&key))).await;
    assert!(unanswered.is_err(), "{unanswered:?}");
    assert_eq!(counts.get(WORK_ABANDONED), Some(&1));
    let (settled, counts) = counting(stale.check(&key)).await;
    assert_eq!((settled.expect("an answer"), counts.get(WORK_ABANDONED)), (CheckOutcome::Settled, None));
}

// T32
#[apply(on_each_store)]
async fn of_two_that_end_it_at_once_one_counts(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    reports.guarded.clock.advance(BOUND);
    let (stale, key) = (stale(&reports), reports.key("r-1"));
    let both = Arc::new(Barrier::new(2));
    reports.guarded.faults.script("PutItem", [Fault::Meet(both.clone()), Fault::Meet(both)]);
    let checks = async { tokio::join!(stale.check(&key), stale.check(&key)) };
    let (ended, counts) = counting(checks).await;
    let mut ended = [ended.0, ended.1].map(|ended| ended.expect("an answer"));
    ended.sort_by_key(|ended| *ended == CheckOutcome::Settled);
    assert_eq!(ended, [CheckOutcome::Abandoned, CheckOutcome::Settled]);
    assert_eq!(counts.get(WORK_ABANDONED), Some(&1));
}

// Held messages come again after a minute: nothing is left to wait for.
#[apply(on_each_store)]
async fn a_claim_that_ends_a_dead_workers_work_is_acknowledged(endpoint: &str) {
    let once = operation().max_attempts(1).effects_in_transaction();
    let reports = Reports::of(Guarded::on(endpoint).await, once);
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    let (dying, gate) = reports.hanging();
    let died = asked.clone();
    let task = tokio::spawn(async move { dying.work(&died).await });
    gate.reached(1).await;
    task.abort();
    reports.guarded.clock.advance(MINUTE * 2);
    assert!(reports.work(&asked).await);
    assert_eq!((reports.runs.count(), reports.items("r-1").await), (0, 1));
    reports.polled("r-1").await.assert_problem(408, "operation-abandoned");
}

// T43: before the deployment, one execution was assumed undone, and the next one did nothing.
#[apply(on_each_store)]
async fn what_was_executed_before_counts_by_its_last_word(endpoint: &str) {
    let at_once = Reports::of(Guarded::on(endpoint).await, Operation::new(PAY));
    at_once.post("r-1", r#""perhaps""#).await;
    at_once.guarded.clock.advance(MINUTE * 20);
    reconciled(&at_once, Finding::NotFound).await;
    assert_eq!(at_once.nothing().post("r-1", r#""perhaps""#).await.status, 503);
    assert_eq!(at_once.state("r-1").await, "failed_retryable");
    let reports = Reports::of(at_once.guarded, operation());
    assert_eq!(reports.post("r-1", r#""perhaps""#).await.status, 202);
    reports.guarded.clock.advance(BOUND);
    assert!(!reports.work(&reports.asked("r-1").await).await);
    assert!(is_escalated(&reports).await);
}
