//! Domain writes that commit with an operation's completion, or not at all.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lambda_idempotency::{
    async_trait,
    domain::{DomainWrite, DomainWriteError, Table},
    engine::{Executor, Ownership, Replay, Report, Request},
    operation::Operation,
    queue::{MemoryQueue, WorkError},
    reconcile::{Finding, Question, ReconcileOutcome, Reconciler, Reconciliation},
    record::{AlarmKind, Answer, Record, Revision, Says, SettledBy},
    stale::Stale,
    store::{Companion, Store, StoreError, StoreErrorKind, WriteOutcome, dynamodb::DynamoDbStore},
    telemetry::{COMPLETION_DENIED, error_chain},
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    BoxError,
    bank::{Bank, TRANSACTION, too_little},
    counts::counting,
    faults::{ANY, Fault, Late},
    guarded::{
        GRACE, LEASE, completed, operation, outcome_of, owned, replayed_text, request, too_old, written,
    },
    meddling::{Meddled, Meddling},
    on_each_store,
};

impl Bank {
    pub fn reconciliation(&self, dead_letters: &MemoryQueue) -> Reconciliation {
        Reconciliation::new(self.guarded.store(), dead_letters.clone())
            .world(self.guarded.clock.clone())
            .operation(operation(), NeverAsked)
    }

    /// The store goes away between the effect and its completion.
    pub async fn lose(
        &self,
        request: &Request,
        writes: impl IntoIterator<Item = DomainWrite>,
    ) -> Says<Replay> {
        let executor = self.deferring();
        let ours = owned(executor.reserve(request).await);
        writes.into_iter().for_each(|write| ours.execution().write(write).unwrap());
        self.guarded.faults.for_all(ANY, Fault::DropRequest);
        let ended = self.guarded.clock.passing(executor.finish(ours, completed("ok"))).await;
        self.guarded.faults.clear();
        ended
    }
}

/// A reconciler that must not be asked.
struct NeverAsked;

#[async_trait]
impl Reconciler for NeverAsked {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Err("must not be asked".into())
    }
}

fn refused(ended: Says<Replay>) -> Answer {
    match ended {
        Says::Refused(replay) => replay.answer,
        other => panic!("not refused: {other:?}"),
    }
}

fn unknown(ended: &Says<Replay>) {
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
}

#[apply(on_each_store)]
async fn domain_writes_commit_with_the_completion_and_only_then(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let ours = bank.begin(&request).await;
    ours.execution().write(bank.take(30)).unwrap();
    ours.execution().write(bank.book("b-1").if_absent()).unwrap();
    assert_eq!((bank.cents("a").await, bank.cents("b-1").await), (Some(100), None));
    written(bank.executor().finish(ours, completed("taken")).await);
    assert_eq!((bank.cents("a").await, bank.cents("b-1").await), (Some(70), Some(1)));
    assert_eq!(replayed_text(bank.executor().reserve(&request).await), "taken");
    assert_eq!(bank.cents("a").await, Some(70));
}

#[apply(on_each_store)]
async fn a_completion_with_writes_costs_two_round_trips(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    bank.guarded.meter.reset();
    let ours = bank.begin(&request).await;
    ours.execution().write(bank.take(30)).unwrap();
    written(bank.executor().finish(ours, completed("taken")).await);
    let used = bank.guarded.meter.reading().total();
    // The reservation, and twice the record and the account.
    assert_eq!((used.round_trips, used.billed_write_units(), used.read_units), (2, 5.0, 0.0));
}

#[apply(on_each_store)]
async fn writes_of_an_execution_without_an_answer_are_dropped(endpoint: &str) {
    for report in [Report::NotExecuted(None), Report::NotBegun] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        let ours = bank.begin(&request).await;
        ours.execution().write(bank.take(30)).unwrap();
        written(bank.executor().finish(ours, report).await);
        assert_eq!((bank.cents("a").await, bank.guarded.faults.sent(TRANSACTION)), (Some(100), 0));
    }
}

// T2, T11
#[apply(on_each_store)]
async fn a_commit_whose_answer_was_lost_is_recognised(endpoint: &str) {
    for fault in [Fault::DropAnswer, Fault::Twice, Fault::TwiceUnderAnotherToken] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        let ours = bank.begin(&request).await;
        ours.execution().write(bank.take(60)).unwrap();
        ours.execution().write(bank.book("b-1").if_absent()).unwrap();
        // The second time, the balance is too low, and the booking exists.
        bank.guarded.faults.script(TRANSACTION, [fault]);
        written(bank.guarded.clock.passing(bank.executor().finish(ours, completed("taken"))).await);
        assert_eq!((bank.cents("a").await, bank.guarded.faults.left()), (Some(40), 0));
        assert_eq!(replayed_text(bank.executor().reserve(&request).await), "taken");
    }
}

// T10
#[apply(on_each_store)]
async fn a_commit_that_meets_a_conflict_is_sent_again_byte_for_byte(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let ours = bank.begin(&request).await;
    let write = bank.take(30).value(":b", 2).value(":c", 3).name("#x", "x").name("#y", "y");
    ours.execution().write(write.condition("#x <> :b AND #y <> :c")).unwrap();
    bank.guarded
        .faults
        .script(TRANSACTION, [Fault::TransactionCancelled, Fault::DropRequest, Fault::Throttle]);
    written(bank.guarded.clock.passing(bank.executor().finish(ours, completed("taken"))).await);
    let (sent, asked) = (bank.guarded.faults.bodies(TRANSACTION), bank.guarded.faults.asked(TRANSACTION));
    assert_eq!((bank.cents("a").await, asked), (Some(70), 4));
    assert!(sent.windows(2).all(|pair| pair[0] == pair[1]), "{sent:?}");
}

#[apply(on_each_store)]
async fn a_refused_write_completes_with_its_own_answer(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let ours = bank.begin(&request).await;
    ours.execution().write(bank.take(101).or_answer(too_little())).unwrap();
    ours.execution().write(bank.book("b-1")).unwrap();
    let answer = refused(bank.executor().finish(ours, completed("taken")).await);
    assert_eq!(answer, too_little());
    assert_eq!((bank.cents("a").await, bank.cents("b-1").await), (Some(100), None));
    bank.set("a", 1_000).await;
    assert_eq!(replayed_text(bank.executor().reserve(&request).await), r#"{"title":"Not enough money"}"#);
}

#[apply(on_each_store)]
async fn a_refusal_that_has_no_answer_set_leaves_the_outcome_unknown(endpoint: &str) {
    let bank = Bank::on(endpoint).await;
    bank.set("b-1", 1).await;
    for has_answer in [false, true] {
        let request = request();
        let ours = bank.begin(&request).await;
        // One answer cannot be true for two refusals.
        ours.execution()
            .write(if has_answer { bank.take(101).or_answer(too_little()) } else { bank.take(1) })
            .unwrap();
        ours.execution().write(bank.book("b-1").if_absent()).unwrap();
        let (ended, counts) = counting(bank.executor().finish(ours, completed("taken"))).await;
        unknown(&ended);
        assert_eq!(counts.get(COMPLETION_DENIED), Some(&1));
        assert_eq!(
            (outcome_of(&bank.executor().reserve(&request).await), bank.cents("a").await),
            ("unknown", Some(100))
        );
    }
}

// The handler's answer is not true, even if the refusal is settled later.
#[apply(on_each_store)]
async fn a_refusal_that_cannot_be_kept_leaves_its_caller_unknown(endpoint: &str) {
    for transactional in [false, true] {
        let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
        let executor = if transactional {
            let executor = bank.guarded.executor_of(transfer().completion_timeout(Duration::ZERO));
            executor.defer_reports_to(bank.queue.clone())
        } else {
            bank.deferring()
        };
        let ours = owned(executor.reserve(&request).await);
        let write = if transactional { bank.take(101) } else { bank.take(101).or_answer(too_little()) };
        ours.execution().write(write).unwrap();
        bank.guarded.faults.for_all("PutItem", Fault::DropRequest);
        unknown(&bank.guarded.clock.passing(executor.finish(ours, completed("taken"))).await);
        assert_eq!(bank.guarded.faults.sent(TRANSACTION), 1);
        bank.guarded.faults.clear();
        let messages = bank.queue.take();
        if transactional {
            assert_eq!(messages, []);
        } else {
            let [(message, _)] = &messages[..] else { panic!("not one message") };
            bank.reconciliation(&dead_letters).receive(message).await.unwrap();
            let everybody = replayed_text(bank.executor().reserve(&request).await);
            assert_eq!(everybody, r#"{"title":"Not enough money"}"#);
        }
    }
}

#[apply(on_each_store)]
async fn writes_from_a_stale_read_are_computed_again(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let ours = bank.begin(&request).await;
    // As if another client changed the account after the first two reads.
    let (reads, accounts) = (Arc::new(AtomicU64::new(0)), bank.accounts.clone());
    let read = reads.clone();
    ours.execution().write_computed(move || {
        let seen = 98 + read.fetch_add(1, Ordering::SeqCst);
        let write = accounts.put(json!({ "id": "a", "cents": seen + 5 }));
        async move {
            Ok::<_, BoxError>(vec![write.condition("cents = :seen").value(":seen", seen).or_recompute()])
        }
    });
    written(bank.executor().finish(ours, completed("added")).await);
    assert_eq!((bank.cents("a").await, reads.load(Ordering::SeqCst)), (Some(105), 3));
    let tokens: Vec<Value> = bank
        .guarded
        .faults
        .bodies(TRANSACTION)
        .iter()
        .map(|body| serde_json::from_slice::<Value>(body).unwrap()["ClientRequestToken"].clone())
        .collect();
    assert!(tokens.len() == 3 && tokens[0] != tokens[1] && tokens[1] != tokens[2], "{tokens:?}");
}

// A result that was computed from it is invalid.
#[apply(on_each_store)]
async fn a_stale_read_counts_more_than_a_refusal(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    bank.set("b-1", 1).await;
    let ours = bank.begin(&request).await;
    let (runs, accounts) = (Arc::new(AtomicU64::new(0)), bank.accounts.clone());
    let (run, takes) = (runs.clone(), [bank.take(101), bank.take(30)]);
    ours.execution().write_computed(move || {
        let seen = run.fetch_add(1, Ordering::SeqCst);
        let take = takes[seen.min(1) as usize].clone().or_answer(too_little());
        let book = accounts.update(json!({ "id": "b-1" }), "SET cents = :cents").value(":cents", 5);
        let book = book.condition("cents = :seen").value(":seen", seen).or_recompute();
        async move { Ok::<_, BoxError>(vec![take, book]) }
    });
    written(bank.executor().finish(ours, completed("taken")).await);
    assert_eq!((bank.cents("a").await, bank.cents("b-1").await), (Some(70), Some(5)));
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[apply(on_each_store)]
async fn computed_writes_commit_together_with_the_others(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let ours = bank.begin(&request).await;
    ours.execution().write(bank.book("b-1")).unwrap();
    let take = bank.take(30);
    ours.execution().write_computed(move || {
        let take = take.clone();
        async move { Ok::<_, BoxError>(vec![take]) }
    });
    written(bank.executor().finish(ours, completed("taken")).await);
    assert_eq!((bank.cents("a").await, bank.cents("b-1").await), (Some(70), Some(1)));
}

#[apply(on_each_store)]
async fn writes_that_stay_stale_leave_the_outcome_unknown(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let ours = bank.begin(&request).await;
    ours.execution().write(bank.take(101).or_recompute()).unwrap();
    unknown(&bank.executor().finish(ours, completed("taken")).await);
    // Without a queue, the report lies beside the record.
    assert_eq!(bank.guarded.faults.sent(TRANSACTION), 5 + 1);
    let record = bank.guarded.record(&request.key).await.expect("a record");
    assert!(
        record.has_alarm(AlarmKind::RefusedRows) && record.alarms.iter().any(|alarm| alarm.report.is_some())
    );
    assert_eq!(
        (outcome_of(&bank.executor().reserve(&request).await), bank.cents("a").await),
        ("unknown", Some(100))
    );
}

#[apply(on_each_store)]
async fn writes_that_cannot_be_computed_leave_the_outcome_unknown(endpoint: &str) {
    let bank = Bank::on(endpoint).await;
    for how in ["it fails", "it panics", "it writes into the table of records"] {
        let request = request();
        let ours = bank.begin(&request).await;
        let records = Table::new(bank.guarded.table.as_str(), "pk").sort_key("sk");
        let record = records.put(json!({ "pk": request.key.partition_key(), "sk": "other" }));
        ours.execution().write_computed(move || {
            let record = record.clone();
            async move {
                match how {
                    "it fails" => Err::<Vec<DomainWrite>, BoxError>("the account cannot be read".into()),
                    "it panics" => panic!("as a handler can"),
                    _ => Ok(vec![record]),
                }
            }
        });
        unknown(&bank.executor().finish(ours, completed("taken")).await);
        assert_eq!(
            (outcome_of(&bank.executor().reserve(&request).await), bank.guarded.faults.sent(TRANSACTION)),
            ("unknown", 0)
        );
    }
}

// T5, T6
#[apply(on_each_store)]
async fn a_late_worker_commits_only_if_no_other_execution_owns_its_record(endpoint: &str) {
    for taken_over in [false, true] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        let late = bank.begin(&request).await;
        late.execution().write(bank.take(30)).unwrap();
        bank.guarded.clock.advance(LEASE + GRACE);
        assert_eq!(outcome_of(&bank.executor().reserve(&request).await), "unknown");
        if taken_over {
            let reconciler = bank.guarded.executor_of(operation());
            let next = bank.release_and_take_over(&reconciler, &request).await;
            let ended = bank.executor().finish(late, completed("late")).await;
            assert!(matches!(ended, Says::AnsweredElsewhere), "{ended:?}");
            assert_eq!(bank.cents("a").await, Some(100));
            next.execution().write(bank.take(7)).unwrap();
            written(bank.executor().finish(next, completed("next")).await);
            assert_eq!(bank.cents("a").await, Some(93));
        } else {
            written(bank.executor().finish(late, completed("late")).await);
            assert_eq!(bank.cents("a").await, Some(70));
        }
    }
}

impl Bank {
    /// An operator settles the operation as not executed, and a retry runs.
    async fn release_and_take_over(&self, executor: &Executor, request: &Request) -> Ownership {
        let nothing = Reconciliation::new(self.guarded.store(), MemoryQueue::new())
            .world(self.guarded.clock.clone())
            .operation(operation(), NotExecuted);
        nothing.ask(&request.key).await.unwrap();
        owned(executor.reserve(request).await)
    }
}

struct NotExecuted;

#[async_trait]
impl Reconciler for NotExecuted {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok(Finding::NotExecuted)
    }
}

#[apply(on_each_store)]
async fn a_report_with_writes_never_makes_a_new_record(endpoint: &str) {
    let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
    let executor = bank.deferring();
    let ours = owned(executor.reserve(&request).await);
    // Even if nothing can refuse it, the result of the write is not known.
    ours.execution().write(bank.book("b-1")).unwrap();
    bank.guarded.delete(&request.key).await;
    unknown(&executor.finish(ours, completed("taken")).await);
    assert_eq!((bank.cents("b-1").await, bank.guarded.record(&request.key).await), (None, None));
    let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
    bank.reconciliation(&dead_letters).receive(message).await.unwrap();
    assert_eq!((bank.cents("b-1").await, bank.guarded.record(&request.key).await), (None, None));
    let [(dead_letter, _)] = &dead_letters.take()[..] else { panic!("not one dead letter") };
    assert_eq!(serde_json::from_str::<Value>(dead_letter).unwrap()["kind"], "contradiction");
}

#[apply(on_each_store)]
async fn a_report_is_deferred_with_its_writes(endpoint: &str) {
    for what in ["a put", "a conditional update", "an update"] {
        let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
        let update = bank.accounts.update(json!({ "id": "a" }), "SET cents = cents - :cents");
        let write = match what {
            "a put" => bank.book("b-1"),
            "a conditional update" => bank.take(30),
            _ => update.value(":cents", 30),
        };
        let ended = bank.lose(&request, [write]).await;
        // The caller gets the true answer only if nothing can refuse it any more. An attribute may be gone.
        let can_be_refused = what != "a put";
        let expected = if can_be_refused { "unknown" } else { "own" };
        assert_eq!(ended.name(), expected, "{what}");
        let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
        assert_eq!(serde_json::from_str::<Value>(message).unwrap()["kind"], "deferred_report");
        let reconciliation = bank.reconciliation(&dead_letters);
        for _ in 0..2 {
            reconciliation.receive(message).await.unwrap();
            let expected = if can_be_refused { (Some(70), None) } else { (Some(100), Some(1)) };
            assert_eq!((bank.cents("a").await, bank.cents("b-1").await), expected);
        }
        assert_eq!(replayed_text(bank.executor().reserve(&request).await), "ok");
        assert_eq!(dead_letters.take(), []);
    }
}

#[apply(on_each_store)]
async fn a_refused_write_from_the_queue_is_answered_or_escalated(endpoint: &str) {
    for has_answer in [false, true] {
        let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
        let write = bank.take(101);
        let write = if has_answer { write.or_answer(too_little()) } else { write.or_recompute() };
        unknown(&bank.lose(&request, [write, bank.book("b-1")]).await);
        let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
        bank.reconciliation(&dead_letters).receive(message).await.unwrap();
        assert_eq!((bank.cents("a").await, bank.cents("b-1").await), (Some(100), None));
        if has_answer {
            // When it is delivered again, it finds its own answer, which contradicts nothing.
            bank.reconciliation(&dead_letters).receive(message).await.unwrap();
            assert_eq!(dead_letters.take(), []);
            assert_eq!(
                replayed_text(bank.executor().reserve(&request).await),
                r#"{"title":"Not enough money"}"#
            );
        } else {
            assert_eq!(outcome_of(&bank.executor().reserve(&request).await), "unknown");
            let [(dead_letter, _)] = &dead_letters.take()[..] else { panic!("not one dead letter") };
            let dead_letter: Value = serde_json::from_str(dead_letter).unwrap();
            assert_eq!(
                (&dead_letter["kind"], dead_letter["report"]["writes"].as_array().unwrap().len()),
                (&json!("contradiction"), 2)
            );
        }
    }
}

// T16
#[apply(on_each_store)]
async fn writes_too_large_for_a_message_leave_the_outcome_unknown(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let large = bank.accounts.put(json!({ "id": "b-1", "text": "x".repeat(300_000) }));
    unknown(&bank.lose(&request, [large]).await);
    assert_eq!(bank.queue.take(), []);
    bank.guarded.clock.advance(LEASE + GRACE);
    assert_eq!(outcome_of(&bank.executor().reserve(&request).await), "unknown");
}

// After a charge, the report must not be lost.
#[apply(on_each_store)]
async fn a_report_with_an_invalid_expression_is_never_lost(endpoint: &str) {
    for wrong in [bad_condition, bad_update, missing_attribute, missing_table] {
        let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
        let executor = bank.deferring();
        let ours = owned(executor.reserve(&request).await);
        ours.execution().write(wrong(&bank)).unwrap();
        unknown(&bank.guarded.clock.passing(executor.finish(ours, completed("ok"))).await);
        let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
        // It is delivered again and again, and becomes a dead letter.
        let delivered = bank.guarded.clock.passing(bank.reconciliation(&dead_letters).receive(message)).await;
        assert!(delivered.is_err());
        assert_eq!(bank.cents("a").await, Some(100));
    }
}

fn bad_condition(bank: &Bank) -> DomainWrite {
    bank.take(30).condition("cents is much")
}

// DynamoDB does not say which table of a transaction is missing.
#[apply(on_each_store)]
async fn a_refused_transaction_names_its_tables(endpoint: &str) {
    let bank = Bank::on(endpoint).await;
    let request = request();
    let _ours = bank.begin(&request).await;
    let record = bank.guarded.record(&request.key).await.expect("a record");
    let with = [Companion::Domain(missing_table(&bank))];
    let refused = bank.guarded.store().put(Some(record.revision), &record, &with).await;
    let error = refused.expect_err("there is no such table");
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    let error = error_chain(&error);
    assert!(error.contains(&format!("{}, no-such-table)", bank.guarded.table)), "{error}");
}

/// Only the store can refuse it.
fn missing_table(_: &Bank) -> DomainWrite {
    Table::new("no-such-table", "id").put(json!({ "id": "a" }))
}

fn bad_update(bank: &Bank) -> DomainWrite {
    bank.accounts.update(json!({ "id": "a" }), "MAKE cents = :cents").value(":cents", 1)
}

fn missing_attribute(bank: &Bank) -> DomainWrite {
    bank.accounts.update(json!({ "id": "a" }), "SET cents = gone + :cents").value(":cents", 1)
}

#[apply(on_each_store)]
async fn a_write_into_the_table_of_records_is_refused_at_once(endpoint: &str) {
    let bank = Bank::on(endpoint).await;
    let ours = bank.begin(&request()).await;
    let records = Table::new(bank.guarded.table.as_str(), "pk").sort_key("sk");
    let refused = ours.execution().write(records.put(json!({ "pk": "a", "sk": "b" })));
    assert_eq!(refused, Err(DomainWriteError::TableOfRecords(bank.guarded.table.clone())));
    ours.execution().write(bank.take(1)).unwrap();
    let twice = ours.execution().write(bank.take(2));
    assert_eq!(twice, Err(DomainWriteError::SameItem(bank.accounts.name().to_owned())));
    // The rest alone would be half of what the handler wants.
    unknown(&bank.executor().finish(ours, completed("ok")).await);
    assert_eq!(bank.cents("a").await, Some(100));
}

/// A store that reports a domain write of one swap as refused: after it was applied, or before it lands.
struct Lying {
    store: DynamoDbStore,
    /// The swap that is held back, to land later.
    late: Mutex<Option<(Revision, Record, Vec<Companion>)>>,
    lands_first: bool,
    lied: AtomicU64,
}

impl Lying {
    fn new(bank: &Bank, lands_first: bool) -> Self {
        let store = bank.guarded.store();
        Self { store, late: Mutex::default(), lands_first, lied: AtomicU64::new(0) }
    }
}

#[async_trait]
impl Meddling for Lying {
    fn store(&self) -> &DynamoDbStore {
        &self.store
    }

    async fn put(
        &self,
        seen: Option<Revision>,
        to: &Record,
        with: &[Companion],
    ) -> Result<WriteOutcome, StoreError> {
        let Some(seen) = seen else { return self.store.put(None, to, with).await };
        if !with.is_empty() && self.lied.fetch_add(1, Ordering::SeqCst) == 0 {
            if self.lands_first {
                self.store.put(Some(seen), to, with).await?;
            } else {
                *self.late.lock().unwrap() = Some((seen, to.clone(), with.to_vec()));
            }
            return Ok(WriteOutcome::Denied(vec![0]));
        }
        let late = self.late.lock().unwrap().take();
        if let Some((seen, to, with)) = late {
            assert_eq!(self.store.put(Some(seen), &to, &with).await?, WriteOutcome::Written);
        }
        self.store.put(Some(seen), to, with).await
    }
}

// T10: "None" as the record's reason proves nothing. A check of the denial that gets no answer proves nothing either.
#[apply(on_each_store)]
async fn a_denial_of_a_committed_write_is_not_believed(endpoint: &str) {
    for unchecked in [false, true] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        let executor =
            Executor::new(Meddled(Lying::new(&bank, true)), operation()).world(bank.guarded.clock.clone());
        let ours = owned(executor.reserve(&request).await);
        ours.execution().write(bank.take(30).or_answer(too_little())).unwrap();
        if unchecked {
            bank.guarded.faults.script("GetItem", [Fault::DropRequest]);
        }
        written(bank.guarded.clock.passing(executor.finish(ours, completed("taken"))).await);
        assert_eq!((bank.cents("a").await, bank.guarded.faults.left()), (Some(70), 0));
        assert_eq!(replayed_text(bank.executor().reserve(&request).await), "taken");
    }
}

// T4
#[apply(on_each_store)]
async fn a_commit_that_lands_after_its_refusal_answers_every_request(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let executor =
        Executor::new(Meddled(Lying::new(&bank, false)), operation()).world(bank.guarded.clock.clone());
    let ours = owned(executor.reserve(&request).await);
    ours.execution().write(bank.take(30).or_answer(too_little())).unwrap();
    let ended = executor.finish(ours, completed("taken")).await;
    assert!(matches!(ended, Says::Replay(_)), "{ended:?}");
    assert_eq!(
        (bank.cents("a").await, replayed_text(bank.executor().reserve(&request).await)),
        (Some(70), "taken".into())
    );
}

fn transfer() -> Operation {
    operation().effects_in_transaction()
}

fn not_committed(ended: &Says<Replay>) {
    assert!(matches!(ended, Says::NotCommitted), "{ended:?}");
}

// T18
#[apply(on_each_store)]
async fn a_transactional_operation_is_never_unknown(endpoint: &str) {
    let bank = Bank::on(endpoint).await;
    let executor = bank.guarded.executor_of(transfer());
    let request = request();
    for report in [Report::perhaps("panicked"), Report::NotExecuted(None)] {
        let ours = owned(executor.reserve(&request).await);
        ours.execution().write(bank.take(30)).unwrap();
        written(executor.finish(ours, report).await);
        assert_eq!(bank.guarded.state(&request).await, "failed_retryable");
    }
    for refused in [bank.take(101), bank.take(101).or_recompute()] {
        let ours = owned(executor.reserve(&request).await);
        ours.execution().write(refused).unwrap();
        not_committed(&executor.finish(ours, completed("taken")).await);
        assert_eq!(bank.guarded.state(&request).await, "failed_retryable");
    }
    let ours = owned(executor.reserve(&request).await);
    ours.execution().write(bank.take(30)).unwrap();
    written(executor.finish(ours, completed("taken")).await);
    assert_eq!((bank.cents("a").await, outcome_of(&executor.reserve(&request).await)), (Some(70), "replay"));
}

// T36
#[apply(on_each_store)]
async fn a_dead_transactional_worker_is_released_by_certainty(endpoint: &str) {
    for found_by_the_stale_function in [false, true] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        let executor = bank.guarded.executor_of(transfer());
        let dead = owned(executor.reserve(&request).await);
        dead.execution().write(bank.take(30)).unwrap();
        bank.guarded.clock.advance(LEASE + GRACE);
        if found_by_the_stale_function {
            let stale =
                Stale::new(bank.guarded.store(), MemoryQueue::new(), MemoryQueue::new(), MemoryQueue::new());
            stale.world(bank.guarded.clock.clone()).check(&request.key).await.unwrap();
            let record = bank.guarded.record(&request.key).await.unwrap();
            assert_eq!(record.state.settled_by(), Some(SettledBy::Certainty));
            // It stays refused for good.
            not_committed(&executor.finish(dead, completed("late")).await);
            let next = owned(executor.reserve(&request).await);
            next.execution().write(bank.take(7)).unwrap();
            written(executor.finish(next, completed("next")).await);
        } else {
            // One swap, and no question.
            let next = owned(executor.reserve(&request).await);
            not_committed(&executor.finish(dead, completed("late")).await);
            assert!(bank.guarded.record(&request.key).await.unwrap().reported.is_none());
            next.execution().write(bank.take(7)).unwrap();
            written(executor.finish(next, completed("next")).await);
        }
        assert_eq!(bank.cents("a").await, Some(93));
        assert_eq!(replayed_text(executor.reserve(&request).await), "next");
    }
}

// T6: what it could not commit was not done, so no report is needed.
#[apply(on_each_store)]
async fn a_dead_transactional_worker_gets_the_next_ones_answer(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let executor = bank.guarded.executor_of(transfer()).defer_reports_to(bank.queue.clone());
    let dead = owned(executor.reserve(&request).await);
    dead.execution().write(bank.take(30)).unwrap();
    bank.guarded.clock.advance(LEASE + GRACE);
    let next = owned(executor.reserve(&request).await);
    next.execution().write(bank.take(7)).unwrap();
    written(executor.finish(next, completed("next")).await);
    match executor.finish(dead, completed("late")).await {
        Says::Replay(replay) => assert_eq!(replay.answer.body, "next"),
        other => panic!("{other:?}"),
    }
    assert_eq!((bank.cents("a").await, bank.queue.take()), (Some(93), vec![]));
}

// An earlier try may have committed, and then an operator or a restore may have undone it.
#[apply(on_each_store)]
async fn a_transactional_report_without_its_record_is_unknown(endpoint: &str) {
    for with_writes in [true, false] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        let executor = bank.guarded.executor_of(transfer()).defer_reports_to(bank.queue.clone());
        let ours = owned(executor.reserve(&request).await);
        if with_writes {
            ours.execution().write(bank.take(30)).unwrap();
        }
        bank.guarded.delete(&request.key).await;
        unknown(&executor.finish(ours, completed("taken")).await);
        assert_eq!((bank.cents("a").await, bank.guarded.state(&request).await), (Some(100), "absent"));
        assert_eq!(bank.queue.take(), []);
    }
}

// T4, T7
#[apply(on_each_store)]
async fn a_transactional_commit_that_lands_late_does_nothing(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let executor = bank.guarded.executor_of(transfer().completion_timeout(Duration::ZERO));
    let ours = owned(executor.reserve(&request).await);
    ours.execution().write(bank.take(30)).unwrap();
    let late = Late::timing_out();
    bank.guarded.faults.script(TRANSACTION, [late.fault()]);
    unknown(&bank.guarded.clock.passing(executor.finish(ours, completed("taken"))).await);
    bank.guarded.clock.advance(LEASE + GRACE);
    let next = owned(executor.reserve(&request).await);
    late.release().await;
    assert_eq!(bank.cents("a").await, Some(100));
    next.execution().write(bank.take(30)).unwrap();
    written(executor.finish(next, completed("again")).await);
    assert_eq!(
        (bank.cents("a").await, replayed_text(executor.reserve(&request).await)),
        (Some(70), "again".into())
    );
}

#[apply(on_each_store)]
async fn a_transactional_commit_without_an_answer_is_not_deferred(endpoint: &str) {
    for fault in [Fault::DropRequest, Fault::DropAnswer] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        let executor = bank
            .guarded
            .executor_of(transfer().completion_timeout(Duration::ZERO))
            .defer_reports_to(bank.queue.clone());
        let ours = owned(executor.reserve(&request).await);
        ours.execution().write(bank.take(30)).unwrap();
        bank.guarded.faults.for_all(ANY, fault.clone());
        unknown(&bank.guarded.clock.passing(executor.finish(ours, completed("taken"))).await);
        bank.guarded.faults.clear();
        assert_eq!(bank.queue.take(), []);
        bank.guarded.clock.advance(LEASE + GRACE);
        let expected = if matches!(fault, Fault::DropAnswer) { "replay" } else { "owned" };
        assert_eq!(outcome_of(&executor.reserve(&request).await), expected);
    }
}

/// A provider that confirms the effect, with the domain writes that belong to it.
struct Confirms(Vec<DomainWrite>);

#[async_trait]
impl Reconciler for Confirms {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok(Finding::ExecutedWith(Answer::json(201, r#"{"id":"b-1"}"#), self.0.clone()))
    }
}

#[apply(on_each_store)]
async fn a_confirmed_effect_commits_with_its_domain_writes(endpoint: &str) {
    for refused in [false, true] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        let ours = bank.begin(&request).await;
        written(bank.executor().finish(ours, Report::perhaps("handler_failed")).await);
        let write = if refused { bank.take(101) } else { bank.take(30) };
        let reconciliation = Reconciliation::new(bank.guarded.store(), MemoryQueue::new())
            .world(bank.guarded.clock.clone())
            .operation(operation(), Confirms(vec![write, bank.book("b-1")]));
        let outcome = reconciliation.ask(&request.key).await.unwrap();
        if refused {
            assert_eq!((outcome, bank.cents("a").await), (ReconcileOutcome::Escalated, Some(100)));
            assert_eq!(
                (outcome_of(&bank.executor().reserve(&request).await), bank.cents("b-1").await),
                ("unknown", None)
            );
            let because = bank.guarded.escalated_because(&request.key).await.expect("it is escalated");
            assert!(because.contains("the domain writes of its completion were refused"), "{because}");
        } else {
            assert_eq!((bank.cents("a").await, bank.cents("b-1").await), (Some(70), Some(1)));
            assert_eq!(replayed_text(bank.executor().reserve(&request).await), r#"{"id":"b-1"}"#);
            // If it is asked again, it changes nothing more.
            reconciliation.ask(&request.key).await.unwrap();
            assert_eq!(bank.cents("a").await, Some(70));
        }
    }
}

#[apply(on_each_store)]
async fn a_reconcilers_write_into_the_table_of_records_is_not_made(endpoint: &str) {
    let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
    let ours = bank.begin(&request).await;
    written(bank.executor().finish(ours, Report::perhaps("handler_failed")).await);
    let records = Table::new(bank.guarded.table.as_str(), "pk").sort_key("sk");
    // Not the record: DynamoDB refuses two writes to one item.
    let write = records.put(json!({ "pk": request.key.partition_key(), "sk": "other" }));
    let reconciliation = Reconciliation::new(bank.guarded.store(), dead_letters)
        .world(bank.guarded.clock.clone())
        .operation(operation(), Confirms(vec![write]));
    assert!(matches!(reconciliation.ask(&request.key).await.unwrap(), ReconcileOutcome::Scheduled(_)));
    assert_eq!(bank.guarded.collection(&request.key).await.len(), 1, "the record alone");
    assert_eq!(outcome_of(&bank.executor().reserve(&request).await), "unknown");
}

// Before the writes can be made, the record is settled by a source that does not know of them.
#[apply(on_each_store)]
async fn writes_that_a_settled_record_lacks_are_escalated(endpoint: &str) {
    for from_the_queue in [false, true] {
        let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
        let settle = async || {
            bank.guarded.clock.advance(LEASE + GRACE);
            let settled = Reconciliation::new(bank.guarded.store(), MemoryQueue::new())
                .world(bank.guarded.clock.clone())
                .operation(operation(), Executed);
            settled.ask(&request.key).await.unwrap();
        };
        if from_the_queue {
            assert!(matches!(bank.lose(&request, [bank.book("b-1")]).await, Says::Own { expires_at: None }));
            settle().await;
        } else {
            let executor = bank.deferring();
            let ours = owned(executor.reserve(&request).await);
            ours.execution().write(bank.book("b-1")).unwrap();
            settle().await;
            let ended = executor.finish(ours, completed("ok")).await;
            assert!(matches!(ended, Says::Replay(_)), "{ended:?}");
        }
        let reconciliation = bank.reconciliation(&dead_letters);
        for (message, _) in bank.queue.take() {
            assert!(from_the_queue);
            reconciliation.receive(&message).await.unwrap();
        }
        reconciliation.ask_if_due(&request.key).await.unwrap();
        assert_eq!(bank.cents("b-1").await, None);
        let [(dead_letter, _)] = &dead_letters.take()[..] else { panic!("not one dead letter") };
        assert!(
            dead_letter.contains("it was completed without them") && dead_letter.contains("b-1"),
            "{dead_letter}"
        );
    }
}

// The record is settled with them, by the provider's report.
#[apply(on_each_store)]
async fn writes_that_a_settled_record_has_are_not_made_again(endpoint: &str) {
    for from_the_queue in [false, true] {
        let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
        let settle = async || {
            bank.guarded.clock.advance(LEASE + GRACE);
            let settled = Reconciliation::new(bank.guarded.store(), MemoryQueue::new())
                .world(bank.guarded.clock.clone())
                .operation(operation(), Confirms(vec![bank.take(30)]));
            settled.ask(&request.key).await.unwrap();
        };
        if from_the_queue {
            unknown(&bank.lose(&request, [bank.take(30)]).await);
            settle().await;
            let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
            bank.reconciliation(&dead_letters).receive(message).await.unwrap();
        } else {
            let executor = bank.deferring();
            let ours = owned(executor.reserve(&request).await);
            ours.execution().write(bank.take(30)).unwrap();
            settle().await;
            let ended = executor.finish(ours, completed("ok")).await;
            assert!(matches!(ended, Says::Replay(_)), "{ended:?}");
            assert_eq!(bank.queue.take(), []);
        }
        assert_eq!((bank.cents("a").await, dead_letters.take()), (Some(70), vec![]));
    }
}

struct Executed;

#[async_trait]
impl Reconciler for Executed {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok(Finding::Executed(Answer::json(201, "{}")))
    }
}

// A sender to the queue can write any item except records.
#[apply(on_each_store)]
async fn a_message_with_writes_into_the_table_of_records_is_malformed(endpoint: &str) {
    let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
    bank.lose(&request, [bank.book("b-1")]).await;
    let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
    let hostile = message.replace(bank.accounts.name(), &bank.guarded.table);
    assert_ne!(hostile, *message);
    let reconciliation = bank.reconciliation(&dead_letters);
    let received = bank.guarded.clock.passing(reconciliation.receive(&hostile)).await;
    assert!(matches!(received, Err(WorkError::Malformed("writes"))), "{received:?}");
    assert_eq!((bank.cents("b-1").await, bank.guarded.state(&request).await), (None, "in_progress"));
}

// Nor can it refuse a request as a function does: nobody could read that.
#[apply(on_each_store)]
async fn a_message_with_a_refusal_of_the_wrong_kind_is_malformed(endpoint: &str) {
    let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
    let book = bank.book("b-1").condition("attribute_not_exists(id)").or_answer(too_little());
    bank.lose(&request, [book]).await;
    let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
    let hostile = message.replace(r#""status":409"#, r#""refusal":true"#);
    assert_ne!(hostile, *message);
    let reconciliation = bank.reconciliation(&dead_letters);
    let received = bank.guarded.clock.passing(reconciliation.receive(&hostile)).await;
    assert!(matches!(received, Err(WorkError::Malformed("writes"))), "{received:?}");
    assert_eq!((bank.cents("b-1").await, bank.guarded.state(&request).await), (None, "in_progress"));
}

#[apply(on_each_store)]
async fn nothing_joins_a_transaction_once_its_handler_has_answered(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let ours = bank.begin(&request).await;
    let execution = ours.execution().clone();
    written(bank.executor().finish(ours, completed("ok")).await);
    assert_eq!(execution.write(bank.book("b-1")), Err(DomainWriteError::Ended));
}

// T43: an old key does not learn of a dead worker before its death is certain.
#[apply(on_each_store)]
async fn an_old_key_is_answered_only_once_the_dead_worker_is_fenced(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let executor = bank.guarded.executor_of(transfer());
    let dead = owned(executor.reserve(&request).await);
    dead.execution().write(bank.take(30)).unwrap();
    bank.guarded.clock.advance(LEASE + GRACE);
    let old = Request { admission: too_old(), ..request.clone() };
    assert_eq!(outcome_of(&executor.reserve(&old).await), "may not begin");
    not_committed(&executor.finish(dead, completed("late")).await);
    assert_eq!(
        (outcome_of(&executor.reserve(&old).await), bank.cents("a").await),
        ("may not begin", Some(100))
    );
}

#[apply(on_each_store)]
async fn a_transactional_answer_without_writes_is_no_answer_until_it_is_kept(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let executor = bank.guarded.executor_of(transfer().completion_timeout(Duration::ZERO));
    let ours = owned(executor.reserve(&request).await);
    bank.guarded.faults.for_all(ANY, Fault::DropRequest);
    unknown(&bank.guarded.clock.passing(executor.finish(ours, completed("too little"))).await);
}

// An unconditional write that the store will never take.
#[apply(on_each_store)]
async fn a_refused_try_counts_among_unanswered_ones(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let executor = bank.executor().defer_reports_to(bank.queue.clone());
    let ours = owned(executor.reserve(&request).await);
    ours.execution().write(bank.book("b-1")).unwrap();
    bank.guarded.faults.script(TRANSACTION, [Fault::DropRequest]);
    bank.guarded.faults.for_all(TRANSACTION, Fault::AccessDenied);
    unknown(&bank.guarded.clock.passing(executor.finish(ours, completed("ok"))).await);
    assert_eq!(bank.queue.take().len(), 1);
}

// A signature that has expired, or a first try that is still being applied, says nothing about the tries before it.
#[apply(on_each_store)]
async fn a_passing_refusal_proves_nothing_about_earlier_tries(endpoint: &str) {
    for fault in [Fault::ExpiredSignature, Fault::TransactionInProgress] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        let executor = bank.executor().defer_reports_to(bank.queue.clone());
        let ours = owned(executor.reserve(&request).await);
        ours.execution().write(bank.book("b-1")).unwrap();
        bank.guarded.faults.script(TRANSACTION, [Fault::DropAnswer]);
        bank.guarded.faults.for_all(TRANSACTION, fault.clone());
        let ended = bank.guarded.clock.passing(executor.finish(ours, completed("ok"))).await;
        assert!(matches!(ended, Says::Own { expires_at: None }), "{fault:?}: {ended:?}");
        assert_eq!((bank.cents("b-1").await, bank.queue.take().len()), (Some(1), 1), "{fault:?}");
    }
}

#[apply(on_each_store)]
async fn a_refusal_whose_writes_a_settled_record_lacks_is_escalated_too(endpoint: &str) {
    let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
    let executor = bank.deferring();
    let ours = owned(executor.reserve(&request).await);
    ours.execution().write(bank.book("b-1")).unwrap();
    bank.guarded.clock.advance(LEASE + GRACE);
    let settled = Reconciliation::new(bank.guarded.store(), MemoryQueue::new())
        .world(bank.guarded.clock.clone())
        .operation(operation(), Executed);
    settled.ask(&request.key).await.unwrap();
    executor.finish(ours, Report::Completed(Answer::json(402, "{}"))).await;
    bank.reconciliation(&dead_letters).ask_if_due(&request.key).await.unwrap();
    assert_eq!((dead_letters.take().len(), bank.queue.take().len()), (1, 0));
}

// T46: proof is not forgotten because a permission is missing.
#[apply(on_each_store)]
async fn a_proven_effect_whose_writes_the_store_does_not_take_is_claimed(endpoint: &str) {
    let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
    let ours = bank.begin(&request).await;
    written(bank.executor().finish(ours, Report::perhaps("handler_failed")).await);
    let asking = |reconciler: Confirms| {
        Reconciliation::new(bank.guarded.store(), dead_letters.clone())
            .world(bank.guarded.clock.clone())
            .operation(operation(), reconciler)
    };
    let outcome = asking(Confirms(vec![missing_table(&bank)])).ask(&request.key).await.unwrap();
    assert!(matches!(outcome, ReconcileOutcome::Scheduled(_)), "{outcome:?}");
    assert!(bank.guarded.record(&request.key).await.unwrap().reported.is_some());
    // Once the permission exists, the next question settles it.
    asking(Confirms(vec![bank.book("b-1")])).ask(&request.key).await.unwrap();
    assert_eq!((bank.cents("b-1").await, dead_letters.take()), (Some(1), vec![]));
    assert_eq!(outcome_of(&bank.executor().reserve(&request).await), "replay");
}
