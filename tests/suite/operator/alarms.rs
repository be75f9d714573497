//! The correction that ends alarms: with its audit line, and without the reports beside the record.

use std::time::Duration;

use lambda_idempotency::{
    engine::Request,
    operator::{Correction, CorrectionError, Operator},
    record::{Alarm, AlarmKind, Answer, Note, Record},
    store::{Store, WriteOutcome, conformance::samples},
};
use macro_rules_attribute::apply;

use crate::support::{
    faults::Fault,
    guarded::{Guarded, RETENTION, completed, fingerprints, outcome_of, owned, replayed_text, request, told},
    on_each_store,
};

/// A record that was completed with this answer while its worker ran, and the alarm that the worker's own answer has raised.
async fn alarmed(guarded: &Guarded, request: &Request) -> Record {
    let executor = guarded.executor();
    let late = owned(executor.reserve(request).await);
    let seen = guarded.record(&request.key).await.expect("a record");
    let mut settled = samples::completed(&seen, Answer::json(402, "kept"), guarded.now(), RETENTION);
    settled.revision = crate::support::guarded::fresh();
    let put = guarded.undisturbed_store().put(Some(seen.revision), &settled, &[]).await;
    assert_eq!(put.expect("the store answers"), WriteOutcome::Written);
    assert_eq!(told(&executor.finish(late, completed("late")).await), "replay");
    guarded.record(&request.key).await.expect("a record")
}

fn operator(guarded: &Guarded) -> Operator {
    Operator::new(guarded.store()).world(guarded.clock.clone())
}

async fn clear(guarded: &Guarded, seen: &Record) -> Result<Record, CorrectionError> {
    let operator = operator(guarded);
    guarded.clock.passing(operator.correct(seen, &Correction::ClearAlarms, "olga@bank", "repaid")).await
}

async fn bodies(guarded: &Guarded, request: &Request) -> usize {
    let items = guarded.collection(&request.key).await;
    items.iter().filter(|item| item["sk"].as_s().is_ok_and(|sk| sk.starts_with("body#"))).count()
}

// T54
#[apply(on_each_store)]
async fn cleared_alarms_leave_an_audit_line_and_no_report(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let request = request();
    let seen = alarmed(&guarded, &request).await;
    assert!(seen.has_alarm(AlarmKind::SecondAnswer));
    let before = guarded.item(&request.key).await.expect("an item");
    assert!(!before.contains_key("expires_at") && before.contains_key("reconcile_shard"));
    let [report] = &operator(&guarded).reports(&seen).await.unwrap()[..] else { panic!("not one report") };
    let says = report.says.as_ref().expect("it is there");
    assert_eq!((says.ended.as_deref(), says.status, says.rows), (Some("completed"), Some(201), 0));
    assert_eq!((says.attempt, Some(report.id)), (seen.attempt, seen.alarms[0].report));

    let cleared = clear(&guarded, &seen).await.unwrap();
    assert_eq!(cleared, Record { revision: cleared.revision, alarms: Vec::new(), ..seen.clone() });
    assert_eq!(guarded.record(&request.key).await, Some(cleared.clone()));
    assert_eq!(bodies(&guarded, &request).await, 0);
    let item = guarded.item(&request.key).await.expect("an item");
    // Time to live deletes it again, and it is in the index no more.
    assert_eq!(item["expires_at"], before["expires_once_cleared"]);
    for gone in ["alarms", "expires_once_cleared", "reconcile_shard", "reconcile_place"] {
        assert!(!item.contains_key(gone), "{gone}");
    }
    let lines = guarded.undisturbed_store().audit_lines(&request.key).await.unwrap();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&*line.what, &*line.who, &*line.reason), ("clear-alarms", "olga@bank", "repaid"));
    assert!(matches!(clear(&guarded, &cleared).await, Err(CorrectionError::NoAlarm)));
    assert_eq!(operator(&guarded).reports(&cleared).await.unwrap(), []);
}

// T29
#[apply(on_each_store)]
async fn a_cleared_record_is_replayed_until_its_time_is_over(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let request = request();
    let seen = alarmed(&guarded, &request).await;
    let other = Request { fingerprints: fingerprints("{}"), ..request.clone() };
    let outcomes = async || {
        let executor = guarded.executor();
        [outcome_of(&executor.reserve(&request).await), outcome_of(&executor.reserve(&other).await)]
    };
    // With its alarm it never counts as absent.
    guarded.clock.advance(RETENTION - Duration::from_secs(60 * 60));
    assert_eq!(outcomes().await, ["replay", "mismatch"]);
    let cleared = clear(&guarded, &seen).await.unwrap();
    assert_eq!(replayed_text(guarded.executor().reserve(&request).await), "kept");
    assert_eq!(outcomes().await, ["replay", "mismatch"]);
    guarded.clock.advance(Duration::from_secs(2 * 60 * 60));
    assert!(cleared.expired(guarded.now()));
    assert_eq!(outcome_of(&guarded.executor().reserve(&other).await), "owned");

    let late = self::request();
    let seen = alarmed(&guarded, &late).await;
    guarded.clock.advance(RETENTION * 2);
    assert_eq!(outcome_of(&guarded.executor().reserve(&late).await), "replay");
    clear(&guarded, &seen).await.unwrap();
    assert_eq!(outcome_of(&guarded.executor().reserve(&late).await), "owned");
}

// T2, T32
#[apply(on_each_store)]
async fn alarms_are_cleared_once_and_only_as_they_were_seen(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    for fault in [Fault::DropAnswer, Fault::Twice, Fault::DropRequest] {
        let request = request();
        let seen = alarmed(&guarded, &request).await;
        guarded.faults.script("TransactWriteItems", [fault]);
        let cleared = clear(&guarded, &seen).await.unwrap();
        assert_eq!(guarded.record(&request.key).await, Some(cleared));
        assert_eq!((bodies(&guarded, &request).await, guarded.faults.left()), (0, 0));
        assert_eq!(guarded.undisturbed_store().audit_lines(&request.key).await.unwrap().len(), 1);
    }
    // Another alarm was raised since.
    let request = request();
    let seen = alarmed(&guarded, &request).await;
    let mut next = Record { revision: crate::support::guarded::fresh(), ..seen.clone() };
    let (kind, because) = (AlarmKind::SecondEffect, Note::new("ch_2"));
    next.alarms.push(Alarm { kind, because, raised_at: guarded.now(), report: None, is_told: false });
    let put = guarded.undisturbed_store().put(Some(seen.revision), &next, &[]).await;
    assert_eq!(put.unwrap(), WriteOutcome::Written);
    let refused = clear(&guarded, &seen).await;
    assert!(matches!(refused, Err(CorrectionError::Changed("completed"))), "{refused:?}");
    assert_eq!((guarded.record(&request.key).await, bodies(&guarded, &request).await), (Some(next), 1));
}
