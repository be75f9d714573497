//! Lost answers, writes that are sent twice, and writes that land late.

use std::time::Duration;

use axum::Extension;
use lambda_http::{Context, RequestExt};
use lambda_idempotency::{
    Operation, engine::Report, http::Outcome, operation::OnLeaseExpiry, time_budget::STORE_TRY,
};
use macro_rules_attribute::apply;

use crate::support::{
    clock::{SENT_AGAIN, STORE_TIMEOUT, in_time},
    faults::{Fault, Late},
    guarded::{
        GRACE, Guarded, LEASE, body_of, completed, operation, outcome_of, owned, replayed, replayed_text,
        request, written,
    },
    http::{Counter, Gate, PAY, api, dynamodb, execution, guard, guard_of, pay, record, send},
    on_each_store,
};

// T1
#[apply(on_each_store)]
async fn a_reservation_whose_answer_was_lost_is_owned_and_runs_once(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    guarded.faults.script("PutItem", [Fault::DropAnswer]);

    let ours = owned(executor.reserve(&request).await);
    assert_eq!((guarded.faults.sent("PutItem"), guarded.faults.left()), (2, 0));
    assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight");
    written(executor.finish(ours, completed("{}")).await);
    assert_eq!(replayed_text(executor.reserve(&request).await), "{}");
}

// T1
#[apply(on_each_store)]
async fn a_take_over_whose_answer_was_lost_is_owned_and_runs_once(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    let first = owned(executor.reserve(&request).await);
    written(executor.finish(first, Report::NotExecuted(None)).await);

    guarded.faults.script("PutItem", [Fault::Pass, Fault::DropAnswer]);
    let second = owned(executor.reserve(&request).await);
    assert_eq!((second.execution().attempts(), guarded.faults.left()), (2, 0));
    assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight");
}

// T1
#[apply(on_each_store)]
async fn an_expiry_whose_answer_was_lost_counts_as_one(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    drop(owned(executor.reserve(&request).await));
    guarded.clock.advance(LEASE + GRACE);

    guarded.faults.script("PutItem", [Fault::Pass, Fault::DropAnswer]);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown");
    assert_eq!((guarded.state(&request).await, guarded.faults.left()), ("unknown", 0));
}

// T2
#[apply(on_each_store)]
async fn a_report_whose_answer_was_lost_is_written_once(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor();
    for (report, state) in reports() {
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        guarded.meter.reset();
        guarded.faults.script("PutItem", [Fault::DropAnswer]);
        written(guarded.clock.passing(executor.finish(ours, report)).await);

        // The second try failed because of the first. There is one write, and it belongs to this executor.
        let used = guarded.meter.reading().total();
        assert_eq!((used.round_trips, used.write_units, used.failed_conditional_writes), (2, 0.0, 1));
        assert_eq!((guarded.state(&request).await, guarded.faults.left()), (state, 0));
    }
}

// T2: as above, but two answers are lost, and the client of the store is set to one attempt.
#[apply(on_each_store)]
async fn a_report_that_the_executor_itself_retries_is_written_once(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let executor = guarded.executor();
    for (report, state) in reports() {
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        guarded.meter.reset();
        guarded.faults.script("PutItem", [Fault::DropAnswer, Fault::DropAnswer]);
        written(guarded.clock.passing(executor.finish(ours, report)).await);

        let used = guarded.meter.reading().total();
        assert_eq!((used.round_trips, used.write_units, used.failed_conditional_writes), (3, 0.0, 1));
        assert_eq!((guarded.state(&request).await, guarded.faults.left()), (state, 0));
    }
}

fn reports() -> [(Report, &'static str); 3] {
    [
        (completed("{}"), "completed"),
        (Report::NotExecuted(None), "failed_retryable"),
        (Report::perhaps("handler_failed"), "unknown"),
    ]
}

// T1, T2
#[apply(on_each_store)]
async fn writes_that_arrive_twice_count_once(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    guarded.faults.for_all("PutItem", Fault::Twice);

    let first = owned(executor.reserve(&request).await);
    written(executor.finish(first, Report::NotExecuted(None)).await);
    let second = owned(executor.reserve(&request).await);
    assert_eq!(second.execution().attempts(), 2);
    written(executor.finish(second, completed("{}")).await);
    assert_eq!(replayed_text(executor.reserve(&request).await), "{}");
}

// T3: an asynchronous retry has the same event, the same request id and even the same deadline.
#[apply(on_each_store)]
async fn a_repeated_delivery_does_not_count_as_the_owner(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let mut delivery = request();
    delivery.deadline = Some(guarded.now().plus(Duration::from_secs(20)));

    let (first, again) = (guarded.executor(), guarded.another(operation()));
    let ours = owned(first.reserve(&delivery).await);
    assert_eq!(outcome_of(&again.reserve(&delivery).await), "in flight");
    assert_eq!(outcome_of(&first.reserve(&delivery).await), "in flight");
    written(first.finish(ours, completed("{}")).await);
    assert_eq!(replayed_text(again.reserve(&delivery).await), "{}");
}

// T3: the guard sees the same request id, in a new Lambda context.
#[apply(on_each_store)]
async fn an_invocation_whose_request_id_repeats_is_another_execution(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let (gate, runs) = (Gate::closed(), Counter::default());
    let (held, counter) = (gate.clone(), runs.clone());
    let app = api(guard(store), move |parts, _| {
        let (held, counter) = (held.clone(), counter.clone());
        async move {
            counter.add();
            held.pass().await;
            let outcome =
                if execution(&parts).attempts() == 1 { Outcome::NotExecuted } else { Outcome::Completed };
            (Extension(outcome), execution(&parts).attempt().to_string())
        }
    });
    let delivery = || {
        let mut context = Context::default();
        context.request_id = "8476a536-e9f4-11e8-9739-2dfe598c3fcd".to_owned();
        pay("order-1").with_lambda_context(context)
    };
    let first = tokio::spawn({
        let (app, delivery) = (app.clone(), delivery());
        async move { send(&app, delivery).await }
    });
    gate.reached(1).await;
    send(&app, delivery()).await.assert_problem(409, "in-flight");
    gate.open();
    // The first did nothing, so the redelivery runs, as another execution.
    let (first, second) = (first.await.unwrap(), send(&app, delivery()).await);
    assert_eq!(runs.count(), 2);
    assert_ne!(first.body, second.body);
    send(&app, delivery()).await.assert_replay_of(&second);
}

// T3, T17
#[apply(on_each_store)]
async fn a_redelivery_does_not_own_the_first_invocations_unseen_write(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, delivery) = (guarded.executor(), request());
    guarded.faults.script("PutItem", vec![Fault::DropAnswer; 3]);
    // Nor can it be taken back at once.
    guarded.faults.script("PutItem", vec![Fault::DropRequest; 3]);

    let reserved = guarded.clock.through(&[SENT_AGAIN; 2], executor.reserve(&delivery)).await;
    assert_eq!(outcome_of(&reserved), "unavailable");
    assert_eq!((guarded.state(&delivery).await, guarded.faults.left()), ("in_progress", 0));
    assert_eq!(outcome_of(&executor.reserve(&delivery).await), "in flight");
}

// T4
#[apply(on_each_store)]
async fn a_dead_workers_reservation_that_lands_first_ends_as_unknown(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (dead, request, late) = (guarded.executor(), request(), Late::hanging());
    guarded.faults.script("PutItem", [late.fault()]);
    let worker = tokio::spawn({
        let request = request.clone();
        async move { dead.reserve(&request).await }
    });
    late.held(1).await;
    worker.abort();
    assert!(worker.await.unwrap_err().is_cancelled());

    assert_eq!(late.release().await.status, 200);
    let alive = guarded.another(operation());
    assert_eq!(outcome_of(&alive.reserve(&request).await), "in flight");
    guarded.clock.advance(LEASE + GRACE);
    assert_eq!(outcome_of(&alive.reserve(&request).await), "unknown");
    assert_eq!(guarded.state(&request).await, "unknown");
}

// T4
#[apply(on_each_store)]
async fn a_dead_workers_reservation_that_lands_late_changes_nothing(endpoint: &str) {
    for landing in ["in_progress", "completed", "failed_retryable", "unknown"] {
        let guarded = Guarded::on(endpoint).await;
        let alive = guarded.another(operation());
        let (dead, request, late) = (guarded.executor(), request(), Late::timing_out());
        guarded.faults.script("PutItem", [late.fault(), late.fault(), late.fault()]);
        let reserved = guarded.clock.through(&[SENT_AGAIN], dead.reserve(&request)).await;
        assert_eq!(outcome_of(&reserved), "unavailable");

        let ours = owned(alive.reserve(&request).await);
        let keep = match reports().into_iter().find(|(_, state)| *state == landing) {
            Some((report, _)) => {
                written(alive.finish(ours, report).await);
                None
            }
            None => Some(ours),
        };
        let before = guarded.item(&request.key).await;
        for _ in 0..3 {
            assert_eq!(late.release().await.status, 400, "{landing}");
        }
        assert_eq!(guarded.item(&request.key).await, before, "{landing}");
        if let Some(ours) = keep {
            written(alive.finish(ours, completed("{}")).await);
        }
    }
}

// T17, T4
#[apply(on_each_store)]
async fn a_timed_out_reservation_never_runs_even_when_it_lands(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (choice, after_its_lease) in [(OnLeaseExpiry::Unknown, "unknown"), (OnLeaseExpiry::RunAgain, "owned")]
    {
        let operation = operation().on_lease_expiry(choice);
        let (executor, request, late) = (guarded.executor_of(operation), request(), Late::timing_out());
        guarded.faults.script("PutItem", [late.fault(), late.fault(), late.fault()]);
        let reserved = guarded.clock.through(&[SENT_AGAIN], executor.reserve(&request)).await;
        assert_eq!(outcome_of(&reserved), "unavailable");
        assert_eq!((guarded.state(&request).await, guarded.faults.left()), ("absent", 0));
        // The executor looks for it in order to take it back, and finally stops.
        while guarded.clock.sleepers() > 0 {
            guarded.clock.advance(Duration::from_secs(20));
            guarded.clock.no_sleepers().await;
        }

        // The first of the three lands and has no owner. The others find it.
        assert_eq!(late.release().await.status, 200);
        assert_eq!(late.release().await.status, 400);
        assert_eq!(late.release().await.status, 400);
        guarded.clock.set(guarded.now().minus(Duration::from_secs(20)));
        assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight");
        guarded.clock.advance(LEASE + GRACE);
        assert_eq!(outcome_of(&executor.reserve(&request).await), after_its_lease);
    }
}

// T17: when it came, it was too late to send it again.
#[apply(on_each_store)]
async fn a_reservation_the_executor_timed_out_is_taken_back_when_it_lands(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request, late) = (guarded.executor(), request(), Late::hanging());
    guarded.faults.script("PutItem", [late.fault()]);
    let time_passes = async {
        late.held(1).await;
        guarded.clock.slept(STORE_TRY, 1).await;
        guarded.clock.advance(STORE_TIMEOUT);
    };
    let (reserved, ()) = tokio::join!(executor.reserve(&request), time_passes);
    assert_eq!(outcome_of(&reserved), "unavailable");
    assert_eq!((late.release().await.status, guarded.state(&request).await), (200, "in_progress"));

    guarded.clock.slept(Duration::from_millis(50), 1).await;
    guarded.clock.advance(Duration::from_millis(50));
    guarded.clock.no_sleepers().await;
    assert_eq!(owned(executor.reserve(&request).await).execution().attempts(), 1);
}

// T17
#[apply(on_each_store)]
async fn a_reservation_with_a_lost_answer_is_taken_back_for_a_retry(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    guarded.faults.script("PutItem", vec![Fault::DropAnswer; 3]);
    let reserved = guarded.clock.through(&[SENT_AGAIN], executor.reserve(&request)).await;
    assert_eq!(outcome_of(&reserved), "unavailable");
    // The store is back, and no other time has passed.
    assert_eq!((guarded.state(&request).await, guarded.faults.left()), ("failed_retryable", 0));
    assert_eq!(owned(executor.reserve(&request).await).execution().attempts(), 1);
}

// T31: also the 202 of what is accepted.
#[apply(on_each_store)]
async fn no_answer_leaves_before_its_record_is_written(endpoint: &str) {
    for (mode, number, status, state) in [
        ("reserved", 2, 200, "completed"),
        ("in a single transaction", 1, 200, "completed"),
        ("accepted", 1, 202, "pending"),
    ] {
        let guarded = Guarded::on(endpoint).await;
        let operation = Operation::new(PAY);
        let guard = |operation| guard_of(guarded.store(), operation).world(guarded.clock.clone());
        let guard = match mode {
            "in a single transaction" => guard(operation).single_transaction(),
            "accepted" => guard(operation.asynchronous(LEASE)),
            _ => guard(operation),
        };
        let app = api(guard, |_, _| async { "paid" });
        let answer = guarded.ends_written(number, send(&app, pay("order-1"))).await;
        let record = record(&guarded.undisturbed_store(), "order-1").await.expect("a record");
        assert_eq!((answer.status, record.state.name()), (status, state), "{mode}");
    }
}

// T31
#[apply(on_each_store)]
async fn an_answer_that_never_reached_the_caller_is_replayed(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    // The connection to the caller breaks while the report is written, so the result of `finish` is not used.
    drop(tokio::spawn({
        let executor = executor.clone();
        async move { executor.finish(ours, completed(r#"{"id":"pay_1"}"#)).await }
    }));
    // A duplicate waits for it, and gets the answer that the caller did not get.
    let reserved = in_time(async {
        loop {
            let reserved = executor.reserve(&request).await;
            if outcome_of(&reserved) != "in flight" {
                return reserved;
            }
        }
    });
    let replay = replayed(reserved.await);
    assert_eq!(replay.answer.head.status(), Some(201));
    assert_eq!(body_of(&replay).map(|body| &body[..]), Some(&br#"{"id":"pay_1"}"#[..]));
}
