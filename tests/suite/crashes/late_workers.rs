//! Workers that finish late: after their lease has expired, or after their record was taken over or settled.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use lambda_idempotency::{
    async_trait,
    engine::{Executor, Ownership, Replay, Report, Request},
    fingerprint::{Content, FingerprintRule},
    operation::OnLeaseExpiry,
    operator::{Correction, MessageSummary, Operator},
    queue::{MemoryQueue, Queue, WorkError},
    reconcile::{Finding, Question, ReconcileOutcome, Reconciler, Reconciliation},
    record::{AlarmKind, Answer, Evidence, Record, Says, SettledBy, State},
    store::{Store, WriteOutcome, conformance::samples, dynamodb::DynamoDbStore},
    telemetry::{CONTRADICTION_SENT, CONTRADICTION_UNSENT},
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    BoxError,
    closed_queue::Closed,
    counts::counting,
    faults::{ANY, Fault, Late},
    guarded::{
        GRACE, Guarded, LEASE, RETENTION, body_of, completed, fingerprints, operation, outcome_of, owned,
        random, replayed_text, request, written,
    },
    on_each_store,
};

async fn lease_expired(guarded: &Guarded, request: &Request) -> Ownership {
    let executor = guarded.executor();
    let late = owned(executor.reserve(request).await);
    guarded.clock.advance(LEASE + GRACE);
    assert_eq!(outcome_of(&executor.reserve(request).await), "unknown");
    late
}

fn reports() -> [(Report, &'static str); 3] {
    [
        (completed("late"), "completed"),
        (Report::NotExecuted(None), "failed_retryable"),
        (Report::perhaps("panicked"), "unknown"),
    ]
}

// T5
#[apply(on_each_store)]
async fn a_worker_report_after_its_record_became_unknown_is_believed(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (report, state) in reports() {
        let request = request();
        let late = lease_expired(&guarded, &request).await;
        written(guarded.executor().finish(late, report).await);
        assert_eq!(guarded.state(&request).await, state);
        if state == "completed" {
            assert_eq!(replayed_text(guarded.executor().reserve(&request).await), "late");
        }
    }
}

/// Settles the record as reconciliation does: load, compute the next record, swap.
async fn settle(guarded: &Guarded, request: &Request, next: impl FnOnce(&Record) -> Record) {
    let record = guarded.record(&request.key).await.expect("a record to settle");
    let put = guarded.undisturbed_store().put(Some(record.revision), &next(&record), &[]).await;
    assert_eq!(put.expect("the store answers"), WriteOutcome::Written);
}

// T5
#[apply(on_each_store)]
async fn a_worker_that_completes_after_reconciliation_gets_the_kept_answer(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (report, _) in reports() {
        let request = request();
        let late = lease_expired(&guarded, &request).await;
        settle(&guarded, &request, |record| {
            let answer = Answer::http(201, Vec::new(), "reconciled");
            samples::completed(record, answer, guarded.now(), RETENTION)
        })
        .await;
        let before = guarded.item(&request.key).await;

        let ended = guarded.executor().finish(late, report).await;
        let Says::Replay(replay) = ended else { panic!("{ended:?}") };
        assert_eq!(body_of(&replay).map(|body| &body[..]), Some(&b"reconciled"[..]));
        assert_eq!(guarded.item(&request.key).await, before);
    }
}

// T5: a provider that lags behind has refused it. One of the two is wrong, and the effect must not be forgotten.
#[apply(on_each_store)]
async fn a_workers_effect_after_its_operation_was_refused_is_escalated(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (report, dead_letters) in [
        (completed("late"), 1),
        (Report::Completed(Answer::json(409, "{}")), 0),
        (Report::NotExecuted(None), 0),
    ] {
        let (request, queue) = (request(), MemoryQueue::new());
        let late = lease_expired(&guarded, &request).await;
        settle(&guarded, &request, |record| {
            samples::completed(record, Answer::json(402, "{}"), guarded.now(), RETENTION)
        })
        .await;
        let executor = guarded.executor().defer_reports_to(queue.clone());
        let ended = executor.finish(late, report).await;
        let Says::Replay(replay) = ended else { panic!("{ended:?}") };
        assert_eq!(replay.answer.head.status(), Some(402), "everybody gets one answer");
        let (delivered, counted) = counting(deliver(&guarded, &queue)).await;
        assert_eq!(
            (delivered.len(), counted.get(CONTRADICTION_SENT)),
            (dead_letters, (dead_letters == 1).then_some(&1))
        );
        for dead_letter in delivered {
            assert_eq!(
                (&dead_letter["kind"], &dead_letter["state"]),
                (&json!("contradiction"), &json!("completed"))
            );
            assert_eq!(dead_letter["report"]["item"]["status"], json!({ "N": "201" }));
            assert_eq!(MessageSummary::read(&dead_letter.to_string()).record, Some(request.key.clone()));
        }
    }
}

// T5, T54: no queue has it.
#[apply(on_each_store)]
async fn an_effect_that_its_record_does_not_take_lies_beside_it(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executors = [guarded.executor(), guarded.executor().defer_reports_to(Closed)];
    for executor in executors {
        let request = request();
        let late = lease_expired(&guarded, &request).await;
        settle(&guarded, &request, |record| {
            samples::completed(record, Answer::json(402, "{}"), guarded.now(), RETENTION)
        })
        .await;
        let (ended, counted) = counting(executor.finish(late, completed("late"))).await;
        assert!(matches!(ended, Says::Replay(_)), "{ended:?}");
        assert_eq!(counted.get(CONTRADICTION_UNSENT), None, "{counted:?}");
        let record = guarded.record(&request.key).await.expect("a record");
        assert!(
            record.has_alarm(AlarmKind::SecondAnswer)
                && record.alarms.iter().any(|alarm| alarm.report.is_some())
        );
        let [dead_letter] = &deliver(&guarded, &MemoryQueue::new()).await[..] else { panic!("not one") };
        assert_eq!(dead_letter["report"]["item"]["status"], json!({ "N": "201" }));
    }
}

/// Releases the record like one of these: reconciliation that found nothing in time, the provider, an operator.
async fn release(guarded: &Guarded, request: &Request, by: SettledBy) {
    let key = &request.key;
    match by {
        SettledBy::Assumption | SettledBy::Provider => {
            let finding = move || match by {
                SettledBy::Assumption => Finding::NotFound,
                _ => Finding::NotExecuted,
            };
            let reconciliation = Reconciliation::new(guarded.undisturbed_store(), MemoryQueue::new())
                .world(guarded.clock.clone())
                .not_found_grace(Duration::ZERO)
                .operation(operation(), Fixed(finding));
            let outcome = reconciliation.ask(key).await.expect("an answer");
            assert_eq!(outcome, ReconcileOutcome::Resolved("failed_retryable"));
        }
        SettledBy::Operator => {
            let operator = Operator::new(guarded.undisturbed_store()).world(guarded.clock.clone());
            let seen = guarded.record(key).await.expect("a record");
            let correction = Correction::NotExecuted { retain: None };
            operator.correct(&seen, &correction, "olga", "asked the bank").await.expect("an unknown outcome");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(guarded.item(key).await.expect("a record")["settled_by"], AttributeValue::S(by.name().into()));
}

/// A reconciler with a fixed answer.
struct Fixed<F>(F);

#[async_trait]
impl<F: Fn() -> Finding + Send + Sync + 'static> Reconciler for Fixed<F> {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok((self.0)())
    }
}

const EACH_RELEASE: [SettledBy; 3] = [SettledBy::Assumption, SettledBy::Provider, SettledBy::Operator];

// T5: otherwise the next retry would repeat the effect.
#[apply(on_each_store)]
async fn a_workers_effect_overrides_every_release(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for by in EACH_RELEASE {
        let request = request();
        let late = lease_expired(&guarded, &request).await;
        release(&guarded, &request, by).await;
        written(guarded.executor().finish(late, completed("late")).await);
        assert_eq!(replayed_text(guarded.executor().reserve(&request).await), "late", "{by:?}");
        let item = guarded.item(&request.key).await.expect("a record");
        assert_eq!(item["settled_by"], AttributeValue::S("worker".into()));
    }
}

// T5
#[apply(on_each_store)]
async fn a_workers_unknown_overrides_an_assumption_but_no_report(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for by in EACH_RELEASE {
        let request = request();
        let late = lease_expired(&guarded, &request).await;
        release(&guarded, &request, by).await;
        let ended = guarded.executor().finish(late, Report::perhaps("panicked")).await;
        let later_outcome = outcome_of(&guarded.executor().reserve(&request).await);
        match by {
            SettledBy::Assumption => {
                written(ended);
                assert_eq!(later_outcome, "unknown");
            }
            _ => {
                assert!(matches!(ended, Says::Own { expires_at: None }), "{by:?}: {ended:?}");
                assert_eq!(later_outcome, "owned", "{by:?}");
            }
        }
    }
}

// T5: another execution that did nothing proves nothing about this one.
#[apply(on_each_store)]
async fn a_workers_effect_overrides_the_next_executions_release(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    let first = lease_expired(&guarded, &request).await;
    release(&guarded, &request, SettledBy::Assumption).await;
    let second = owned(executor.reserve(&request).await);
    written(executor.finish(second, Report::NotExecuted(None)).await);
    written(executor.finish(first, completed("first")).await);
    assert_eq!(replayed_text(executor.reserve(&request).await), "first");
}

/// The reconcile function, and its dead letters.
fn reconcile_function(guarded: &Guarded, store: DynamoDbStore) -> (Reconciliation, MemoryQueue) {
    let dead_letters = MemoryQueue::new();
    let reconciliation = Reconciliation::new(store, dead_letters.clone())
        .world(guarded.clock.clone())
        .operation(operation(), Fixed(|| Finding::NotFound));
    (reconciliation, dead_letters)
}

/// Delivers every message once and returns the dead letters. Messages that cannot be applied yet stay in the queue.
pub(super) async fn deliver(guarded: &Guarded, queue: &MemoryQueue) -> Vec<Value> {
    let (reconciliation, dead_letters) = reconcile_function(guarded, guarded.undisturbed_store());
    for (message, delay) in queue.take() {
        match reconciliation.receive(&message).await {
            Ok(()) => {}
            Err(WorkError::Unwritten) => queue.send(&message, delay).await.expect("a queue in memory"),
            Err(error) => panic!("{error}"),
        }
    }
    // Then the poll.
    for record in guarded.untold().await {
        reconciliation.ask_if_due(&record.key).await.expect("it is told of");
    }
    dead_letters
        .take()
        .iter()
        .map(|(dead_letter, _)| serde_json::from_str(dead_letter).expect("JSON"))
        .collect()
}

const DOUBLE: &str = "api.idempotency.double_execution.count";

/// A worker whose lease has expired, and whose key was released because its effect was not seen. And the execution after it.
async fn overtaken(guarded: &Guarded, executor: &Executor) -> (Request, Ownership, Ownership) {
    let request = request();
    let late = lease_expired(guarded, &request).await;
    release(guarded, &request, SettledBy::Assumption).await;
    let second = owned(executor.reserve(&request).await);
    (request, late, second)
}

// T5
#[apply(on_each_store)]
async fn a_double_execution_is_counted_and_escalated_with_the_late_report(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let queue = MemoryQueue::new();
    let executor = guarded.executor().defer_reports_to(queue.clone());
    let (request, late, second) = overtaken(&guarded, &executor).await;
    let [attempt, other] = [&late, &second].map(|execution| execution.execution().attempt());
    written(executor.finish(second, completed("second")).await);
    let (ended, counted) = counting(executor.finish(late, completed("late"))).await;
    assert_eq!((finish_outcome(&ended), counted.get(DOUBLE)), ("superseded", Some(&1)));

    let (dead_letters, counted) = counting(deliver(&guarded, &queue)).await;
    let [dead_letter] = &dead_letters[..] else { panic!("{dead_letters:?}") };
    assert_eq!(counted.get(DOUBLE), None, "once");
    assert_eq!(dead_letter["alarm"], "second_execution");
    assert_eq!(
        (&dead_letter["kind"], &dead_letter["key"]),
        (&json!("contradiction"), &json!(request.key.partition_key()))
    );
    assert_eq!(
        (&dead_letter["reason"], &dead_letter["state"]),
        (&json!("another execution certainly or possibly ran the operation too"), &json!("completed"))
    );
    assert_eq!(dead_letter["attempt"], other.to_string());
    // The dead letter holds the answer that the worker's client does not get.
    let item = &dead_letter["report"]["item"];
    assert_eq!(item["attempt"], json!({ "B": base64(attempt.as_bytes()) }));
    assert_eq!(item["status"], json!({ "N": "201" }));
    let read = MessageSummary::read(&dead_letter.to_string());
    assert_eq!(
        (read.kind.as_deref(), read.record, read.queue),
        (Some("contradiction"), Some(request.key), None)
    );
    assert_eq!(queue.take().len(), 0);
}

fn base64(bytes: &[u8]) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    BASE64_STANDARD.encode(bytes)
}

// T5: it may be the only proof that the operation was executed, and the other execution may do nothing.
#[apply(on_each_store)]
async fn a_workers_effect_waits_until_the_next_execution_has_ended(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let queue = MemoryQueue::new();
    for through_the_queue in [false, true] {
        for (second_ends, answered, dead_letters_then) in [
            (Report::NotExecuted(None), false, 0),
            (completed("second"), true, 1),
            (Report::Completed(Answer::json(402, "second")), false, 0),
        ] {
            let executor = guarded.executor().defer_reports_to(queue.clone());
            let (request, late, second) = overtaken(&guarded, &executor).await;
            let what = finish_outcome(&if through_the_queue {
                guarded.faults.for_all(ANY, Fault::DropRequest);
                let hasty = guarded.executor_of(operation().completion_timeout(Duration::ZERO));
                let ended = guarded
                    .clock
                    .passing(hasty.defer_reports_to(queue.clone()).finish(late, completed("late")))
                    .await;
                guarded.faults.clear();
                ended
            } else {
                executor.finish(late, completed("late")).await
            });
            assert_eq!(what, if through_the_queue { "not written" } else { "answered elsewhere" });
            assert_eq!(deliver(&guarded, &queue).await.len(), 0, "it waits");
            assert_eq!(guarded.state(&request).await, "in_progress");

            let ended = executor.finish(second, second_ends).await;
            // "Not executed", and a refusal, would be false.
            assert_eq!(finish_outcome(&ended), if answered { "written" } else { "unknown" });
            // Nothing runs before the report is delivered again.
            assert_eq!(
                outcome_of(&executor.reserve(&request).await),
                if answered { "replay" } else { "unknown" }
            );
            let (dead_letters, counted) = counting(deliver(&guarded, &queue)).await;
            assert_eq!(
                (dead_letters.len(), counted.get(DOUBLE).copied()),
                (dead_letters_then, (dead_letters_then > 0).then_some(1))
            );
            let reserved = executor.reserve(&request).await;
            assert_eq!(replayed_text(reserved), if answered { "second" } else { "late" });
            assert_eq!(queue.take().len(), 0);
        }
    }
}

// T5: nothing runs any more, and an operator checks whether both executions had an effect.
#[apply(on_each_store)]
async fn a_workers_effect_overrides_the_next_executions_unknown_and_is_escalated(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let queue = MemoryQueue::new();
    let executor = guarded.executor().defer_reports_to(queue.clone());
    let (request, late, second) = overtaken(&guarded, &executor).await;
    written(executor.finish(second, Report::perhaps("handler_failed")).await);
    let (ended, counted) = counting(executor.finish(late, completed("late"))).await;
    assert_eq!((finish_outcome(&ended), counted.get(DOUBLE)), ("written", Some(&1)));
    // The same write raises the alarm.
    let dead_letters = deliver(&guarded, &queue).await;
    assert_eq!((dead_letters.len(), &dead_letters[0]["state"]), (1, &json!("completed")));
    assert_eq!(dead_letters[0]["alarm"], "second_execution");
    assert_eq!(replayed_text(executor.reserve(&request).await), "late");
}

// T5
#[apply(on_each_store)]
async fn an_unknown_about_another_executions_record_is_escalated(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let queue = MemoryQueue::new();
    let executor = guarded.executor().defer_reports_to(queue.clone());
    let unknown = || Report::perhaps("handler_failed");
    for (second_ends, later_outcome, dead_letters_then) in [
        (completed("second"), "replay", 1),
        // The second execution's report covers only that execution.
        (Report::NotExecuted(None), "unknown", 0),
        (Report::NotBegun, "unknown", 0),
    ] {
        let (request, late, second) = overtaken(&guarded, &executor).await;
        written(executor.finish(second, second_ends).await);
        let (_, counted) = counting(executor.finish(late, unknown())).await;
        assert_eq!(counted.get(DOUBLE).copied(), (dead_letters_then > 0).then_some(1));
        assert_eq!(deliver(&guarded, &queue).await.len(), dead_letters_then);
        assert_eq!(outcome_of(&executor.reserve(&request).await), later_outcome);
    }
    // While the second execution is in progress, the report waits.
    let (request, late, second) = overtaken(&guarded, &executor).await;
    assert_eq!(finish_outcome(&executor.finish(late, unknown()).await), "answered elsewhere");
    assert_eq!(deliver(&guarded, &queue).await.len(), 0);
    assert_eq!(finish_outcome(&executor.finish(second, Report::NotExecuted(None)).await), "unknown");
    assert_eq!(deliver(&guarded, &queue).await.len(), 0);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown");
    // A second execution that did not even begin does not free the key either, and contradicts no report.
    let (request, late, second) = overtaken(&guarded, &executor).await;
    assert_eq!(finish_outcome(&executor.finish(late, unknown()).await), "answered elsewhere");
    assert_eq!(finish_outcome(&executor.finish(second, Report::NotBegun).await), "unknown");
    assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown");
    assert_eq!(deliver(&guarded, &queue).await.len(), 0);
    let (_, late, second) = overtaken(&guarded, &executor).await;
    written(executor.finish(second, completed("second")).await);
    let (_, counted) = counting(executor.finish(late, Report::NotBegun)).await;
    assert_eq!(counted.get(DOUBLE), None);
}

// T5, T42: the alarm does not wait for an answer that cannot be read.
#[apply(on_each_store)]
async fn a_double_execution_is_escalated_despite_an_unreadable_answer(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let queue = MemoryQueue::new();
    let executor = guarded.executor().defer_reports_to(queue.clone());
    let (_, late, second) = overtaken(&guarded, &executor).await;
    written(executor.finish(second, completed(random(20_000))).await);
    guarded.faults.for_all("GetItem", Fault::DropRequest);
    let (ended, counted) = counting(executor.finish(late, completed("late"))).await;
    assert_eq!((finish_outcome(&ended), counted.get(DOUBLE)), ("answered elsewhere", Some(&1)));
    assert_eq!(deliver(&guarded, &queue).await.len(), 1);
}

// The caller of a deferred report has its answer, and retries get the record's.
#[apply(on_each_store)]
async fn an_answer_that_differs_from_the_records_is_escalated(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let queue = MemoryQueue::new();
    for (theirs, escalated) in [("late", 0), ("other", 1), ("another", 1)] {
        let executor = guarded.executor().defer_reports_to(queue.clone());
        let request = request();
        let late = owned(executor.reserve(&request).await);
        guarded.faults.for_all(ANY, Fault::DropRequest);
        let hasty = guarded.executor_of(operation().completion_timeout(Duration::ZERO));
        let hasty = hasty.defer_reports_to(queue.clone());
        let ended = guarded.clock.passing(hasty.finish(late, completed("late"))).await;
        assert_eq!(finish_outcome(&ended), "not written");
        guarded.faults.clear();
        guarded.clock.advance(LEASE + GRACE);
        let Report::Completed(answer) = completed(theirs) else { panic!("no answer") };
        let reconciliation = Reconciliation::new(guarded.undisturbed_store(), MemoryQueue::new())
            .world(guarded.clock.clone())
            .operation(operation(), Fixed(move || Finding::Executed(answer.clone())));
        reconciliation.ask_if_due(&request.key).await.unwrap();
        let dead_letters = deliver(&guarded, &queue).await;
        assert_eq!(dead_letters.len(), escalated, "{theirs}");
        for dead_letter in dead_letters {
            assert_eq!(dead_letter["reason"], "its client may have got another answer than the record has");
        }
        assert_eq!(replayed_text(executor.reserve(&request).await), theirs);
    }
}

fn finish_outcome(ended: &Says<Replay>) -> &'static str {
    match ended {
        Says::Own { expires_at: Some(_) } | Says::Released => "written",
        Says::Replay(_) => "superseded",
        Says::AnsweredElsewhere => "answered elsewhere",
        Says::Unknown { .. } => "unknown",
        Says::Own { expires_at: None } => "not written",
        _ => "other",
    }
}

#[apply(on_each_store)]
async fn an_operation_that_may_run_again_raises_no_alarm(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let queue = MemoryQueue::new();
    let runs_again = operation().on_lease_expiry(OnLeaseExpiry::RunAgain);
    let (executor, request) = (guarded.executor_of(runs_again).defer_reports_to(queue.clone()), request());
    let first = owned(executor.reserve(&request).await);
    guarded.clock.advance(LEASE + GRACE);
    let _second = owned(executor.reserve(&request).await);
    let (ended, counted) = counting(executor.finish(first, completed("first"))).await;
    assert_eq!(finish_outcome(&ended), "answered elsewhere");
    // Its report waits until the other run has ended.
    assert_eq!((counted.get(DOUBLE), queue.take().len()), (None, 1));
}

// T5: a key has one answer, and the retry gets it.
#[apply(on_each_store)]
async fn a_worker_that_cannot_read_the_winners_answer_sends_no_other(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let (executor, request) = (guarded.executor(), request());
    let late = lease_expired(&guarded, &request).await;
    settle(&guarded, &request, |record| {
        let answer = Answer::http(201, Vec::new(), "reconciled");
        samples::completed(record, answer, guarded.now(), RETENTION)
    })
    .await;
    // The winner's body is damaged temporarily.
    let other = guarded.record(&request.key).await.expect("a record");
    let body_item = guarded.item(&request.key).await.expect("an item");
    assert_eq!(other.state.name(), "completed");
    let mut damaged = body_item.clone();
    damaged.insert("body_encoding".into(), AttributeValue::S("zlib".into()));
    guarded.write_raw(damaged).await;
    let ended = executor.finish(late, completed("late")).await;
    assert_eq!(finish_outcome(&ended), "answered elsewhere");
    guarded.write_raw(body_item).await;
    assert_eq!(replayed_text(executor.reserve(&request).await), "reconciled");
}

// T6
#[apply(on_each_store)]
async fn a_late_worker_changes_nothing_in_the_next_executions_record(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor_of(operation().on_lease_expiry(OnLeaseExpiry::RunAgain));
    for (late_report, _) in reports() {
        let request = request();
        let [first, second] = [owned(executor.reserve(&request).await), {
            guarded.clock.advance(LEASE + GRACE);
            owned(executor.reserve(&request).await)
        }];
        guarded.clock.advance(LEASE + GRACE);
        let third = owned(executor.reserve(&request).await);
        let before = guarded.record(&request.key).await.expect("a record");

        let ended = executor.finish(first, late_report).await;
        assert!(matches!(ended, Says::AnsweredElsewhere), "{ended:?}");
        let after = guarded.record(&request.key).await.expect("a record");
        assert_eq!((&after.state, after.attempt), (&before.state, before.attempt));

        written(executor.finish(third, completed("third")).await);
        // Once there is an answer, the late worker gets it too.
        let ended = executor.finish(second, Report::NotExecuted(None)).await;
        let Says::Replay(replay) = ended else { panic!("{ended:?}") };
        assert_eq!(body_of(&replay).map(|body| &body[..]), Some(&b"third"[..]));
        assert_eq!(replayed_text(executor.reserve(&request).await), "third");
    }
}

// T6, T29: an operator deleted the record, or the table was restored to an earlier state.
#[apply(on_each_store)]
async fn a_late_worker_whose_record_was_deleted_still_reports_its_effect(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor();
    let (free, used) = (request(), request());
    let (late_free, late_used) = (owned(executor.reserve(&free).await), owned(executor.reserve(&used).await));
    for request in [&free, &used] {
        guarded.delete(&request.key).await;
    }
    guarded.clock.advance(Duration::from_secs(1));
    let next = owned(executor.reserve(&used).await);
    let before = guarded.record(&used.key).await.expect("a record");

    written(executor.finish(late_free, completed("done")).await);
    assert_eq!(replayed_text(executor.reserve(&free).await), "done");
    let ended = executor.finish(late_used, completed("late")).await;
    assert!(matches!(ended, Says::AnsweredElsewhere), "{ended:?}");
    // The record stays with the next execution but is marked as contested. If that execution did nothing, a retry must not run.
    let mut contested = before.clone();
    let current = guarded.record(&used.key).await.expect("a record");
    // It gets the earlier start. The provider must still remember keys from then when it is asked.
    let began_at = guarded.now().minus(Duration::from_secs(1));
    (contested.revision, contested.began_at) = (current.revision, began_at);
    contested.reported = Some(Evidence::Effect);
    // There is no queue, so the report lies beside it.
    assert!(
        current.has_alarm(AlarmKind::SecondExecution)
            && current.alarms.iter().any(|alarm| alarm.report.is_some())
    );
    contested.alarms = current.alarms.clone();
    assert_eq!(current, contested);
    assert_eq!(finish_outcome(&executor.finish(next, Report::NotExecuted(None)).await), "unknown");
    assert_eq!(outcome_of(&executor.reserve(&used).await), "unknown");
}

/// Enough for both orders to happen. The assertions hold in either order.
const ROUNDS: usize = 50;

// T7
#[apply(on_each_store)]
async fn simultaneous_completion_and_expiry_end_in_one_state(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (worker, duplicate) = (guarded.executor(), guarded.another(operation()));
    for _ in 0..ROUNDS {
        let request = request();
        let ours = owned(worker.reserve(&request).await);
        guarded.clock.advance(LEASE + GRACE);
        let (ended, later_outcome) =
            tokio::join!(worker.finish(ours, completed("done")), duplicate.reserve(&request));
        // The same attempt is believed even after `unknown`, so the record ends as completed in either order.
        written(ended);
        assert!(matches!(outcome_of(&later_outcome), "unknown" | "replay"), "{later_outcome:?}");
        assert_eq!(guarded.state(&request).await, "completed");
        assert_eq!(replayed_text(duplicate.reserve(&request).await), "done");
    }
}

// T7
#[apply(on_each_store)]
async fn simultaneous_completion_and_take_over_have_one_winner(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let runs_again = operation().on_lease_expiry(OnLeaseExpiry::RunAgain);
    let (worker, duplicate) = (guarded.executor_of(runs_again.clone()), guarded.another(runs_again));
    for _ in 0..ROUNDS {
        let request = request();
        let ours = owned(worker.reserve(&request).await);
        guarded.clock.advance(LEASE + GRACE);
        let (ended, taken) =
            tokio::join!(worker.finish(ours, completed("first")), duplicate.reserve(&request));
        match (ended, outcome_of(&taken)) {
            (Says::Own { expires_at: Some(_) }, "replay") => assert_eq!(replayed_text(taken), "first"),
            (Says::AnsweredElsewhere, "owned") => {
                assert_eq!(guarded.state(&request).await, "in_progress");
                written(duplicate.finish(owned(taken), completed("second")).await);
                assert_eq!(replayed_text(worker.reserve(&request).await), "second");
            }
            both => panic!("both or neither: {both:?}"),
        }
    }
}

// T7: both orders, one after the other.
#[apply(on_each_store)]
async fn the_second_of_completion_and_expiry_changes_nothing(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for choice in [OnLeaseExpiry::Unknown, OnLeaseExpiry::RunAgain] {
        let operation = operation().on_lease_expiry(choice);
        let (disturbed, other) = (guarded.executor_of(operation.clone()), guarded.another(operation));
        let (late, request) = (Late::hanging(), request());
        let ours = owned(other.reserve(&request).await);
        guarded.clock.advance(LEASE + GRACE);
        // The duplicate has seen that the lease has expired, and its write is under way.
        guarded.faults.script("PutItem", [Fault::Pass, late.fault()]);
        let (duplicate, again) = (disturbed.clone(), request.clone());
        let duplicate = tokio::spawn(async move { duplicate.reserve(&again).await });
        late.held(1).await;
        written(other.finish(ours, completed("done")).await);
        assert_eq!(late.release().await.status, 400, "{choice:?}");
        assert_eq!(replayed_text(other.reserve(&request).await), "done");
        duplicate.abort();

        let (late, request) = (Late::hanging(), self::request());
        let ours = owned(disturbed.reserve(&request).await);
        guarded.clock.advance(LEASE + GRACE);
        // The worker has seen its record in progress, and its completion is under way.
        guarded.faults.script("PutItem", [late.fault()]);
        let worker = tokio::spawn(async move { disturbed.finish(ours, completed("late")).await });
        late.held(1).await;
        let later_outcome = other.reserve(&request).await;
        let before = guarded.item(&request.key).await;
        assert_eq!(late.release().await.status, 400, "{choice:?}");
        assert_eq!(guarded.item(&request.key).await, before);
        assert_eq!(
            outcome_of(&later_outcome),
            if choice == OnLeaseExpiry::Unknown { "unknown" } else { "owned" }
        );
        worker.abort();
    }
}

// T20
#[apply(on_each_store)]
async fn of_a_hundred_retries_of_a_released_key_one_takes_over(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    let first = owned(executor.reserve(&request).await);
    written(executor.finish(first, Report::NotExecuted(None)).await);

    let executors: Vec<_> = std::iter::repeat_with(|| guarded.executor()).take(100).collect();
    let reserved = join_all(executors.iter().map(|executor| executor.reserve(&request))).await;
    let (mut owners, others): (Vec<_>, Vec<_>) =
        reserved.into_iter().partition(|reserved| outcome_of(reserved) == "owned");
    assert!(others.iter().all(|other| outcome_of(other) == "in flight"), "{others:?}");
    assert_eq!(owners.len(), 1);
    let winner = owned(owners.remove(0));
    assert_eq!(winner.execution().attempts(), 2);

    // Another request under the released key takes nothing over.
    guarded.clock.advance(Duration::from_secs(1));
    written(executor.finish(winner, Report::NotExecuted(None)).await);
    let other = Request { fingerprints: crate::support::guarded::fingerprints("{}"), ..request };
    assert_eq!(outcome_of(&executor.reserve(&other).await), "mismatch");
}

// T5, T29: the record of a request that never began counts as absent.
#[apply(on_each_store)]
async fn a_request_that_never_began_hides_no_earlier_workers_effect(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor();
    for (report, state) in [(completed("late"), "completed"), (Report::perhaps("panicked"), "unknown")] {
        let request = request();
        let late = owned(executor.reserve(&request).await);
        guarded.delete(&request.key).await;
        // The key is reserved anew.
        guarded.clock.advance(Duration::from_millis(1));
        let refused = Request { fingerprints: fingerprints("refused"), ..request.clone() };
        let other = owned(executor.reserve(&refused).await);
        written(executor.finish(other, Report::NotBegun).await);
        written(executor.finish(late, report).await);
        assert_eq!(guarded.state(&request).await, state);
    }
    // A late worker that did nothing leaves the key as it is.
    let request = request();
    let late = owned(executor.reserve(&request).await);
    guarded.delete(&request.key).await;
    guarded.clock.advance(Duration::from_millis(1));
    let other = owned(executor.reserve(&request).await);
    written(executor.finish(other, Report::NotBegun).await);
    let before = guarded.item(&request.key).await;
    executor.finish(late, Report::NotExecuted(None)).await;
    assert_eq!(guarded.item(&request.key).await, before);
}

// T14, T2: its own write landed unseen. Meanwhile, a corrected request has taken the key.
#[apply(on_each_store)]
async fn a_refusal_is_not_answered_with_the_answer_to_another_request(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor();
    for same in [false, true] {
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        // As the first try of the write would leave it.
        let seen = guarded.record(&request.key).await.unwrap();
        let mut refused = samples::released(&seen, guarded.now(), RETENTION);
        let State::FailedRetryable { expires_at, .. } = &mut refused.state else { panic!("{refused:?}") };
        *expires_at = guarded.now().minus(RETENTION * 9);
        guarded.undisturbed_store().put(Some(seen.revision), &refused, &[]).await.unwrap();
        let next = if same { request.fingerprints.clone() } else { fingerprints("corrected") };
        let next = owned(executor.reserve(&Request { fingerprints: next, ..request.clone() }).await);
        written(executor.finish(next, completed("the corrected one")).await);
        let (ended, counted) = counting(executor.finish(ours, Report::NotBegun)).await;
        assert_eq!(finish_outcome(&ended), if same { "superseded" } else { "not written" });
        assert_eq!(counted.get(DOUBLE), None);
    }
}

// T5, T36: fingerprints by different rules cannot be compared. That does not make the requests different.
#[apply(on_each_store)]
async fn a_double_execution_across_two_fingerprint_rules_is_reported(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let queue = MemoryQueue::new();
    let executor = guarded.executor().defer_reports_to(queue.clone());
    let request = request();
    let late = owned(executor.reserve(&request).await);
    guarded.delete(&request.key).await;
    // Meanwhile, a version with another rule has run it.
    let rule = FingerprintRule::new().leave_out("/sentAt");
    let content = Content::new("POST", "/payments", b"{}").json();
    let fingerprints = content.fingerprints("pay", &rule, &[]);
    let other = owned(executor.reserve(&Request { fingerprints, ..request }).await);
    written(executor.finish(other, completed("theirs")).await);
    let (_, counted) = counting(executor.finish(late, completed("late"))).await;
    assert_eq!((deliver(&guarded, &queue).await.len(), counted.get(DOUBLE)), (1, Some(&1)));
}

// T14, T29: its record was deleted, and another request has taken its key. Each caller gets the answer to its request, and nothing is lost.
#[apply(on_each_store)]
async fn an_effect_under_a_key_now_held_by_another_request_is_escalated(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let queue = MemoryQueue::new();
    let executor = guarded.executor().defer_reports_to(queue.clone());
    for their_report in [None, Some(completed("theirs")), Some(Report::NotExecuted(None))] {
        for report in [completed("ours"), Report::perhaps("panicked")] {
            let request = request();
            let late = owned(executor.reserve(&request).await);
            guarded.delete(&request.key).await;
            // The key is reserved anew.
            guarded.clock.advance(Duration::from_millis(1));
            let others = Request { fingerprints: fingerprints("another"), ..request.clone() };
            let other = owned(executor.reserve(&others).await);
            let open = match &their_report {
                Some(report) => {
                    written(executor.finish(other, report.clone()).await);
                    None
                }
                None => Some(other),
            };
            let before = guarded.item(&request.key).await;
            // The caller gets the answer to its request.
            assert_eq!(finish_outcome(&executor.finish(late, report).await), "not written");
            let dead_letters = deliver(&guarded, &queue).await;
            assert_eq!((dead_letters.len(), &dead_letters[0]["kind"]), (1, &json!("contradiction")));
            assert_eq!(guarded.item(&request.key).await, before);
            drop(open);
        }
    }
}
