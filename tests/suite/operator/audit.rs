//! Changes by operators: the record and its audit line are written together, or not at all.

use lambda_idempotency::{
    engine::Request,
    operator::{Correction, CorrectionError, Operator},
    record::{AnswerKind, Note, Record, Revision, SettledBy, State},
    store::{
        AuditLine, Companion, Store, StoreError, StoreErrorKind, WriteOutcome, conformance::samples,
        dynamodb::DynamoDbStore,
    },
    time::Timestamp,
};
use macro_rules_attribute::apply;

use serde_json::json;

use crate::support::{
    faults::Fault,
    guarded::{BODY, GRACE, Guarded, LEASE, RETENTION, fingerprints, fresh, outcome_of, owned, request},
    on_each_store,
};

/// A record whose worker's lease was expired.
async fn unknown(guarded: &Guarded) -> Record {
    let (executor, request) = (guarded.executor(), request());
    drop(owned(executor.reserve(&request).await));
    guarded.clock.advance(LEASE + GRACE);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown");
    guarded.record(&request.key).await.expect("a record")
}

fn not_executed(guarded: &Guarded, seen: &Record, revision: Revision) -> Record {
    let mut next = samples::released(seen, guarded.now(), RETENTION);
    next.revision = revision;
    let State::FailedRetryable { by, .. } = &mut next.state else { panic!("{next:?}") };
    *by = SettledBy::Operator;
    next
}

/// Who, what and why.
const AUDIT_FIELDS: [&str; 3] = ["olga@bank", "settle-not-executed", "asked"];

/// Through the store alone: replaces the record that was read with this one.
async fn swap(
    store: &DynamoDbStore,
    seen: &Record,
    next: &Record,
    at: Timestamp,
) -> Result<WriteOutcome, StoreError> {
    let line = AuditLine::new(AUDIT_FIELDS, at, Some(seen), Some(next));
    store.put(Some(seen.revision), next, &[Companion::Audit(line)]).await
}

/// Through `Operator`, which computes the next record.
async fn correct(guarded: &Guarded, seen: &Record) -> Result<Record, CorrectionError> {
    let operator = Operator::new(guarded.store()).world(guarded.clock.clone());
    let correction = Correction::NotExecuted { retain: Some(RETENTION) };
    guarded.clock.passing(operator.correct(seen, &correction, "olga@bank", "asked")).await
}

async fn assert_written_once(guarded: &Guarded, seen: &Record, next: &Record, at: Timestamp) {
    assert_eq!(guarded.record(&seen.key).await.as_ref(), Some(next));
    let lines = guarded.undisturbed_store().audit_lines(&seen.key).await.expect("the lines can be read");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((line.who.as_str(), line.at), ("olga@bank", at.as_millis()));
    assert_eq!((line.what.as_str(), line.reason.as_str()), ("settle-not-executed", "asked"));
    let state = |record: &Record| {
        let (state, revision) = (record.state.name(), record.revision.to_string());
        json!({ "state": state, "revision": revision, "attempts": record.attempts })
    };
    let written = json!(line);
    assert_eq!((&written["before"], &written["after"]), (&state(seen), &state(next)));
    assert_eq!((line.before(), line.after()), (Some(seen.state.name()), Some(next.state.name())));
}

#[apply(on_each_store)]
async fn a_change_and_its_line_are_written_together(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let seen = unknown(&guarded).await;
    let next = not_executed(&guarded, &seen, fresh());
    let put = swap(&guarded.store(), &seen, &next, guarded.now()).await;
    assert_eq!(put.unwrap(), WriteOutcome::Written);
    assert_written_once(&guarded, &seen, &next, guarded.now()).await;

    let seen = unknown(&guarded).await;
    let corrected = correct(&guarded, &seen).await.unwrap();
    let mut expected = not_executed(&guarded, &seen, corrected.revision);
    expected.note = Some(Note::new("olga@bank: asked"));
    assert_eq!(corrected, expected);
    assert_written_once(&guarded, &seen, &corrected, guarded.now()).await;
}

#[apply(on_each_store)]
async fn a_change_to_a_missing_record_writes_no_audit_line(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let seen = unknown(&guarded).await;
    let (first, second) = (not_executed(&guarded, &seen, fresh()), not_executed(&guarded, &seen, fresh()));
    let (store, now) = (guarded.store(), guarded.now());
    assert_eq!(swap(&store, &seen, &first, now).await.unwrap(), WriteOutcome::Written);
    let put = swap(&store, &seen, &second, now).await;
    assert_eq!(put.unwrap(), WriteOutcome::Refused(Some(Box::new(first.clone()))));
    let corrected = correct(&guarded, &seen).await;
    assert!(matches!(corrected, Err(CorrectionError::Changed("failed_retryable"))), "{corrected:?}");
    assert_written_once(&guarded, &seen, &first, now).await;

    guarded.delete(&seen.key).await;
    let put = swap(&store, &first, &second, now).await;
    assert_eq!(put.unwrap(), WriteOutcome::Refused(None));
    let corrected = correct(&guarded, &seen).await;
    assert!(matches!(corrected, Err(CorrectionError::Deleted)), "{corrected:?}");
    assert_eq!(guarded.record(&seen.key).await, None);
    assert_eq!(store.audit_lines(&seen.key).await.unwrap().len(), 1);
}

// T2, T10
#[apply(on_each_store)]
async fn a_change_whose_answer_is_lost_is_recognised_and_has_one_line(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for fault in [Fault::DropAnswer, Fault::Twice, Fault::DropRequest] {
        let seen = unknown(&guarded).await;
        let next = not_executed(&guarded, &seen, fresh());
        guarded.faults.script("TransactWriteItems", [fault]);
        let mut put = swap(&guarded.store(), &seen, &next, guarded.now()).await;
        if put.is_err() {
            put = swap(&guarded.store(), &seen, &next, guarded.now()).await;
        }
        assert_eq!((put.unwrap(), guarded.faults.left()), (WriteOutcome::Written, 0));
        assert_written_once(&guarded, &seen, &next, guarded.now()).await;
    }
    // The same if the engine sends it again.
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    for fault in [Fault::DropAnswer, Fault::Twice, Fault::DropRequest] {
        let (seen, began_at) = (unknown(&guarded).await, guarded.now());
        guarded.faults.script("TransactWriteItems", [fault]);
        let corrected = correct(&guarded, &seen).await.unwrap();
        assert_eq!((corrected.state.name(), guarded.faults.left()), ("failed_retryable", 0));
        assert_written_once(&guarded, &seen, &corrected, began_at).await;
    }
}

// T10, T11
#[apply(on_each_store)]
async fn an_unseen_change_is_recognised_even_after_the_next_one(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let seen = unknown(&guarded).await;
    let next = not_executed(&guarded, &seen, fresh());
    let (store, now) = (guarded.undisturbed_store(), guarded.now());
    assert_eq!(swap(&store, &seen, &next, now).await.unwrap(), WriteOutcome::Written);
    let request = Request {
        key: seen.key.clone(),
        fingerprints: fingerprints(BODY),
        answer_kind: AnswerKind::Http,
        admission: lambda_idempotency::record::Admission::ALWAYS,
        work: lambda_idempotency::record::Work::Now,
        deadline: None,
        origin: None,
    };
    let taken_over = owned(guarded.executor().reserve(&request).await);
    assert_eq!(swap(&store, &seen, &next, now).await.unwrap(), WriteOutcome::Written);
    drop(taken_over);
    assert_eq!(guarded.state(&request).await, "in_progress");
    assert_eq!(store.audit_lines(&seen.key).await.unwrap().len(), 1);
}

// T10: DynamoDB refuses a token that is reused with other parameters.
#[apply(on_each_store)]
async fn a_change_that_is_sent_again_is_the_same_byte_for_byte(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let seen = unknown(&guarded).await;
    let faults =
        [Fault::TransactionCancelled, Fault::DropRequest, Fault::TransactionCancelled, Fault::DropAnswer];
    guarded.faults.script("TransactWriteItems", faults);
    let began_at = guarded.now();
    let corrected = correct(&guarded, &seen).await.unwrap();
    assert_eq!(guarded.faults.left(), 0);
    assert_written_once(&guarded, &seen, &corrected, began_at).await;
    let bodies = guarded.faults.bodies("TransactWriteItems");
    assert_eq!(bodies.len(), 5);
    assert!(
        bodies.iter().all(|body| *body == bodies[0]),
        "{:?}",
        bodies.iter().map(|b| String::from_utf8_lossy(b)).collect::<Vec<_>>()
    );
}

// T11: the token's ten minutes are over, so only the conditions decide.
#[apply(on_each_store)]
async fn a_change_resent_after_its_token_expired_is_applied_once(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let (seen, began_at) = (unknown(&guarded).await, guarded.now());
    guarded.faults.script("TransactWriteItems", [Fault::TwiceUnderAnotherToken]);
    let corrected = correct(&guarded, &seen).await.unwrap();
    assert_eq!((corrected.state.name(), guarded.faults.left()), ("failed_retryable", 0));
    assert_eq!(guarded.faults.sent("TransactWriteItems"), 2);
    assert_written_once(&guarded, &seen, &corrected, began_at).await;

    // Even if the record was changed since. Its audit line says that the change was applied.
    let seen = unknown(&guarded).await;
    let next = not_executed(&guarded, &seen, fresh());
    let now = guarded.now();
    assert_eq!(swap(&guarded.store(), &seen, &next, now).await.unwrap(), WriteOutcome::Written);
    let request = Request {
        key: seen.key.clone(),
        fingerprints: fingerprints(BODY),
        answer_kind: AnswerKind::Http,
        admission: lambda_idempotency::record::Admission::ALWAYS,
        work: lambda_idempotency::record::Work::Now,
        deadline: None,
        origin: None,
    };
    let taken_over = owned(guarded.executor().reserve(&request).await);
    let before = guarded.item(&seen.key).await;
    guarded.faults.script("TransactWriteItems", [Fault::TwiceUnderAnotherToken]);
    assert_eq!(swap(&guarded.store(), &seen, &next, now).await.unwrap(), WriteOutcome::Written);
    assert_eq!((guarded.item(&seen.key).await, taken_over.execution().attempts()), (before, 2));
    assert_eq!(guarded.undisturbed_store().audit_lines(&seen.key).await.unwrap().len(), 1);
}

// T9
#[apply(on_each_store)]
async fn a_change_waits_for_a_conflicting_transaction_but_not_for_ever(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let seen = unknown(&guarded).await;
    guarded.faults.for_all("TransactWriteItems", Fault::TransactionConflict);
    let corrected = correct(&guarded, &seen).await;
    let Err(CorrectionError::Store(error)) = corrected else { panic!("{corrected:?}") };
    assert_eq!(error.kind(), StoreErrorKind::Contended);
    assert_eq!(guarded.record(&seen.key).await.as_ref(), Some(&seen));
    assert_eq!(guarded.undisturbed_store().audit_lines(&seen.key).await.unwrap(), []);

    guarded.faults.clear();
    guarded.faults.script("TransactWriteItems", [Fault::TransactionConflict, Fault::TransactionConflict]);
    let began_at = guarded.now();
    let corrected = correct(&guarded, &seen).await.unwrap();
    assert_eq!((corrected.state.name(), guarded.faults.left()), ("failed_retryable", 0));
    assert_written_once(&guarded, &seen, &corrected, began_at).await;
}

#[apply(on_each_store)]
async fn a_line_about_something_else_leaves_the_record_alone(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let seen = unknown(&guarded).await;
    let (store, now) = (guarded.store(), guarded.now());
    let about = |record: Option<&Record>| AuditLine::new(AUDIT_FIELDS, now, record, record);
    store.audit(&seen.key, fresh(), &about(Some(&seen))).await.unwrap();
    store.audit(&request().key, fresh(), &about(None)).await.unwrap();
    assert_written_once(&guarded, &seen, &seen, now).await;
}

// T2
#[apply(on_each_store)]
async fn an_unanswered_change_is_confirmed_by_a_read(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let (seen, began_at) = (unknown(&guarded).await, guarded.now());
    guarded.faults.for_all("TransactWriteItems", Fault::DropAnswer);
    let corrected = correct(&guarded, &seen).await.unwrap();
    assert_written_once(&guarded, &seen, &corrected, began_at).await;

    let seen = unknown(&guarded).await;
    guarded.faults.for_all("TransactWriteItems", Fault::DropRequest);
    let corrected = correct(&guarded, &seen).await;
    let Err(CorrectionError::Store(error)) = corrected else { panic!("{corrected:?}") };
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(guarded.record(&seen.key).await.as_ref(), Some(&seen));
}

// T2: a clear refusal of a later try does not say whether the unanswered try was applied.
#[apply(on_each_store)]
async fn a_change_stays_unknown_after_any_try_without_an_answer(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let seen = unknown(&guarded).await;
    guarded.faults.script("TransactWriteItems", [Fault::DropRequest, Fault::AccessDenied]);
    let corrected = correct(&guarded, &seen).await;
    let Err(CorrectionError::Store(error)) = corrected else { panic!("{corrected:?}") };
    assert_eq!((error.kind(), guarded.faults.left()), (StoreErrorKind::Unavailable, 0));

    // A clear refusal without an unanswered try before it is reported at once.
    let (asked, began_at) = (guarded.faults.asked("TransactWriteItems"), guarded.now());
    guarded.faults.script("TransactWriteItems", [Fault::AccessDenied]);
    let corrected = correct(&guarded, &seen).await;
    let Err(CorrectionError::Store(error)) = corrected else { panic!("{corrected:?}") };
    assert_eq!((error.kind(), guarded.now()), (StoreErrorKind::Refused, began_at));
    assert_eq!(guarded.faults.asked("TransactWriteItems"), asked + 1);
}
