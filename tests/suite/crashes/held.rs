//! An operator holds a record, and its worker reports later (T53).

use lambda_idempotency::{
    engine::{Ownership, Report, Request},
    operator::{Correction, Operator},
    queue::MemoryQueue,
    record::{AlarmKind, Answer, Record, Says},
};
use macro_rules_attribute::apply;
use serde_json::json;

use super::late_workers::deliver;
use crate::support::{
    guarded::{GRACE, Guarded, LEASE, RETENTION, completed, operation, outcome_of, owned, request},
    on_each_store,
};

/// A worker whose lease has expired, and whose record an operator holds.
async fn held(guarded: &Guarded, request: &Request) -> Ownership {
    let late = owned(guarded.executor().reserve(request).await);
    guarded.clock.advance(LEASE + GRACE);
    let seen = guarded.record(&request.key).await.expect("a record");
    let operator = Operator::new(guarded.undisturbed_store()).world(guarded.clock.clone());
    operator.correct(&seen, &Correction::Hold, "olga", "INC-17").await.expect("it is held");
    late
}

#[apply(on_each_store)]
async fn a_report_about_a_held_record_goes_to_its_operator(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (report, dead_letters) in [
        (completed("late"), 1),
        (Report::perhaps("panicked"), 1),
        (Report::NotExecuted(None), 0),
        (Report::NotBegun, 0),
    ] {
        let (request, queue) = (request(), MemoryQueue::new());
        let late = held(&guarded, &request).await;
        let before = guarded.record(&request.key).await.expect("a record");
        let executor = guarded.executor().defer_reports_to(queue.clone());
        let ended = executor.finish(late, report).await;
        assert!(matches!(ended, Says::Unknown { .. }), "no retry gets another answer: {ended:?}");
        let delivered = deliver(&guarded, &queue).await;
        assert_eq!(delivered.len(), dead_letters);
        for dead_letter in delivered {
            let is = (&dead_letter["kind"], &dead_letter["state"], &dead_letter["reason"]);
            let why = json!("an operator holds its record: no part of it is written");
            assert_eq!(is, (&json!("contradiction"), &json!("unknown"), &why));
        }
        // Only the alarm is new.
        let mut after = guarded.record(&request.key).await.expect("a record");
        let alarms = std::mem::take(&mut after.alarms);
        assert_eq!(alarms.iter().filter(|alarm| alarm.is_told).count(), dead_letters);
        assert_eq!(after, Record { revision: after.revision, ..before });
        assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown");
    }
}

// Its record knows of a phase that its handler did not come to, so it could not be completed either.
#[apply(on_each_store)]
async fn an_answer_past_a_noted_phase_goes_to_its_operator_too(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (request, queue) = (request(), MemoryQueue::new());
    let resumes = || operation().resumes(["charge"], RETENTION);
    let executor = guarded.executor_of(resumes()).defer_reports_to(queue.clone());
    let operator = Operator::new(guarded.undisturbed_store()).world(guarded.clock.clone());
    let correct = async |correction| {
        guarded.clock.advance(LEASE + GRACE);
        let seen = guarded.record(&request.key).await.expect("a record");
        operator.correct(&seen, &correction, "olga", "INC-17").await.expect("it is corrected");
    };
    drop(owned(executor.reserve(&request).await));
    correct(Correction::PhaseExecuted { phase: "refund".into(), result: "{}".into() }).await;
    correct(Correction::PhaseNotExecuted { phase: "charge".into() }).await;
    let late = owned(executor.reserve(&request).await);
    correct(Correction::Hold).await;
    executor.finish(late, completed("late")).await;
    let [dead_letter] = &deliver(&guarded, &queue).await[..] else { panic!("no dead letter") };
    assert_eq!(dead_letter["report"]["item"]["state"]["S"], "completed", "{dead_letter}");
}

#[apply(on_each_store)]
async fn a_refusal_of_a_held_record_reaches_no_caller(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let request = request();
    let late = held(&guarded, &request).await;
    let before = guarded.record(&request.key).await.expect("a record");
    let executor = guarded.executor().defer_reports_to(MemoryQueue::new());
    let ended = executor.finish(late, Report::Completed(Answer::json(402, "{}"))).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
    let mut after = guarded.record(&request.key).await.expect("a record");
    assert!(after.has_alarm(AlarmKind::HeldReport), "its caller may have got it from another place");
    after.alarms.clear();
    assert_eq!(after, Record { revision: after.revision, ..before });
    assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown");
}
