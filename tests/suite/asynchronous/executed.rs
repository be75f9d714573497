//! The worker: it executes what was accepted once, and a message stays until its record is settled.

use std::time::Duration;

use axum::{
    body::Body,
    http::{Request, StatusCode},
    middleware::{self, Next},
};
use lambda_idempotency::{
    Finding, Operation, Question, Reconciler, async_trait,
    engine::{self, CallError},
    event::Consumer,
    http::NotBegun,
    operation::OnLeaseExpiry,
    operator::{Correction, Operator},
    queue::MemoryQueue,
    reconcile::Reconciliation,
    record::{Answer, Head, SettledBy, State, Work},
    stale::Stale,
    telemetry::error_chain,
    world::World,
};
use macro_rules_attribute::apply;
use serde_json::json;

use super::{BOUND, MINUTE, Reports, operation};
use crate::support::{
    BoxError,
    faults::Fault,
    guarded::{Guarded, completed, owned, request, written},
    http::{Counter, Gate, PAY, TENANT, api, execution, guard_of},
    messages::{deliver_within, message},
    on_each_store,
};

// T68
#[apply(on_each_store)]
async fn what_was_accepted_is_executed_once(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    for _ in 0..3 {
        assert!(reports.work(&asked).await);
    }
    assert_eq!(
        (reports.runs.count(), reports.state("r-1").await, reports.items("r-1").await),
        (1, "completed", 1)
    );
    // The client that polls, and one that sends its request again, get the answer.
    for answer in [reports.polled("r-1").await, reports.post("r-1", r#""report""#).await] {
        assert_eq!((answer.status, answer.header("location")), (201, Some("/reports/1")));
        // T82
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let seen = answer.json();
        assert_eq!((&seen["tenant"], &seen["attempts"]), (&json!(TENANT), &json!(1)));
        assert_eq!((&seen["uri"], &seen["body"]), (&json!("/payments"), &json!(r#""report""#)));
        // Neither the key nor what authenticates.
        assert_eq!(seen["headers"], json!(["content-type"]));
    }
}

#[apply(on_each_store)]
async fn a_worker_makes_three_trips_and_one_to_clean_up(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    reports.guarded.meter.reset();
    assert!(reports.work(&asked).await);
    // The request, the record, the claim, the completion, whether it is settled, and the deletion.
    assert_eq!(reports.guarded.meter.reading().total().round_trips, 6);
}

// T68
#[apply(on_each_store)]
async fn work_that_did_nothing_is_pending_again_until_it_ends_with_408(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""nothing""#).await;
    let asked = reports.asked("r-1").await;
    for attempts in 1..=3 {
        assert!(!reports.work(&asked).await, "its message waits");
        assert_eq!((reports.runs.count(), reports.record("r-1").await.attempts), (attempts, attempts as u32));
        let expected = if attempts < 3 { "pending" } else { "completed" };
        assert_eq!(reports.state("r-1").await, expected);
    }
    let State::Completed { answer, by, .. } = reports.record("r-1").await.state else {
        panic!("not completed")
    };
    assert_eq!((answer.head, by), (Head::Abandoned, SettledBy::Worker));
    assert!(reports.work(&asked).await);
    assert_eq!((reports.runs.count(), reports.items("r-1").await), (3, 1));
    reports.polled("r-1").await.assert_problem(408, "operation-abandoned");
}

// T68
#[apply(on_each_store)]
async fn work_that_no_worker_begins_in_time_ends_with_408(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    reports.guarded.clock.advance(BOUND);
    assert!(reports.work(&asked).await);
    assert_eq!(
        (reports.runs.count(), reports.state("r-1").await, reports.items("r-1").await),
        (0, "completed", 1)
    );
    reports.post("r-1", r#""report""#).await.assert_problem(408, "operation-abandoned");
}

#[apply(on_each_store)]
async fn a_refusal_of_accepted_work_is_its_answer(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""invalid""#).await;
    assert!(reports.work(&reports.asked("r-1").await).await);
    let answer = reports.polled("r-1").await;
    assert_eq!((answer.status, &*answer.body), (422, &b"no such report"[..]));
    assert!(answer.replayed());
}

struct Says(Finding);

#[async_trait]
impl Reconciler for Says {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok(self.0.clone())
    }
}

pub fn reconciliation(reports: &Reports, finding: Finding) -> Reconciliation {
    Reconciliation::new(reports.guarded.store(), MemoryQueue::new())
        .world(reports.guarded.clock.clone())
        .operation(operation(), Says(finding))
}

pub async fn reconciled(reports: &Reports, finding: Finding) {
    let asked = reconciliation(reports, finding).ask(&reports.key("r-1")).await;
    asked.unwrap_or_else(|error| panic!("{}", error_chain(&error)));
}

// T68: found out later that nothing was done. No client would retry.
#[apply(on_each_store)]
async fn unknown_work_is_held_and_runs_again_if_nothing_was_done(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""perhaps""#).await;
    let asked = reports.asked("r-1").await;
    for _ in 0..2 {
        assert!(!reports.work(&asked).await);
        assert_eq!((reports.runs.count(), reports.state("r-1").await), (1, "unknown"));
    }
    reconciled(&reports, Finding::NotExecuted).await;
    let State::Pending { released_by } = reports.record("r-1").await.state else { panic!("not pending") };
    assert_eq!(released_by, Some(SettledBy::Provider));
    // A client waits: it does not take the work over.
    assert_eq!((reports.post("r-1", r#""perhaps""#).await.status, reports.runs.count()), (202, 1));
    assert!(!reports.work(&asked).await);
    assert_eq!(reports.runs.count(), 2);
    reconciled(&reports, Finding::Executed(Answer::json(201, r#"{"found":true}"#))).await;
    assert!(reports.work(&asked).await);
    assert_eq!(reports.polled("r-1").await.json(), json!({ "found": true }));
    assert_eq!((reports.runs.count(), reports.items("r-1").await), (2, 1));
}

// T5, T68: its worker was late, and reports after the provider said that nothing was done.
#[apply(on_each_store)]
async fn a_late_effect_overturns_pending_work_that_was_assumed_undone(endpoint: &str) {
    let reports = Reports::of(Guarded::on(endpoint).await, operation());
    reports.post("r-1", r#""report""#).await;
    let (guarded, key) = (&reports.guarded, reports.key("r-1"));
    let accepted = guarded.record(&key).await.and_then(|record| record.accepted).expect("it is accepted");
    let request = engine::Request { key: key.clone(), work: Work::Claimed(accepted.request), ..request() };
    let executor = guarded.executor_of(operation());
    let ours = owned(executor.reserve(&request).await);
    // Its lease is over, and the provider does not know the effect yet.
    let stale = Stale::new(guarded.store(), MemoryQueue::new(), MemoryQueue::new(), MemoryQueue::new());
    guarded.clock.advance(MINUTE * 2);
    stale.world(guarded.clock.clone()).check(&key).await.expect("the store answers");
    guarded.clock.advance(MINUTE * 20);
    reconciled(&reports, Finding::NotFound).await;
    assert_eq!(reports.state("r-1").await, "pending");
    written(executor.finish(ours, completed("done")).await);
    assert_eq!(reports.state("r-1").await, "completed");
    assert_eq!(&*reports.polled("r-1").await.body, b"done");
}

// T68: the worker dies between claim and end.
#[apply(on_each_store)]
async fn work_of_a_dead_worker_is_handed_on_as_its_operation_says(endpoint: &str) {
    for (choice, ends) in [(OnLeaseExpiry::Unknown, "unknown"), (OnLeaseExpiry::RunAgain, "completed")] {
        let guarded = Guarded::on(endpoint).await;
        let reports = Reports::of(guarded, operation().on_lease_expiry(choice));
        reports.post("r-1", r#""report""#).await;
        let asked = reports.asked("r-1").await;
        // It never gets further than its claim.
        let (dying, gate) = reports.hanging();
        let died = asked.clone();
        let task = tokio::spawn(async move { dying.work(&died).await });
        gate.reached(1).await;
        assert_eq!(reports.state("r-1").await, "in_progress");
        // While its lease lasts, its message is handed back, and a client waits.
        assert!(!reports.work(&asked).await);
        assert_eq!(reports.post("r-1", r#""report""#).await.status, 202);
        reports.guarded.clock.advance(MINUTE * 2);
        assert_eq!(reports.post("r-1", r#""report""#).await.status, 202, "a client takes nothing over");
        assert_eq!(reports.runs.count(), 0);
        assert_eq!(reports.work(&asked).await, ends == "completed", "{choice:?}");
        assert_eq!(reports.state("r-1").await, ends, "{choice:?}");
        task.abort();
    }
}

// T68: what is kept is never forgotten by a 408, however late it is.
#[apply(on_each_store)]
async fn interrupted_work_resumes_behind_what_is_kept(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let resumes = || operation().resumes(["charge"], BOUND * 48);
    let (charges, called) = (Counter::default(), Counter::default());
    let guard = guard_of(guarded.store(), resumes()).world(guarded.clock.clone());
    let (charged, counted) = (charges.clone(), called.clone());
    let app = api(guard, move |parts, _| {
        let (charges, execution) = (charged.clone(), execution(&parts).clone());
        let run = counted.add();
        async move {
            let call = execution.phase("charge").keys_live(BOUND);
            let charge = call.call(|_| async move { Ok::<_, CallError>(charges.add()) });
            match charge.await {
                Ok(number) if run == 3 => (StatusCode::CREATED, number.to_string()),
                _ => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
            }
        }
    });
    let reports = Reports { app, ..Reports::of(guarded, resumes()) };
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    for _ in 0..2 {
        assert!(!reports.work(&asked).await);
        assert_eq!(reports.state("r-1").await, "between_workers");
        assert_eq!(reports.post("r-1", r#""report""#).await.status, 202, "a client takes nothing over");
        reports.guarded.clock.advance(BOUND);
    }
    assert_eq!(called.count(), 2);
    assert!(reports.work(&asked).await);
    let answer = reports.polled("r-1").await;
    assert_eq!((answer.status, &*answer.body, charges.count()), (201, &b"1"[..], 1));
}

// An operator settles it just after its last interruption: nothing is left to do, and no dead letter.
#[apply(on_each_store)]
async fn interrupted_work_that_is_settled_meanwhile_is_acknowledged(endpoint: &str) {
    for settles in [false, true] {
        let operation = operation().resumes(["charge"], BOUND);
        let mut reports = Reports::of(Guarded::on(endpoint).await, operation);
        reports.post("r-1", r#""report""#).await;
        let asked = reports.asked("r-1").await;
        let app = reports.with(|parts, _| async move {
            let call = execution(&parts).phase("charge").keys_live(BOUND);
            call.call(|_| async { Ok::<_, CallError>(1) }).await.expect("it is kept");
            StatusCode::SERVICE_UNAVAILABLE
        });
        let (guarded, key) = (reports.guarded.clone(), reports.key("r-1"));
        // Outside of the guard, so after its write.
        let settled = move |request: Request<Body>, next: Next| {
            let (guarded, key) = (guarded.clone(), key.clone());
            async move {
                let answer = next.run(request).await;
                if settles {
                    let seen = guarded.record(&key).await.expect("a record");
                    let (answer, retain, messages) = (Answer::json(201, "{}"), None, Vec::new());
                    let done = Correction::Executed { answer, retain, messages };
                    let operator = Operator::new(guarded.store()).world(guarded.clock.clone());
                    operator.correct(&seen, &done, "olga", "done by hand").await.expect("it is settled");
                }
                answer
            }
        };
        reports.app = app.app.layer(middleware::from_fn(settled));
        let now = std::time::UNIX_EPOCH + Duration::from_millis(reports.guarded.clock.now().as_millis());
        let consumer = Consumer::worker(reports.queue.clone()).max_attempts(1);
        let worker = consumer.world(reports.guarded.clock.clone());
        let worker = worker.work(reports.guarded.store(), reports.app.clone());
        let back = deliver_within(&worker, &[message("m-1", asked)], now, MINUTE).await.expect("an answer");
        let dead = reports.queue.take_dead();
        assert_eq!((back.len(), dead.len()), (0, usize::from(!settles)), "{settles}: {dead:?}");
    }
}

#[apply(on_each_store)]
async fn a_message_about_other_work_runs_nothing(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    // Of an acceptance that is over: its request is gone.
    let mut other = asked.clone();
    other["request"] = json!("00000000000000000000000000000000");
    assert!(reports.work(&other).await);
    for bad in [json!({}), json!({ "version": 1, "kind": "deliver", "key": asked["key"], "request": "x" })] {
        assert!(reports.work(&bad).await);
        assert_eq!(reports.queue.take_dead().len(), 1);
    }
    assert_eq!((reports.runs.count(), reports.state("r-1").await), (0, "pending"));
}

#[apply(on_each_store)]
async fn a_route_that_is_gone_is_escalated(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    let consumer = Consumer::worker(reports.queue.clone());
    let elsewhere = axum::Router::new().route("/elsewhere", axum::routing::get(|| async {}));
    let worker = consumer.world(reports.guarded.clock.clone()).work(reports.guarded.store(), elsewhere);
    let now = std::time::UNIX_EPOCH + Duration::from_millis(reports.guarded.clock.now().as_millis());
    let back = deliver_within(&worker, &[message("m-1", asked)], now, MINUTE).await.expect("an answer");
    let [dead] = &reports.queue.take_dead()[..] else { panic!("not one dead letter") };
    assert_eq!((back.len(), &*dead.reason), (0, "the route is not guarded: it answered 404"));
    // It is pending until its bound.
    assert_eq!((reports.state("r-1").await, reports.items("r-1").await), ("pending", 2));
}

#[apply(on_each_store)]
async fn work_that_cannot_be_read_now_comes_again(endpoint: &str) {
    let reports =
        Reports::of(Guarded::through(endpoint, |connect| connect.max_attempts(1)).await, operation());
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    reports.guarded.faults.script("GetItem", [Fault::Status(500)]);
    assert!(!reports.work(&asked).await);
    assert!(reports.work(&asked).await);
    assert_eq!(reports.runs.count(), 1);
}

// It was not seen yet, though it was written with its record; or it was deleted by hand.
#[apply(on_each_store)]
async fn work_without_its_request_comes_again_until_its_time_is_over(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    let record = reports.record("r-1").await;
    let request = record.accepted.expect("it was accepted").request;
    use lambda_idempotency::store::Store;
    reports.guarded.store().delete_body(&record.key, request).await.expect("it is deleted");
    assert!(!reports.work(&asked).await);
    assert_eq!((reports.state("r-1").await, reports.runs.count()), ("pending", 0));
    reports.guarded.clock.advance(BOUND);
    let queues = [(); 3].map(|()| MemoryQueue::new());
    let [checks, sweeps, dead_letters] = queues;
    let stale = Stale::new(reports.guarded.store(), checks, sweeps, dead_letters);
    stale.world(reports.guarded.clock.clone()).check(&record.key).await.expect("the store answers");
    assert!(reports.work(&asked).await);
    reports.polled("r-1").await.assert_problem(408, "operation-abandoned");
    assert_eq!(reports.queue.take_dead().len(), 0);
}

// Its client has 202, and polls for this answer, whatever earlier attempts did not do.
#[apply(on_each_store)]
async fn a_refusal_by_a_later_attempt_is_the_answer(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    assert!(!reports.nothing().work(&asked).await);
    let stricter =
        reports.with(|_, _| async { NotBegun((StatusCode::UNPROCESSABLE_ENTITY, "no such report")) });
    assert!(stricter.work(&asked).await);
    assert_eq!((reports.state("r-1").await, reports.queue.take_dead().len()), ("completed", 0));
    let answer = reports.polled("r-1").await;
    assert_eq!((answer.status, &*answer.body), (422, &b"no such report"[..]));
    // A status that frees no key otherwise is an answer too, if the handler says that nothing was done.
    reports.post("r-2", r#""report""#).await;
    let forbids = reports.with(|_, _| async { NotBegun(StatusCode::FORBIDDEN) });
    assert!(forbids.work(&reports.asked("r-2").await).await);
    assert_eq!((reports.state("r-2").await, reports.polled("r-2").await.status), ("completed", 403));
}

// Its client polls for the answer, which another attempt can still have.
#[apply(on_each_store)]
async fn a_failure_before_anything_was_done_is_no_answer(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS] {
        let fails = reports.with(move |_, _| async move { NotBegun((status, "not now")) });
        assert!(!fails.work(&asked).await);
        assert_eq!((reports.state("r-1").await, reports.queue.take_dead().len()), ("pending", 0));
    }
    assert!(reports.work(&asked).await);
    assert_eq!(reports.state("r-1").await, "completed");
}

// The table was restored to a time before the claim. Another worker will execute the record: somebody must know of the first effect.
#[apply(on_each_store)]
async fn an_effect_over_work_that_is_unclaimed_again_is_escalated(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let asked = reports.asked("r-1").await;
    let before = reports.guarded.item(&reports.key("r-1")).await.expect("a record");
    let (queue, gate) = (MemoryQueue::new(), Gate::closed());
    let held = gate.clone();
    let guard = guard_of(reports.guarded.store(), operation()).defer_reports_to(queue.clone());
    let late = reports.guarded_by(guard, move |_, _| {
        let held = held.clone();
        async move {
            held.pass().await;
            StatusCode::CREATED
        }
    });
    let task = tokio::spawn(async move { late.work(&asked).await });
    gate.reached(1).await;
    reports.guarded.write_raw(before).await;
    gate.open();
    task.await.expect("it ends");
    assert_eq!(reports.state("r-1").await, "pending");
    let sent = queue.take();
    assert!(sent.iter().any(|(message, _)| message.contains("deferred_report")), "{sent:?}");
}

#[test]
#[should_panic(expected = "asynchronous() is for HTTP")]
fn a_function_cannot_be_asynchronous() {
    let tenant = lambda_idempotency::key::Tenant::parse(TENANT).expect("a tenant");
    let operation = Operation::new(PAY).asynchronous(BOUND);
    let _ = lambda_idempotency::Guard::new(lambda_idempotency::MemoryStore::new(), operation, tenant);
}
