//! Expiry: settled records expire, others never do.

use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use lambda_idempotency::{
    engine::{Executor, Report, Request},
    record::Says,
    store::{Store, WriteOutcome, conformance::samples},
    time::Timestamp,
    time_budget::CLOCK_SKEW,
    world::ManualWorld,
};
use macro_rules_attribute::apply;

use crate::support::{
    embedded,
    faults::{Fault, Late},
    guarded::{
        GRACE, Guarded, LEASE, RETENTION, completed, fingerprints, operation, outcome_of, owned,
        replayed_text, request, written,
    },
    on_each_store,
};

const MILLISECOND: Duration = Duration::from_millis(1);

/// A new request whose record is in this state.
async fn in_state(guarded: &Guarded, state: &str) -> Request {
    let (executor, request) = (guarded.executor(), request());
    let report = match state {
        "pending" => {
            let (key, fingerprints) = (request.key.clone(), request.fingerprints.clone());
            let accepted = samples::pending(key, fingerprints, guarded.now());
            assert_eq!(
                guarded.store().put(None, &accepted, &[]).await.expect("an answer"),
                WriteOutcome::Written
            );
            return request;
        }
        "between_workers" => {
            let (key, fingerprints) = (request.key.clone(), request.fingerprints.clone());
            let begun = samples::in_progress(key, fingerprints, guarded.now(), guarded.now().plus(LEASE));
            let interrupted = samples::between_workers(&begun, &[("charge", "1")], guarded.now());
            assert_eq!(
                guarded.store().put(None, &interrupted, &[]).await.expect("an answer"),
                WriteOutcome::Written
            );
            return request;
        }
        "in_progress" => None,
        "completed" => Some(completed("{}")),
        "failed_retryable" => Some(Report::NotExecuted(None)),
        "unknown" => Some(Report::perhaps("handler_failed")),
        other => panic!("{other} is no state"),
    };
    let ours = owned(executor.reserve(&request).await);
    if let Some(report) = report {
        written(executor.finish(ours, report).await);
    }
    request
}

/// Each state, with the answer to a retry of an operation that does not resume.
const STATES: [(&str, &str); 6] = [
    ("pending", "in flight"),
    ("in_progress", "in flight"),
    ("between_workers", "unknown"),
    ("completed", "replay"),
    ("failed_retryable", "owned"),
    ("unknown", "unknown"),
];

#[apply(on_each_store)]
async fn each_state_has_its_answer(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (state, answer) in STATES {
        let request = in_state(&guarded, state).await;
        let item = guarded.item(&request.key).await.unwrap();
        assert_eq!(item["state"], AttributeValue::S(state.into()));
        assert_eq!(outcome_of(&guarded.executor().reserve(&request).await), answer, "{state}");
    }
}

// T14
#[apply(on_each_store)]
async fn another_request_is_a_mismatch_in_each_state(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (state, _) in STATES {
        let mut request = in_state(&guarded, state).await;
        let before = guarded.item(&request.key).await;
        request.fingerprints = fingerprints(r#"{"amountCents":1,"currency":"EUR"}"#);
        assert_eq!(outcome_of(&guarded.executor().reserve(&request).await), "mismatch", "{state}");
        assert_eq!(guarded.item(&request.key).await, before, "{state}");
    }
}

// T28
#[apply(on_each_store)]
async fn an_answer_is_kept_for_the_retention_from_completion_and_not_longer(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let retention = Duration::from_secs(7 * 24 * 3600);
    let (executor, request) = (guarded.executor_of(operation().retain(retention)), request());
    let ours = owned(executor.reserve(&request).await);
    guarded.clock.advance(Duration::from_secs(50));
    let completed_at = guarded.now();
    let Says::Own { expires_at: Some(expires_at) } = executor.finish(ours, completed("{}")).await else {
        panic!("not written");
    };
    assert_eq!(expires_at, completed_at.plus(retention).rounded_up_to_second());

    // A clock that is ahead by the permitted skew must not take the record for expired before the announced time.
    let absent_from = expires_at.plus(CLOCK_SKEW);
    guarded.clock.set(absent_from.minus(MILLISECOND));
    assert_eq!(replayed_text(executor.reserve(&request).await), "{}");
    guarded.clock.advance(MILLISECOND);
    let anew = owned(executor.reserve(&request).await);
    assert_eq!((anew.execution().attempts(), anew.execution().created_at()), (1, absent_from));
}

// T13: the time-to-live attribute is a Number in seconds.
#[apply(on_each_store)]
async fn only_settled_records_have_a_time_to_live(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let seconds = guarded.now().plus(RETENTION).as_secs_rounded_up();
    for (state, _) in STATES {
        let request = in_state(&guarded, state).await;
        let item = guarded.item(&request.key).await.unwrap();
        let expected =
            matches!(state, "completed" | "failed_retryable").then(|| AttributeValue::N(seconds.to_string()));
        assert_eq!(item.get("expires_at"), expected.as_ref(), "{state}");
    }
    // A settled record that runs again has none.
    let released = in_state(&guarded, "failed_retryable").await;
    drop(owned(guarded.executor().reserve(&released).await));
    assert!(!guarded.item(&released.key).await.unwrap().contains_key("expires_at"));
}

// T13: all times are years in the past by the store's clock.
#[tokio::test]
async fn time_to_live_deletes_only_settled_records() {
    let embedded = embedded::start();
    let guarded = Guarded::on(&embedded.endpoint).await;
    let now = Timestamp::from(SystemTime::now());
    guarded.clock.set(now.minus(RETENTION * 365));
    let mut requests = Vec::new();
    for (state, _) in STATES {
        requests.push((state, in_state(&guarded, state).await));
    }
    embedded.database.sweep_ttl().expect("a sweep");
    for (state, request) in requests {
        let expected = if matches!(state, "completed" | "failed_retryable") { "absent" } else { state };
        assert_eq!(guarded.state(&request).await, expected);
    }
}

// T12
#[apply(on_each_store)]
async fn an_expired_record_counts_as_absent_before_its_deletion(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for state in ["completed", "failed_retryable"] {
        let mut request = in_state(&guarded, state).await;
        guarded.clock.advance(RETENTION + CLOCK_SKEW + Duration::from_secs(1));
        assert_eq!(guarded.state(&request).await, state, "not deleted yet");

        // It is absent for a different request as well.
        request.fingerprints = fingerprints("{}");
        let anew = owned(guarded.executor().reserve(&request).await);
        assert_eq!((anew.execution().attempts(), anew.execution().created_at()), (1, guarded.now()));
        written(guarded.executor().finish(anew, completed("anew")).await);
        assert_eq!(replayed_text(guarded.executor().reserve(&request).await), "anew");
    }
}

// T12, T20
#[apply(on_each_store)]
async fn of_two_requests_that_find_an_expired_record_one_replaces_it(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for _ in 0..20 {
        let request = in_state(&guarded, "completed").await;
        guarded.clock.advance(RETENTION + CLOCK_SKEW + Duration::from_secs(1));
        let racers = [guarded.executor(), guarded.another(operation())];
        let reserved = join_all(racers.iter().map(|racer| racer.reserve(&request))).await;
        let mut answers: Vec<_> = reserved.iter().map(outcome_of).collect();
        answers.sort_unstable();
        assert_eq!(answers, ["in flight", "owned"]);
    }
}

// T12, T4
#[apply(on_each_store)]
async fn an_expired_record_is_replaced_only_if_it_is_unchanged(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (request, late) = (in_state(&guarded, "completed").await, Late::hanging());
    guarded.clock.advance(RETENTION + CLOCK_SKEW + Duration::from_secs(1));

    // One executor has seen the expired record, and its replacement is under way.
    guarded.faults.script("PutItem", [Fault::Pass, late.fault()]);
    let slow = tokio::spawn({
        let (executor, request) = (guarded.executor(), request.clone());
        async move { executor.reserve(&request).await }
    });
    late.held(1).await;
    // Meanwhile, another executor has run the operation again, and has even completed it.
    let another = guarded.another(operation());
    let anew = owned(another.reserve(&request).await);
    written(another.finish(anew, completed("anew")).await);

    assert_eq!(late.release().await.status, 400);
    assert_eq!(replayed_text(another.reserve(&request).await), "anew");
    slow.abort();
}

// T12, T28: a clock that is behind replays an expired answer. That is the worst effect.
#[tokio::test]
async fn a_clock_behind_replays_an_answer_that_others_consider_expired() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let request = in_state(&guarded, "completed").await;
    let behind = ManualWorld::at(guarded.now().minus(LEASE + GRACE));
    guarded.clock.advance(RETENTION + CLOCK_SKEW);
    let behind = Executor::new(guarded.store(), operation()).world(behind);
    assert_eq!(outcome_of(&behind.reserve(&request).await), "replay");
}
