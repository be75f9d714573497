//! Operations whose effects are all domain writes: no reservation, one transaction.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::join_all, stream};
use lambda_idempotency::{
    async_trait,
    domain::{DomainWrite, DomainWriteError, Table},
    engine::{Computed, Executor, Replied, Report, Request, SingleTransaction},
    operation::OnLeaseExpiry,
    record::{Admission, Answer, Record, Revision, Says},
    store::{Companion, Store, StoreError, WriteOutcome, dynamodb::DynamoDbStore},
    telemetry::{COMPLETION_DENIED, STORE_ERROR, TRANSACTION_UNCONFIRMED},
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    bank::{Bank, TRANSACTION, too_little},
    counts::counting,
    faults::{ANY, Fault, Late},
    guarded::{
        GRACE, LEASE, RETENTION, completed, fingerprints, operation, outcome_of, owned, random,
        replayed_text, request, told, too_old, written,
    },
    meddling::{Meddled, Meddling},
    on_each_store,
    random::{Random, Seed},
};

fn answer(text: &str) -> Answer {
    Answer::http(201, Vec::new(), text.to_owned())
}

impl Bank {
    /// Runs an operation with these writes, each time.
    async fn transact(
        &self,
        executor: &Executor,
        request: &Request,
        text: &str,
        write: DomainWrite,
    ) -> Replied<()> {
        let text = text.to_owned();
        let compute = move |transaction: SingleTransaction| {
            transaction.write(write.clone()).unwrap();
            let answer = answer(&text);
            async move { Computed::Answer(answer, ()) }.boxed()
        };
        self.guarded.clock.passing(executor.run_single_transaction(request, compute)).await
    }

    async fn taken(&self, request: &Request, cents: u64) -> Replied<()> {
        self.transact(&self.executor(), request, "taken", self.take(cents).or_answer(too_little())).await
    }
}

fn committed(outcome: &Replied<()>) {
    assert!(matches!(outcome, Replied { says: Says::Own { expires_at: Some(_) }, .. }), "{outcome:?}");
}

fn replayed(outcome: Replied<()>) -> String {
    match outcome {
        Replied { says: says @ Says::Replay(_), .. } => replayed_text(Err(says)),
        other => panic!("not replayed: {other:?}"),
    }
}

fn found<T: std::fmt::Debug>(outcome: &Replied<T>) -> &'static str {
    match outcome {
        Replied { says, reply: None } => told(says),
        other => panic!("{other:?}"),
    }
}

#[apply(on_each_store)]
async fn a_fresh_operation_costs_one_round_trip(endpoint: &str) {
    let bank = Bank::on(endpoint).await;
    bank.guarded.meter.reset();
    committed(&bank.taken(&request(), 30).await);
    let used = bank.guarded.meter.reading().total();
    // Twice the record, and twice the account.
    assert_eq!((used.round_trips, used.billed_write_units(), used.read_units), (1, 4.0, 0.0));
    assert_eq!(bank.cents("a").await, Some(70));
}

#[apply(on_each_store)]
async fn a_duplicate_gets_the_answer_and_writes_nothing(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    committed(&bank.taken(&request, 60).await);
    for _ in 0..2 {
        bank.guarded.meter.reset();
        // There is too little money for another one, but the record's own reason comes first.
        assert_eq!(replayed(bank.taken(&request, 60).await), "taken");
        assert_eq!(bank.guarded.meter.reading().total().round_trips, 1);
    }
    assert_eq!(bank.cents("a").await, Some(40));
    assert_eq!(replayed_text(bank.executor().reserve(&request).await), "taken");
}

// T20
#[apply(on_each_store)]
async fn of_a_hundred_simultaneous_requests_one_commits_and_all_get_its_answer(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let (bank, request) = (&bank, &request);
    let outcomes = join_all((0..100).map(|number| async move {
        let text = number.to_string();
        (bank.transact(&bank.executor(), request, &text, bank.take(1)).await, text)
    }))
    .await;
    let (first, others): (Vec<_>, Vec<_>) = outcomes
        .into_iter()
        .partition(|(outcome, _)| matches!(outcome, Replied { says: Says::Own { .. }, .. }));
    assert_eq!((first.len(), bank.cents("a").await), (1, Some(99)));
    for (outcome, _) in others {
        assert_eq!(replayed(outcome), first[0].1);
    }
}

// T1, T11
#[apply(on_each_store)]
async fn a_transaction_whose_answer_was_lost_is_recognised(endpoint: &str) {
    for fault in [Fault::DropAnswer, Fault::Twice, Fault::TwiceUnderAnotherToken] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        bank.guarded.faults.script(TRANSACTION, [fault]);
        committed(&bank.taken(&request, 60).await);
        assert_eq!((bank.cents("a").await, bank.guarded.faults.left()), (Some(40), 0));
    }
}

// T10
#[apply(on_each_store)]
async fn a_transaction_in_conflict_is_resent_byte_for_byte(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let faults =
        [Fault::TransactionCancelled, Fault::TransactionInProgress, Fault::Throttle, Fault::DropRequest];
    bank.guarded.faults.script(TRANSACTION, faults);
    committed(&bank.taken(&request, 30).await);
    let sent = bank.guarded.faults.bodies(TRANSACTION);
    assert_eq!((bank.cents("a").await, bank.guarded.faults.asked(TRANSACTION)), (Some(70), 5));
    assert!(sent.windows(2).all(|pair| pair[0] == pair[1]), "{sent:?}");
}

// T9
#[apply(on_each_store)]
async fn a_lasting_conflict_is_not_confirmed_and_leaves_the_breaker_closed(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let executor = bank.executor();
    let taken = || bank.transact(&executor, &request, "taken", bank.take(30));
    for fault in [Fault::TransactionCancelled, Fault::TransactionInProgress] {
        bank.guarded.faults.for_all(TRANSACTION, fault);
        for _ in 0..8 {
            let (outcome, counts) = counting(taken()).await;
            unconfirmed(&outcome);
            assert_eq!((counts[TRANSACTION_UNCONFIRMED], counts.get(STORE_ERROR)), (1, None));
        }
    }
    bank.guarded.faults.clear();
    committed(&taken().await);
}

#[apply(on_each_store)]
async fn repeated_denials_leave_the_breaker_closed(endpoint: &str) {
    let bank = Bank::on(endpoint).await;
    let executor = bank.executor();
    for _ in 0..8 {
        unconfirmed(&bank.transact(&executor, &request(), "taken", bank.take(101)).await);
    }
    committed(&bank.transact(&executor, &request(), "taken", bank.take(30)).await);
}

fn unconfirmed<T: std::fmt::Debug>(outcome: &Replied<T>) {
    assert!(matches!(outcome, Replied { says: Says::Unconfirmed, .. }), "{outcome:?}");
}

#[apply(on_each_store)]
async fn a_refusal_is_kept_by_a_second_insert(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let outcome = bank.taken(&request, 101).await;
    assert!(matches!(&outcome.says, Says::Refused(replay) if replay.answer == too_little()), "{outcome:?}");
    bank.set("a", 1_000).await;
    assert_eq!(replayed(bank.taken(&request, 101).await), r#"{"title":"Not enough money"}"#);
    assert_eq!(bank.cents("a").await, Some(1_000));
}

/// A store that reports the domain write of the first transaction as refused. It lands before the next insert.
struct LandsLate {
    store: DynamoDbStore,
    denied: AtomicBool,
    late: Mutex<Option<(Record, Vec<Companion>)>>,
}

#[async_trait]
impl Meddling for LandsLate {
    fn store(&self) -> &DynamoDbStore {
        &self.store
    }

    async fn put(
        &self,
        seen: Option<Revision>,
        record: &Record,
        with: &[Companion],
    ) -> Result<WriteOutcome, StoreError> {
        if seen.is_some() {
            return self.store.put(seen, record, with).await;
        }
        if !with.is_empty() && !self.denied.swap(true, Ordering::SeqCst) {
            *self.late.lock().unwrap() = Some((record.clone(), with.to_vec()));
            return Ok(WriteOutcome::Denied(vec![0]));
        }
        let late = self.late.lock().unwrap().take();
        if let Some((record, with)) = late {
            assert_eq!(self.store.put(None, &record, &with).await?, WriteOutcome::Written);
        }
        self.store.put(None, record, with).await
    }
}

// T4
#[apply(on_each_store)]
async fn a_transaction_that_lands_after_its_refusal_answers_every_request(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let store = bank.guarded.store();
    let store = LandsLate { store, denied: AtomicBool::new(false), late: Mutex::default() };
    let executor = Executor::new(Meddled(store), operation()).world(bank.guarded.clock.clone());
    let taken = || bank.transact(&executor, &request, "taken", bank.take(30).or_answer(too_little()));
    for _ in 0..2 {
        assert_eq!(replayed(taken().await), "taken");
    }
    assert_eq!(bank.cents("a").await, Some(70));
}

/// Adds five cents to what it reads, the first time from a stale read.
async fn add_five(
    bank: &Bank,
    request: &Request,
    seen: impl Fn(u64) -> u64 + Send + 'static,
) -> (Replied<()>, u64) {
    let (runs, accounts) = (Arc::new(AtomicU64::new(0)), bank.accounts.clone());
    let run = runs.clone();
    let compute = move |transaction: SingleTransaction| {
        let seen = seen(run.fetch_add(1, Ordering::SeqCst));
        let write = accounts.put(json!({ "id": "a", "cents": seen + 5 }));
        transaction.write(write.condition("cents = :seen").value(":seen", seen).or_recompute()).unwrap();
        async move { Computed::Answer(answer("added"), ()) }.boxed()
    };
    let outcome = bank.guarded.clock.passing(bank.executor().run_single_transaction(request, compute)).await;
    (outcome, runs.load(Ordering::SeqCst))
}

#[apply(on_each_store)]
async fn a_stale_read_computes_again_under_a_new_token(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let (outcome, runs) = add_five(&bank, &request, |run| 98 + run).await;
    committed(&outcome);
    assert_eq!((bank.cents("a").await, runs), (Some(105), 3));
    let token = |body: &Vec<u8>| serde_json::from_slice::<Value>(body).unwrap()["ClientRequestToken"].clone();
    let tokens: Vec<_> = bank.guarded.faults.bodies(TRANSACTION).iter().map(token).collect();
    assert!(tokens[0] != tokens[1] && tokens[1] != tokens[2], "{tokens:?}");
}

#[apply(on_each_store)]
async fn reads_that_stay_stale_commit_nothing(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let (outcome, runs) = add_five(&bank, &request, |_| 7).await;
    unconfirmed(&outcome);
    assert_eq!((bank.cents("a").await, runs, bank.guarded.record(&request.key).await), (Some(100), 5, None));
}

#[apply(on_each_store)]
async fn a_refusal_that_has_no_answer_set_commits_nothing(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let (outcome, counts) =
        counting(bank.transact(&bank.executor(), &request, "taken", bank.take(101))).await;
    unconfirmed(&outcome);
    assert_eq!((counts.get(COMPLETION_DENIED), bank.guarded.record(&request.key).await), (Some(&1), None));
}

#[apply(on_each_store)]
async fn another_request_under_the_key_is_a_mismatch(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    committed(&bank.taken(&request, 30).await);
    let other = Request { fingerprints: fingerprints("{}"), ..request };
    assert_eq!((found(&bank.taken(&other, 30).await), bank.cents("a").await), ("mismatch", Some(70)));
}

async fn nothing(bank: &Bank, executor: &Executor, request: &Request) -> Replied<&'static str> {
    let write = bank.take(30);
    let compute = move |transaction: SingleTransaction| {
        transaction.write(write.clone()).unwrap();
        async { Computed::Nothing("a 500") }.boxed()
    };
    executor.run_single_transaction(request, compute).await
}

#[apply(on_each_store)]
async fn an_answer_that_must_not_be_kept_leaves_no_record(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    assert!(matches!(
        nothing(&bank, &bank.executor(), &request).await,
        Replied { says: Says::Released, reply: Some("a 500") }
    ));
    assert_eq!((bank.cents("a").await, bank.guarded.record(&request.key).await), (Some(100), None));
    committed(&bank.taken(&request, 30).await);
}

#[apply(on_each_store)]
async fn a_duplicate_gets_the_kept_answer_and_not_its_handlers(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    committed(&bank.taken(&request, 30).await);
    match nothing(&bank, &bank.executor(), &request).await {
        Replied { says, reply: None } => assert_eq!(replayed_text(Err(says)), "taken"),
        other => panic!("{other:?}"),
    }
    assert_eq!(bank.cents("a").await, Some(70));
    // T43: while the record cannot be read, no other answer is given.
    bank.guarded.faults.for_all("GetItem", Fault::DropRequest);
    let outcome = bank.guarded.clock.passing(nothing(&bank, &bank.executor(), &request)).await;
    assert!(matches!(outcome, Replied { says: Says::Unavailable, .. }), "{outcome:?}");
}

// What a run sent may still land while the next one fails, and also while the record cannot be read.
#[apply(on_each_store)]
async fn after_a_refused_try_an_empty_run_stays_unconfirmed(endpoint: &str) {
    for unseen in [false, true] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        let (runs, write) = (Arc::new(AtomicU64::new(0)), bank.take(101).or_recompute());
        let compute = move |transaction: SingleTransaction| {
            let first = runs.fetch_add(1, Ordering::SeqCst) == 0;
            transaction.write(write.clone()).unwrap();
            async move { if first { Computed::Answer(answer("taken"), ()) } else { Computed::Nothing(()) } }
                .boxed()
        };
        if unseen {
            // The first read checks the denial.
            bank.guarded.faults.script("GetItem", [Fault::Pass, Fault::DropRequest]);
        }
        unconfirmed(&bank.executor().run_single_transaction(&request, compute).await);
        assert_eq!(bank.guarded.faults.left(), 0);
    }
}

// T38
#[apply(on_each_store)]
async fn a_duplicate_stores_no_body_in_a_body_item(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let large = || {
        let (write, body) = (bank.take(1), random(20_000));
        move |transaction: SingleTransaction| {
            transaction.write(write.clone()).unwrap();
            let answer = Answer::http(200, Vec::new(), body.clone());
            async move { Computed::Answer(answer, ()) }.boxed()
        }
    };
    committed(&bank.executor().run_single_transaction(&request, large()).await);
    let current = bank.guarded.collection(&request.key).await.len();
    let duplicate = bank.executor().run_single_transaction(&request, large()).await;
    assert!(matches!(duplicate, Replied { says: Says::Replay(_), .. }), "{duplicate:?}");
    assert_eq!(
        (bank.guarded.collection(&request.key).await.len(), bank.cents("a").await),
        (current, Some(99))
    );
}

// T17
#[apply(on_each_store)]
async fn a_transaction_without_an_answer_is_found_by_the_retry(endpoint: &str) {
    for (fault, expected) in [(Fault::DropAnswer, "replay"), (Fault::DropRequest, "committed")] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        bank.guarded.faults.for_all(ANY, fault);
        let outcome = bank.taken(&request, 30).await;
        assert!(matches!(outcome, Replied { says: Says::Unconfirmed, .. }), "{outcome:?}");
        bank.guarded.faults.clear();
        bank.guarded.clock.advance(Duration::from_secs(60));
        match expected {
            "replay" => assert_eq!(replayed(bank.taken(&request, 30).await), "taken"),
            _ => committed(&bank.taken(&request, 30).await),
        }
        assert_eq!(bank.cents("a").await, Some(70));
    }
}

// T4
#[apply(on_each_store)]
async fn a_transaction_that_lands_after_the_retrys_does_nothing(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let executor = bank.guarded.executor_of(operation().completion_timeout(Duration::ZERO));
    let late = Late::timing_out();
    bank.guarded.faults.script(TRANSACTION, [late.fault()]);
    let outcome = bank.transact(&executor, &request, "first", bank.take(30)).await;
    assert!(matches!(outcome, Replied { says: Says::Unconfirmed, .. }), "{outcome:?}");
    committed(&bank.transact(&executor, &request, "second", bank.take(30)).await);
    late.release().await;
    assert_eq!(bank.cents("a").await, Some(70));
    assert_eq!(replayed(bank.taken(&request, 30).await), "second");
}

// T12
#[apply(on_each_store)]
async fn an_expired_record_is_replaced(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    committed(&bank.taken(&request, 30).await);
    bank.guarded.clock.advance(RETENTION + Duration::from_secs(301));
    committed(&bank.transact(&bank.executor(), &request, "again", bank.take(30)).await);
    assert_eq!((bank.cents("a").await, replayed(bank.taken(&request, 30).await)), (Some(40), "again".into()));
}

// While a deployment changes the entry point.
#[apply(on_each_store)]
async fn records_of_the_guarded_entry_are_respected(endpoint: &str) {
    let bank = Bank::on(endpoint).await;
    let guarded = bank.executor();
    let begun = request();
    let ours = owned(guarded.reserve(&begun).await);
    assert_eq!(found(&bank.taken(&begun, 30).await), "in flight");
    bank.guarded.clock.advance(LEASE + GRACE);
    assert_eq!(found(&bank.taken(&begun, 30).await), "unknown");
    written(guarded.finish(ours, completed("guarded")).await);
    assert_eq!(replayed(bank.taken(&begun, 30).await), "guarded");
    let released = request();
    let ours = owned(guarded.reserve(&released).await);
    written(guarded.finish(ours, Report::NotExecuted(None)).await);
    committed(&bank.taken(&released, 30).await);
    assert_eq!((bank.cents("a").await, outcome_of(&guarded.reserve(&released).await)), (Some(70), "replay"));
}

#[apply(on_each_store)]
async fn an_old_key_gets_its_record_and_computes_nothing(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let old = Request { admission: too_old(), ..request.clone() };
    let executor = bank.executor();
    let computed = || executor.run_single_transaction::<()>(&old, |_| panic!("it computes"));
    assert_eq!(found(&computed().await), "may not begin");
    committed(&bank.taken(&request, 30).await);
    assert_eq!(replayed(computed().await), "taken");
    bank.guarded.faults.for_all(ANY, Fault::DropRequest);
    assert_eq!(found(&bank.guarded.clock.passing(computed()).await), "unavailable");
    assert_eq!(bank.cents("a").await, Some(70));
}

#[apply(on_each_store)]
async fn a_large_answer_is_kept_in_a_body_item(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let body = random(20_000);
    let (write, sent) = (bank.take(30), body.clone());
    let compute = move |transaction: SingleTransaction| {
        transaction.write(write.clone()).unwrap();
        let answer = Answer::http(200, Vec::new(), sent.clone());
        async move { Computed::Answer(answer, ()) }.boxed()
    };
    committed(&bank.executor().run_single_transaction(&request, compute).await);
    let Err(Says::Replay(replay)) = bank.executor().reserve(&request).await else { panic!("no replay") };
    assert_eq!(replay.answer.body, body);
    assert_eq!(bank.guarded.collection(&request.key).await.len(), 2);
}

#[apply(on_each_store)]
async fn an_unavailable_store_is_not_asked_for_a_while(endpoint: &str) {
    let bank = Bank::on(endpoint).await;
    let executor = bank.guarded.executor_of(operation().completion_timeout(Duration::ZERO));
    bank.guarded.faults.for_all(ANY, Fault::DropRequest);
    let mut unanswered = 0;
    while matches!(
        bank.transact(&executor, &request(), "taken", bank.take(1)).await,
        Replied { says: Says::Unconfirmed, .. }
    ) {
        unanswered += 1;
        assert!(unanswered < 100, "the breaker never opens");
    }
    let asked = bank.guarded.faults.asked(TRANSACTION);
    let outcome = bank.transact(&executor, &request(), "taken", bank.take(1)).await;
    assert_eq!((found(&outcome), bank.guarded.faults.asked(TRANSACTION)), ("unavailable", asked));
}

// T43: its transaction may still be under way.
#[apply(on_each_store)]
async fn a_dead_worker_is_fenced_before_an_empty_run_is_confirmed(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let guarded = bank.guarded.executor_of(operation().effects_in_transaction());
    let dead = owned(guarded.reserve(&request).await);
    dead.execution().write(bank.take(30)).unwrap();
    bank.guarded.clock.advance(LEASE + GRACE);
    assert!(matches!(
        nothing(&bank, &bank.executor(), &request).await,
        Replied { says: Says::Released, reply: Some(_) }
    ));
    assert_eq!(bank.guarded.state(&request).await, "failed_retryable");
    let ended = guarded.finish(dead, completed("late")).await;
    assert!(matches!(ended, Says::NotCommitted), "{ended:?}");
    assert_eq!(bank.cents("a").await, Some(100));
}

// T43: the outcome of that worker is unknown, even if the operation may run again.
#[apply(on_each_store)]
async fn a_dead_worker_of_the_guarded_entry_leaves_the_outcome_unknown(endpoint: &str) {
    for lease_expired in [OnLeaseExpiry::Unknown, OnLeaseExpiry::RunAgain] {
        for first in [true, false] {
            let (bank, request) = (Bank::on(endpoint).await, request());
            let executor = bank.guarded.executor_of(operation().on_lease_expiry(lease_expired));
            let _dead = owned(executor.reserve(&request).await);
            bank.guarded.clock.advance(LEASE + GRACE);
            // A handler that computes nothing, and an old key. Each comes before the other has changed the record, and after.
            for begins in [first, !first, first] {
                let admission = if begins { Admission::ALWAYS } else { too_old() };
                let request = Request { admission, ..request.clone() };
                assert_eq!(found(&nothing(&bank, &executor, &request).await), "unknown", "{lease_expired:?}");
            }
        }
    }
}

#[apply(on_each_store)]
async fn a_write_into_the_table_of_records_is_refused_at_once(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let records = Table::new(bank.guarded.table.as_str(), "pk").sort_key("sk");
    let (write, table) = (records.put(json!({ "pk": "a", "sk": "b" })), bank.guarded.table.clone());
    let compute = move |transaction: SingleTransaction| {
        let refused = transaction.write(write.clone());
        assert_eq!(refused, Err(DomainWriteError::TableOfRecords(table.clone())));
        async { Computed::Nothing(()) }.boxed()
    };
    let outcome = bank.executor().run_single_transaction(&request, compute).await;
    assert!(matches!(outcome, Replied { says: Says::Released, reply: Some(()) }), "{outcome:?}");
}

#[apply(on_each_store)]
async fn with_too_little_time_left_nothing_is_sent(endpoint: &str) {
    let bank = Bank::on(endpoint).await;
    let executor = bank.guarded.executor_of(operation().min_time_to_run(Duration::from_secs(2)));
    let due_in = |seconds| {
        let deadline = Some(bank.guarded.now().plus(Duration::from_secs(seconds)));
        Request { deadline, ..request() }
    };
    let outcome = executor.run_single_transaction::<()>(&due_in(1), |_| panic!("it computes")).await;
    assert_eq!((found(&outcome), bank.guarded.faults.asked(ANY)), ("too late", 0));
    committed(&bank.transact(&executor, &due_in(2), "taken", bank.take(30)).await);
}

// T9, T10, T11, T20: of the requests three in ten are duplicates. Of the transactions one in ten meets a conflict, one in ten loses its
// answer, and one in ten arrives twice. `many_transfers` does it to hundreds through four processes.
#[apply(on_each_store)]
async fn simultaneous_transfers_under_faults_add_up_and_happen_once(endpoint: &str) {
    const ACCOUNTS: usize = 10;
    const OPENING: u64 = 1_000;
    const FRESH: usize = 70;
    const DUPLICATES: usize = 30;
    const MAX_TRIES: usize = 1_000;
    // Held to the end, because a failure prints it.
    let seed = Seed::find();
    let (bank, mut random) = (&Bank::on(endpoint).await, Random::new(seed.0));
    for number in 0..ACCOUNTS {
        bank.set(&format!("a-{number}"), OPENING).await;
    }
    let mut transfers: Vec<_> = (0..FRESH)
        .map(|_| {
            let from = random.below(ACCOUNTS);
            let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
            (request(), from, to, 1 + random.below(300) as u64)
        })
        .collect();
    for _ in 0..DUPLICATES {
        let duplicate = transfers[random.below(transfers.len())].clone();
        transfers.insert(random.below(transfers.len() + 1), duplicate);
    }
    let faults = (0..1_000).map(|_| match random.below(10) {
        0 => Fault::TransactionCancelled,
        1 => Fault::DropAnswer,
        2 => Fault::TwiceUnderAnotherToken,
        _ => Fault::Pass,
    });
    bank.guarded.faults.script(TRANSACTION, faults.collect::<Vec<_>>());

    // Each client has a separate executor with a separate circuit breaker, which its faults alone do not open.
    let moved =
        stream::iter(transfers.iter().enumerate()).map(|(number, (request, from, to, cents))| async move {
            let change = |account: &usize, sign: &str| {
                let id = json!({ "id": format!("a-{account}") });
                bank.accounts.update(id, format!("SET cents = cents {sign} :cents")).value(":cents", cents)
            };
            let writes =
                [change(from, "-").condition("cents >= :cents").or_answer(too_little()), change(to, "+")];
            for _ in 0..MAX_TRIES {
                let (writes, text) = (writes.clone(), number.to_string());
                let compute = move |transaction: SingleTransaction| {
                    writes.iter().for_each(|write| transaction.write(write.clone()).unwrap());
                    let answer = answer(&text);
                    async move { Computed::Answer(answer, ()) }.boxed()
                };
                match bank.executor().run_single_transaction(request, compute).await {
                    Replied { says: Says::Own { .. }, .. } => return number.to_string(),
                    Replied { says: Says::Refused(replay), .. } => {
                        return String::from_utf8(replay.answer.body.to_vec()).unwrap();
                    }
                    Replied { says: says @ Says::Replay(_), .. } => {
                        return replayed_text(Err(says));
                    }
                    // The client sends it again.
                    Replied { says: Says::Unconfirmed, .. } => tokio::task::yield_now().await,
                    other => panic!("{other:?}"),
                }
            }
            panic!("transfer {number} is never confirmed")
        });
    let answers: Vec<_> = bank.guarded.clock.passing(moved.buffered(16).collect()).await;

    // The balance may be below zero in between, because they did not happen in this order.
    let mut expected = [OPENING as i64; ACCOUNTS];
    let mut by_key = HashMap::new();
    for ((request, from, to, cents), answer) in transfers.iter().zip(&answers) {
        match by_key.insert(&request.key, answer) {
            Some(before) => assert_eq!(before, answer, "each key has one answer"),
            None if answer.contains("Not enough") => {}
            None => {
                expected[*from] -= *cents as i64;
                expected[*to] += *cents as i64;
            }
        }
    }
    for (number, cents) in expected.into_iter().enumerate() {
        assert_eq!(bank.cents(&format!("a-{number}")).await, u64::try_from(cents).ok(), "a-{number}");
    }
}
