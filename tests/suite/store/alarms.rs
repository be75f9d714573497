//! A record with an alarm: in the table, in its index, for its callers, and until an operator clears it.

use std::time::Duration;

use lambda_idempotency::{
    engine::{Report, Request},
    operator::{Correction, Operator},
    queue::MemoryQueue,
    reconcile::{ReconcileOutcome, Reconciliation},
    record::{AlarmKind, Answer, Place, Record, Says},
    stale::Stale,
    store::{Store, Unsettled},
    time_budget::CLOCK_SKEW,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    embedded,
    guarded::{
        GRACE, Guarded, LEASE, RETENTION, all_due, completed, fingerprints, outcome_of, owned, replayed_text,
        request, written,
    },
    on_each_store,
};

/// A record that was completed twice: by the execution whose answer it has, and by an earlier one.
async fn completed_twice(guarded: &Guarded) -> Request {
    let (executor, request) = (guarded.executor(), request());
    let late = owned(executor.reserve(&request).await);
    guarded.clock.advance(LEASE + GRACE);
    correct(guarded, &request, Correction::ExpireLease).await;
    correct(guarded, &request, Correction::NotExecuted { retain: None }).await;
    let second = owned(executor.reserve(&request).await);
    written(executor.finish(second, completed("second")).await);
    let Says::Replay(_) = executor.finish(late, completed("late")).await else { panic!("it is another's") };
    request
}

async fn correct(guarded: &Guarded, request: &Request, correction: Correction) {
    let operator = Operator::new(guarded.undisturbed_store()).world(guarded.clock.clone());
    let seen = record(guarded, request).await;
    operator.correct(&seen, &correction, "olga", "asked the bank").await.expect("it is corrected");
}

async fn record(guarded: &Guarded, request: &Request) -> Record {
    guarded.record(&request.key).await.expect("a record")
}

/// The reconcile function, and its dead letters.
fn reconciliation(guarded: &Guarded) -> (Reconciliation, MemoryQueue) {
    let dead_letters = MemoryQueue::new();
    let reconciliation = Reconciliation::new(guarded.undisturbed_store(), dead_letters.clone());
    (reconciliation.world(guarded.clock.clone()), dead_letters)
}

async fn listed(guarded: &Guarded) -> Vec<Record> {
    let (store, mut found, mut from) = (guarded.undisturbed_store(), Vec::new(), None);
    loop {
        let page = store.unresolved(None, from.as_ref()).await.expect("the store answers");
        found.extend(page.records);
        from = page.next;
        if from.is_none() {
            return found;
        }
    }
}

// T54
#[apply(on_each_store)]
async fn the_index_has_an_alarm_until_it_is_cleared(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let request = completed_twice(&guarded).await;
    let store = guarded.undisturbed_store();
    let counted = async || {
        let seen = store.survey().await.expect("the store answers");
        (seen.alarmed, seen.escalated, seen.unknown, seen.whole)
    };
    assert_eq!(all_due(&store, guarded.now()).await, std::slice::from_ref(&request.key));
    assert_eq!(counted().await, (1, 1, 0, true));
    reconciliation(&guarded).0.ask_if_due(&request.key).await.expect("it is told of");
    assert_eq!(all_due(&store, guarded.now()).await, []);
    assert_eq!((counted().await, listed(&guarded).await.len()), ((1, 1, 0, true), 1));
    correct(&guarded, &request, Correction::ClearAlarms).await;
    assert_eq!((counted().await, listed(&guarded).await.len()), ((0, 0, 0, true), 0));
}

// T54: it may die between the two.
#[apply(on_each_store)]
async fn the_poll_tells_of_an_alarm_once(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let request = completed_twice(&guarded).await;
    let (reconciliation, dead_letters) = reconciliation(&guarded);
    let polled = reconciliation.poll(Duration::from_secs(30)).await.expect("the store answers");
    assert_eq!((polled.due, polled.escalated), (1, 1));
    let [(dead_letter, _)] = &dead_letters.take()[..] else { panic!("not one dead letter") };
    let dead_letter: Value = serde_json::from_str(dead_letter).expect("JSON");
    assert_eq!(dead_letter["key"], request.key.partition_key());
    assert_eq!(dead_letter["alarm"], "second_execution");
    assert_eq!(dead_letter["report"]["item"]["status"], json!({ "N": "201" }));
    let polled = reconciliation.poll(Duration::from_secs(30)).await.expect("the store answers");
    assert_eq!((polled.due, dead_letters.take().len()), (0, 0));
    assert_eq!(reconciliation.ask_if_due(&request.key).await.unwrap(), ReconcileOutcome::Settled);
}

// T54, T12: it is what operators have of it.
#[apply(on_each_store)]
async fn a_record_with_an_alarm_outlives_its_time(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), completed_twice(&guarded).await);
    let item = guarded.item(&request.key).await.expect("a record");
    assert!(!item.contains_key("expires_at"), "time to live would delete it");
    guarded.clock.advance(RETENTION * 100);
    assert_eq!(replayed_text(executor.reserve(&request).await), "second");
    let other = Request { fingerprints: fingerprints("another body"), ..request.clone() };
    assert_eq!(outcome_of(&executor.reserve(&other).await), "mismatch");
    correct(&guarded, &request, Correction::ClearAlarms).await;
    assert!(guarded.item(&request.key).await.expect("a record").contains_key("expires_at"));
    assert_eq!(outcome_of(&executor.reserve(&other).await), "owned", "its time is over");
}

// T54
#[apply(on_each_store)]
async fn a_cleared_alarm_leaves_the_record_its_time(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), completed_twice(&guarded).await);
    correct(&guarded, &request, Correction::ClearAlarms).await;
    let operator = Operator::new(guarded.undisturbed_store()).world(guarded.clock.clone());
    let seen = record(&guarded, &request).await;
    let again = operator.correct(&seen, &Correction::ClearAlarms, "olga", "twice").await.unwrap_err();
    assert_eq!(again.to_string(), "the record has no alarm");
    assert_eq!(replayed_text(executor.reserve(&request).await), "second");
    guarded.clock.advance(RETENTION + CLOCK_SKEW + Duration::from_secs(1));
    assert_eq!(outcome_of(&executor.reserve(&request).await), "owned");
}

// T54: a sweep deletes what no record names.
#[apply(on_each_store)]
async fn a_sweep_keeps_reports_until_their_alarm_is_cleared(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let request = completed_twice(&guarded).await;
    let report = record(&guarded, &request).await.alarms[0].report.expect("there is no queue");
    let store = guarded.undisturbed_store();
    let is_there = async || {
        let body = store.load_body(&request.key, report, Place::BodyItem).await;
        body.expect("the store answers").is_some()
    };
    let swept = async || {
        guarded.clock.advance(Duration::from_secs(86_400));
        let [checks, work, outbox] = [(); 3].map(|()| MemoryQueue::new());
        let stale = Stale::new(store.clone(), checks, work, outbox).world(guarded.clock.clone());
        stale.sweep(Duration::from_secs(60)).await.expect("the store answers");
    };
    swept().await;
    assert!(is_there().await);
    correct(&guarded, &request, Correction::ClearAlarms).await;
    assert!(!is_there().await, "with the alarm");
}

// T55: the rows that its worker could not commit.
#[apply(on_each_store)]
async fn the_report_beside_a_record_has_its_rows(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let accounts = crate::support::tables::domain_table(&guarded.undisturbed).await;
    let (executor, request) = (guarded.executor(), request());
    let late = owned(executor.reserve(&request).await);
    late.execution().write(accounts.put(json!({ "id": "a", "cents": 7 }))).expect("a write");
    guarded.clock.advance(LEASE + GRACE);
    correct(&guarded, &request, Correction::ExpireLease).await;
    let answer = Answer::json(201, "{}");
    correct(&guarded, &request, Correction::Executed { answer, retain: None, messages: Vec::new() }).await;
    executor.finish(late, completed("late")).await;
    assert!(record(&guarded, &request).await.has_alarm(AlarmKind::RefusedRows));
    let (reconciliation, dead_letters) = reconciliation(&guarded);
    reconciliation.ask_if_due(&request.key).await.expect("it is told of");
    let [(dead_letter, _)] = &dead_letters.take()[..] else { panic!("not one dead letter") };
    assert!(dead_letter.contains("\"cents\"") && dead_letter.contains(accounts.name()), "{dead_letter}");
}

// The usual ways cost what they did: see `costs`.
#[tokio::test]
async fn an_alarm_with_its_report_is_one_transaction() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (executor, request) = (guarded.executor(), request());
    let late = owned(executor.reserve(&request).await);
    guarded.clock.advance(LEASE + GRACE);
    correct(&guarded, &request, Correction::Hold).await;
    guarded.meter.reset();
    executor.finish(late, Report::perhaps("handler_failed")).await;
    let used = guarded.meter.reading().total();
    // The refused write, which returns the record, and then the alarm: two units for each KB of the record and of the report.
    assert_eq!((used.round_trips, used.billed_write_units()), (2, 1.0 + 2.0 * (1.0 + 2.0)));
}
