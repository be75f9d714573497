//! Acceptance: one transaction, 202, and what a client sees until the work is done.

use axum::{
    Extension,
    body::Bytes,
    http::{Response, StatusCode},
};
use lambda_idempotency::{
    Operation,
    domain::Table,
    engine::SingleTransaction,
    fingerprint::FingerprintRule,
    http::{Outcome, Parts},
    operation::OnLeaseExpiry,
    queue::MemoryQueue,
    record::{Answer, State},
    stale::{CheckOutcome, Stale},
    telemetry::RESERVE_ACCEPTED,
    time_budget::CLOCK_SKEW,
};
use macro_rules_attribute::apply;
use serde_json::json;

use super::{BOUND, Reports, operation};
use crate::support::{
    counts::counting,
    faults::{ANY, Fault},
    guarded::Guarded,
    http::{self, Counter, api, guard_of, pay_other, send},
    on_each_store, tables,
};

#[apply(on_each_store)]
async fn a_request_is_accepted_in_one_trip(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.guarded.meter.reset();
    let (first, counts) = counting(reports.post("r-1", r#""report""#)).await;
    assert_eq!(reports.guarded.meter.reading().total().round_trips, 1);
    assert_eq!(counts[RESERVE_ACCEPTED], 1);
    assert_eq!((first.status, reports.runs.count()), (202, 0));
    assert_eq!(first.header("location"), Some("/operations?key=r-1&operation=create-payment"));
    assert!(first.header("retry-after").is_some());
    let State::Pending { released_by: None } = reports.record("r-1").await.state else {
        panic!("not pending")
    };
    assert_eq!((reports.items("r-1").await, reports.record("r-1").await.attempts), (2, 0));
    // Neither of the two is deleted by time to live.
    let items = reports.guarded.collection(&reports.key("r-1")).await;
    assert!(items.iter().all(|item| !item.contains_key("expires_at")));
    let again = reports.post("r-1", r#""report""#).await;
    assert_eq!((again.status, again.header("location")), (202, first.header("location")));
    let status = reports.polled("r-1").await;
    assert_eq!((status.status, &status.json()["state"]), (200, &json!("pending")));
    assert!(status.header("retry-after").is_some());
    send(&reports.app, pay_other("r-1")).await.assert_problem(422, "key-reused");
}

// T1
#[apply(on_each_store)]
async fn of_many_requests_at_once_one_is_accepted(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    let posts = (0..20).map(|_| reports.post("r-1", r#""report""#));
    let answers = futures_util::future::join_all(posts).await;
    assert!(answers.iter().all(|answer| [202, 503].contains(&answer.status)), "{answers:?}");
    assert_eq!(reports.items("r-1").await, 2);
}

// T2
#[apply(on_each_store)]
async fn an_acceptance_whose_answer_was_lost_stands(endpoint: &str) {
    let reports =
        Reports::of(Guarded::through(endpoint, |connect| connect.max_attempts(1)).await, operation());
    reports.guarded.faults.script("TransactWriteItems", [Fault::DropAnswer]);
    let app = reports.app.clone();
    let order = http::order("r-1").body(r#""report""#.into()).expect("a request");
    let answer = reports.guarded.clock.passing(send(&app, order)).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(reports.items("r-1").await, 2);
}

#[apply(on_each_store)]
async fn nothing_is_accepted_while_the_store_is_away(endpoint: &str) {
    let reports =
        Reports::of(Guarded::through(endpoint, |connect| connect.max_attempts(1)).await, operation());
    reports.guarded.faults.for_all(ANY, Fault::DropRequest);
    let app = reports.app.clone();
    let order = http::order("r-1").body(r#""report""#.into()).expect("a request");
    let answer = reports.guarded.clock.passing(send(&app, order)).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    reports.guarded.faults.clear();
    assert_eq!(reports.guarded.number_of_items().await, 0);
}

#[apply(on_each_store)]
async fn a_request_that_is_too_large_is_refused_at_once(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    let large = |kilobytes: usize| format!("\"{}\"", "x".repeat(kilobytes * 1024));
    assert_eq!(reports.post("r-1", &large(290)).await.status, 202);
    for kilobytes in [301, 5 * 1024] {
        reports.post("r-2", &large(kilobytes)).await.assert_problem(413, "body-too-long");
    }
    // A duplicate of a large one is looked for before anything is written.
    reports.guarded.meter.reset();
    assert_eq!(reports.post("r-1", &large(290)).await.status, 202);
    assert_eq!(reports.guarded.faults.sent("TransactWriteItems"), 1);
}

/// Accepts what is not `"refused"`, and takes a place for it.
fn choosing(guarded: &Guarded, places: Table, runs: &Counter) -> axum::Router {
    let guard = guard_of(guarded.store(), operation())
        .accept(move |transaction, parts, body| choose(places.clone(), transaction, parts, body));
    let counted = runs.clone();
    api(guard, move |_, _| {
        counted.add();
        async {}
    })
}

async fn choose(places: Table, transaction: SingleTransaction, _: Parts, body: Bytes) -> Response<Bytes> {
    let answer = |status: u16, body: &str| {
        let answer = Response::builder().status(status).header("content-type", "application/json");
        answer.body(body.to_owned().into()).expect("a response")
    };
    if &*body == br#""refused""# {
        return answer(422, r#"{"why":"no such report"}"#);
    }
    let full = Answer::json(409, r#"{"why":"no place is left"}"#);
    let take = places.put(json!({ "id": "one" })).if_absent().or_answer(full);
    transaction.write(take).expect("it is a row");
    answer(202, r#"{"reportId":"one"}"#)
}

#[apply(on_each_store)]
async fn an_acceptance_decides_first_and_commits_its_rows(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let places = tables::domain_table(&guarded.undisturbed).await;
    let app = choosing(&guarded, places, &runs);
    let post = async |key: &str, body: &str| {
        let request = http::order(key).body(format!("\"{body}\"").into()).expect("a request");
        send(&app, request).await
    };
    let refused = post("r-1", "refused").await;
    assert_eq!((refused.status, refused.json()), (422, json!({ "why": "no such report" })));
    // Its key is free.
    let accepted = post("r-1", "report").await;
    assert_eq!((accepted.status, accepted.json()), (202, json!({ "reportId": "one" })));
    assert!(accepted.header("location").is_some_and(|location| location.starts_with("/operations")));
    // A row that is refused is an answer, which is kept.
    for _ in 0..2 {
        let full = post("r-2", "report").await;
        assert_eq!((full.status, full.json()), (409, json!({ "why": "no place is left" })));
    }
    assert_eq!((post("r-1", "report").await.status, runs.count()), (202, 0));
}

// A 202 is not a problem document, and has the headers of what accepts.
#[apply(on_each_store)]
async fn an_acceptance_has_its_own_headers_and_a_retry_the_status(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (body, kind) in [("", "application/json"), ("{}", "application/vnd.report+json")] {
        let guard = guard_of(guarded.store(), operation()).accept(move |_, _, _| async move {
            let answer =
                Response::builder().status(201).header("content-type", "application/vnd.report+json");
            let answer =
                answer.header("location", "/reports/1").header("x-report", "1").header("x-report", "2");
            answer.body(Bytes::from(body)).expect("a response")
        });
        let app = api(guard, |_, _| async {});
        let key = format!("r-{kind}");
        let post = || http::order(&key).body("{}".into()).expect("a request");
        let first = send(&app, post()).await;
        assert_eq!((first.status, first.header("content-type")), (202, Some(kind)));
        assert_eq!(
            (first.header("location"), first.header("cache-control")),
            (Some("/reports/1"), Some("no-store"))
        );
        assert_eq!(first.headers.get_all("x-report").iter().count(), 2);
        assert!(first.headers.contains_key("retry-after"));
        let retry = send(&app, post()).await;
        assert_eq!((retry.status, retry.header("content-type")), (202, Some("application/json")));
        assert!(retry.header("location").is_some_and(|location| location.starts_with("/operations?key=")));
        assert_eq!(retry.header("x-report"), None);
    }
}

#[apply(on_each_store)]
async fn a_key_may_be_accepted_again_once_its_answer_has_expired(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let first = reports.asked("r-1").await;
    assert!(reports.work(&first).await);
    let expires_at = reports.record("r-1").await.state.expires_at().expect("it is settled");
    reports.guarded.clock.advance(expires_at.since(reports.guarded.now()) + CLOCK_SKEW);
    assert_eq!(reports.post("r-1", r#""report""#).await.status, 202);
    // The message of the first acceptance has nothing to do any more, and deletes nothing.
    assert!(reports.work(&first).await);
    assert_eq!((reports.runs.count(), reports.items("r-1").await), (1, 2));
    assert!(reports.work(&reports.asked("r-1").await).await);
    assert_eq!(reports.runs.count(), 2);
}

// Its request was not deleted yet. The key has begun again, with another request.
#[apply(on_each_store)]
async fn a_message_of_an_earlier_life_is_no_mismatch(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let first = reports.asked("r-1").await;
    reports.guarded.clock.advance(BOUND);
    let (checks, sweeps, dead_letters) = (MemoryQueue::new(), MemoryQueue::new(), MemoryQueue::new());
    let stale = Stale::new(reports.guarded.store(), checks, sweeps, dead_letters);
    let stale = stale.world(reports.guarded.clock.clone());
    assert_eq!(stale.check(&reports.key("r-1")).await.expect("an answer"), CheckOutcome::Abandoned);
    let expires_at = reports.record("r-1").await.state.expires_at().expect("it is settled");
    reports.guarded.clock.advance(expires_at.since(reports.guarded.now()) + CLOCK_SKEW);
    assert_eq!(reports.post("r-1", r#""another""#).await.status, 202);
    assert_eq!(reports.items("r-1").await, 3);
    assert!(reports.work(&first).await);
    assert_eq!(
        (reports.queue.take_dead().len(), reports.runs.count(), reports.items("r-1").await),
        (0, 0, 2)
    );
    assert!(reports.work(&reports.asked("r-1").await).await);
    assert_eq!(reports.runs.count(), 1);
}

// The operation was executed at once until the deployment before, and its worker died: its transaction can commit no more.
#[apply(on_each_store)]
async fn what_certainly_did_nothing_is_accepted_by_the_first_retry(endpoint: &str) {
    let before = Operation::new(http::PAY).effects_in_transaction();
    let reports = Reports::of(Guarded::on(endpoint).await, before);
    let (dying, gate) = reports.hanging();
    let task = tokio::spawn(async move { dying.post("r-1", r#""report""#).await });
    gate.reached(1).await;
    task.abort();
    let reports = Reports::of(reports.guarded, operation().effects_in_transaction());
    let in_flight = reports.post("r-1", r#""report""#).await;
    assert_eq!((in_flight.status, in_flight.json()["state"].as_str()), (202, Some("in_progress")));
    reports.guarded.clock.advance(BOUND);
    assert_eq!(reports.post("r-1", r#""report""#).await.status, 202);
    assert!(reports.work(&reports.asked("r-1").await).await);
    assert_eq!((reports.polled("r-1").await.status, reports.runs.count()), (201, 1));
}

#[test]
#[should_panic(expected = "accept() needs Operation::asynchronous")]
fn only_an_asynchronous_operation_accepts() {
    let guard = guard_of(lambda_idempotency::MemoryStore::new(), Operation::new("pay"));
    let _ = guard.accept(|_, _, _| async { Response::new(Bytes::new()) });
}

#[test]
fn an_asynchronous_operation_may_resume_or_run_again() {
    let runs_again = operation().on_lease_expiry(OnLeaseExpiry::RunAgain);
    for choice in [operation().resumes(["charge"], BOUND), runs_again] {
        let _ = guard_of(lambda_idempotency::MemoryStore::new(), choice);
    }
}

#[apply(on_each_store)]
async fn an_acceptance_that_panics_accepts_nothing(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let guard = guard_of(guarded.store(), operation()).accept(|_, _, body: Bytes| async move {
        assert_ne!(&*body, br#""panic""#);
        let status = if &*body == br#""refuse""# { 500 } else { 201 };
        Response::builder().status(status).header("retry-after", "60").body(Bytes::new()).expect("a response")
    });
    let app = api(guard, |_, _| async {});
    let post = async |body: &str| {
        send(&app, http::order("r-1").body(format!("\"{body}\"").into()).expect("a request")).await
    };
    post("panic").await.assert_problem(500, "not-guarded");
    // Its own refusal is the client's answer as it is.
    let refused = post("refuse").await;
    assert_eq!((refused.status, refused.header("retry-after"), &*refused.body), (500, Some("60"), &b""[..]));
    assert_eq!(guarded.number_of_items().await, 0);
    // Each answer of class 2xx accepts. The client gets 202, with what else was chosen.
    let accepted = post("report").await;
    assert_eq!((accepted.status, accepted.header("retry-after")), (202, Some("60")));
    assert_eq!(accepted.json()["state"], "pending");
}

#[apply(on_each_store)]
async fn a_request_without_a_key_is_not_executed_at_once(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (guard, runs) = (guard_of(guarded.store(), operation()), Counter::default());
    let counted = runs.clone();
    let optional = lambda_idempotency::http::Profile::ietf_draft().key_optional();
    let app = api(guard.profile(optional), move |_, _| {
        counted.add();
        async {}
    });
    let unkeyed = http::unkeyed().body(r#""report""#.into()).expect("a request");
    send(&app, unkeyed).await.assert_problem(400, "key-missing");
    assert_eq!(runs.count(), 0);
}

// The operation was executed at once until the deployment before.
#[apply(on_each_store)]
async fn what_was_released_is_accepted_by_a_retry(endpoint: &str) {
    let reports = Reports::of(Guarded::on(endpoint).await, Operation::new(http::PAY));
    assert_eq!(reports.post("r-1", r#""nothing""#).await.status, 503);
    assert_eq!(reports.post("r-2", r#""perhaps""#).await.status, 500);
    assert_eq!(reports.post("r-3", r#""report""#).await.status, 201);
    let reports = Reports::of(reports.guarded, operation());
    assert_eq!(reports.post("r-1", r#""nothing""#).await.status, 202);
    assert_eq!((reports.state("r-1").await, reports.items("r-1").await), ("pending", 2));
    // Executed at most three times more.
    let asked = reports.asked("r-1").await;
    for _ in 0..3 {
        assert!(!reports.work(&asked).await);
    }
    assert_eq!(reports.state("r-1").await, "completed");
    reports.post("r-2", r#""perhaps""#).await.assert_problem(409, "outcome-unknown");
    assert_eq!(reports.post("r-3", r#""report""#).await.status, 201);
    // Also one that would be too large today: it may have been executed.
    let large = format!("\"{}\"", "x".repeat(301 * 1024));
    let before = Reports::of(reports.guarded, Operation::new(http::PAY));
    assert_eq!(before.post("r-4", &large).await.status, 201);
    let reports = Reports::of(before.guarded, operation());
    assert_eq!(reports.post("r-4", &large).await.status, 201);
}

// T77. The rule of fingerprints was changed by the same deployment: the record keeps the former one. A provider, and whoever asks it, must
// know the earlier execution by the same key.
#[apply(on_each_store)]
async fn what_was_released_under_a_former_rule_is_accepted_and_executed(endpoint: &str) {
    let former = FingerprintRule::new();
    let before =
        Reports::of(Guarded::on(endpoint).await, Operation::new(http::PAY).fingerprint(former.clone()));
    let sent = before.with(|parts, _| async move {
        let key = http::execution(&parts).downstream_key("bank");
        (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted), key)
    });
    let first = sent.post("r-1", r#""nothing""#).await;
    assert_eq!(first.status, 503);
    let current = FingerprintRule::new().header("x-unused");
    let reports = Reports::of(before.guarded, operation().fingerprint(current).formerly(former));
    assert_eq!(reports.post("r-1", r#""nothing""#).await.status, 202);
    let done = reports.with(|parts, _| async move {
        (StatusCode::CREATED, http::execution(&parts).downstream_key("bank"))
    });
    assert!(done.work(&reports.asked("r-1").await).await);
    assert_eq!(reports.queue.take_dead().len(), 0);
    let answer = reports.polled("r-1").await;
    assert_eq!((answer.status, reports.state("r-1").await), (201, "completed"));
    assert_eq!(answer.body, first.body, "another downstream key");
}

#[test]
#[should_panic(expected = "a single_transaction() is not asynchronous()")]
fn a_single_transaction_is_not_asynchronous() {
    let _ = guard_of(lambda_idempotency::MemoryStore::new(), operation()).single_transaction();
}
