//! Changes by people: the record and its audit line change together, or not at all.

use lambda_idempotency::{
    executor::Request,
    record::{Record, Revision, Verdict},
    store::{
        Put, StoreErrorKind,
        dynamodb::{AuditNote, AuditedState},
    },
    time::Timestamp,
};

use crate::support::{
    faults::Fault,
    guarded::{BODY, GRACE, Guarded, LEASE, RETENTION, fingerprints, owned, request, told},
    on_each_store,
};

on_each_store!(
    a_change_and_its_line_are_written_together,
    a_change_to_what_is_there_no_more_writes_no_line,
    a_change_whose_answer_is_lost_is_recognised_and_has_one_line,
    a_change_that_was_applied_unseen_is_recognised_even_after_the_next_one,
    a_change_waits_for_a_transaction_under_way_and_gives_up_in_the_end,
    a_line_about_something_else_leaves_the_record_alone,
);

/// A record whose worker was given up.
async fn unknown(guarded: &Guarded) -> Record {
    let (executor, request) = (guarded.executor(), request());
    drop(owned(executor.reserve(&request).await));
    guarded.clock.advance(LEASE + GRACE);
    assert_eq!(told(&executor.reserve(&request).await), "unknown");
    guarded.record(&request.key).await.expect("a record")
}

fn not_executed(guarded: &Guarded, seen: &Record) -> Record {
    seen.settle(Verdict::NotExecuted, Revision::mint(), guarded.now(), RETENTION).expect("it is unknown")
}

fn note(at: Timestamp) -> AuditNote {
    AuditNote { who: "olga@bank".into(), at, what: "settle-not-executed".into(), reason: "asked".into() }
}

async fn assert_written_once(guarded: &Guarded, seen: &Record, next: &Record) {
    assert_eq!(guarded.record(&seen.key).await.as_ref(), Some(next));
    let lines = guarded.undisturbed_store().audit_lines(&seen.key).await.expect("the lines are there");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((line.who.as_str(), line.at), ("olga@bank", guarded.now().as_millis()));
    assert_eq!((line.what.as_str(), line.reason.as_str()), ("settle-not-executed", "asked"));
    assert_eq!(line.before, Some(AuditedState::from(seen)));
    assert_eq!(line.after, Some(AuditedState::from(next)));
}

// R31
async fn a_change_and_its_line_are_written_together(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let seen = unknown(&guarded).await;
    let next = not_executed(&guarded, &seen);
    let put = guarded.store().swap_audited(&seen, &next, &note(guarded.now())).await;
    assert_eq!(put.unwrap(), Put::Written);
    assert_written_once(&guarded, &seen, &next).await;
}

// R31, R12
async fn a_change_to_what_is_there_no_more_writes_no_line(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let seen = unknown(&guarded).await;
    let first = not_executed(&guarded, &seen);
    let store = guarded.store();
    assert_eq!(store.swap_audited(&seen, &first, &note(guarded.now())).await.unwrap(), Put::Written);
    let second = not_executed(&guarded, &seen);
    let put = store.swap_audited(&seen, &second, &note(guarded.now())).await;
    assert_eq!(put.unwrap(), Put::Refused(Some(Box::new(first.clone()))));
    assert_written_once(&guarded, &seen, &first).await;

    guarded.delete(&seen.key).await;
    let put = store.swap_audited(&first, &second, &note(guarded.now())).await;
    assert_eq!(put.unwrap(), Put::Refused(None));
    assert_eq!(guarded.record(&seen.key).await, None);
    assert_eq!(store.audit_lines(&seen.key).await.unwrap().len(), 1);
}

// T2, T10
async fn a_change_whose_answer_is_lost_is_recognised_and_has_one_line(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for fault in [Fault::DropAnswer, Fault::Twice, Fault::DropRequest] {
        let seen = unknown(&guarded).await;
        let next = not_executed(&guarded, &seen);
        guarded.faults.script("TransactWriteItems", [fault]);
        let put = guarded.store().swap_audited(&seen, &next, &note(guarded.now())).await;
        assert_eq!(put.unwrap(), Put::Written);
        assert_written_once(&guarded, &seen, &next).await;
    }
}

// T10, T11
async fn a_change_that_was_applied_unseen_is_recognised_even_after_the_next_one(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let seen = unknown(&guarded).await;
    let next = not_executed(&guarded, &seen);
    let (store, note) = (guarded.undisturbed_store(), note(guarded.now()));
    assert_eq!(store.swap_audited(&seen, &next, &note).await.unwrap(), Put::Written);
    let request = Request { key: seen.key.clone(), fingerprints: fingerprints(BODY), deadline: None };
    let taken_over = owned(guarded.executor().reserve(&request).await);
    assert_eq!(store.swap_audited(&seen, &next, &note).await.unwrap(), Put::Written);
    drop(taken_over);
    assert_eq!(guarded.state(&request).await, "in_progress");
    assert_eq!(store.audit_lines(&seen.key).await.unwrap().len(), 1);
}

// T9
async fn a_change_waits_for_a_transaction_under_way_and_gives_up_in_the_end(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let seen = unknown(&guarded).await;
    let next = not_executed(&guarded, &seen);
    guarded.faults.for_all("TransactWriteItems", Fault::TransactionConflict);
    let error = guarded.store().swap_audited(&seen, &next, &note(guarded.now())).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Contended);
    assert_eq!(guarded.record(&seen.key).await.as_ref(), Some(&seen));

    guarded.faults.clear();
    guarded.faults.script("TransactWriteItems", [Fault::TransactionConflict, Fault::TransactionConflict]);
    let put = guarded.store().swap_audited(&seen, &next, &note(guarded.now())).await;
    assert_eq!(put.unwrap(), Put::Written);
    assert_written_once(&guarded, &seen, &next).await;
}

// R31
async fn a_line_about_something_else_leaves_the_record_alone(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let seen = unknown(&guarded).await;
    let store = guarded.store();
    store.audit(&seen.key, Some(&seen), &note(guarded.now())).await.unwrap();
    store.audit(&request().key, None, &note(guarded.now())).await.unwrap();
    assert_written_once(&guarded, &seen, &seen).await;
}
