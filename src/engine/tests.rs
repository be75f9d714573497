//! What the engine does if the store fails, if an answer is lost or late, and if others change the record meanwhile.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::json;

mod phases;
mod rows;

use super::*;
use crate::{
    domain::Table,
    key::RecordKey,
    message::{DeferredReport, Message},
    operation::{OnLeaseExpiry, Operation, WhileInFlight},
    queue::{MemoryQueue, Queue, QueueError, WorkError},
    record::{
        Admission, Answer, BodyId, Encoding, Evidence, KeptAnswer, KeptBody, Place, Record, Reference,
        Report as Kept, ReservationRequest, Revision, Says, SettledBy, State,
        tests::{Mint, Reports, answer, reservation, reservation_for, too_old},
    },
    store::{AuditLine, Companion, Store, StoreError, StoreErrorKind, WriteOutcome, memory::MemoryStore},
    time::Timestamp,
    time_budget::{BODY_OUTLIVES_RECORD, CLOCK_SKEW, STORE_TIMEOUT},
    world::{ManualWorld, World},
};

const NOW: Timestamp = Timestamp::from_secs(1_000_000);
const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(10);

/// Nothing that operators are told.
const NOTHING: [&str; 0] = [];

/// Delivers a deferred report. Returns what operators are told.
async fn delivered(
    executor: &Executor,
    report: &DeferredReport,
) -> std::result::Result<Vec<String>, WorkError> {
    let (seen, ended) = report.read()?;
    let left = match ended {
        None => executor.deliver_phase(seen, report).await?,
        Some(ended) => executor.deliver(seen, ended, report.writes()).await?,
    };
    Ok(match left {
        Left::Nothing => Vec::new(),
        Left::Escalation(reason, _) => vec![reason.to_owned()],
        Left::Alarms(record) => {
            record.untold().map(|alarms| alarms.because.to_string()).into_iter().collect()
        }
    })
}

/// What happens to a write.
enum Fault {
    None,
    /// It is applied, and its answer is lost.
    DropAnswer,
    /// It gets no answer, and is applied when the test decides.
    Late,
    /// A transaction holds the item.
    Contended,
    /// The condition of its first domain write fails, because an earlier try was applied.
    Denied,
    /// It is applied, and its answer comes after this time.
    Slow(Duration),
    /// It is applied. Before its answer comes, another process ends its lease, by a clock that is ahead.
    Expired,
}

/// A write over the record of this revision, if it is no insert.
type LateWrite = (Option<Revision>, Record);

/// A store with faults.
#[derive(Clone)]
pub(crate) struct Faulty {
    inner: MemoryStore,
    world: ManualWorld,
    faults: Arc<Mutex<VecDeque<Fault>>>,
    late: Arc<Mutex<Vec<LateWrite>>>,
    /// Whether no write arrives.
    pub(crate) is_away: Arc<AtomicBool>,
    /// Whether no body can be stored.
    has_no_bodies: Arc<AtomicBool>,
}

type Result<T> = std::result::Result<T, StoreError>;

impl Faulty {
    pub(crate) fn new() -> Self {
        Self {
            inner: MemoryStore::new(),
            world: ManualWorld::at(NOW),
            faults: Arc::default(),
            late: Arc::default(),
            is_away: Arc::default(),
            has_no_bodies: Arc::default(),
        }
    }

    fn script(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    /// The late writes land.
    async fn land(&self) {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        assert!(!late.is_empty());
        for (seen, record) in late {
            self.inner.put(seen, &record, &[]).await.unwrap();
        }
    }

    async fn record(&self) -> Option<Record> {
        self.inner.load(&request().key).await.unwrap()
    }

    async fn state(&self) -> &'static str {
        self.record().await.map_or("absent", |record| record.state.name())
    }

    /// Time passes until this work is done.
    async fn passing<T>(&self, work: impl Future<Output = T>) -> T {
        self.world.passing(work).await
    }

    /// This time passes, and tasks in the background go on.
    async fn rest(&self, time: Duration) {
        let until = self.world.running() + time;
        while self.world.running() < until {
            tokio::task::yield_now().await;
            self.world.advance(Duration::from_millis(5));
        }
    }

    fn executor(&self, operation: Operation) -> Executor {
        Executor::new(self.clone(), operation).world(self.world.clone())
    }

    fn lease_ends(&self) {
        self.world.advance(LEASE + GRACE);
    }
}

#[async_trait]
impl Store for Faulty {
    async fn put(&self, seen: Option<Revision>, record: &Record, with: &[Companion]) -> Result<WriteOutcome> {
        let failed = |kind| Err(StoreError::new(kind, "the test wants it"));
        if self.is_away.load(Ordering::SeqCst) {
            return failed(StoreErrorKind::Unavailable);
        }
        let fault = self.faults.lock().unwrap().pop_front();
        match fault {
            None | Some(Fault::None) => self.inner.put(seen, record, with).await,
            Some(Fault::DropAnswer) => {
                self.inner.put(seen, record, with).await?;
                failed(StoreErrorKind::Unavailable)
            }
            Some(Fault::Late) => {
                self.late.lock().unwrap().push((seen, record.clone()));
                failed(StoreErrorKind::Unavailable)
            }
            Some(Fault::Contended) => failed(StoreErrorKind::Contended),
            Some(Fault::Denied) => Ok(WriteOutcome::Denied(vec![0])),
            Some(Fault::Slow(time)) => {
                let outcome = self.inner.put(seen, record, with).await;
                self.world.advance(time);
                outcome
            }
            Some(Fault::Expired) => {
                self.inner.put(seen, record, with).await?;
                let expired = record.expire(Revision::mint(), Timestamp::MAX).unwrap();
                self.inner.put(Some(record.revision), &expired, &[]).await?;
                Ok(WriteOutcome::Refused(Some(expired.into_record())))
            }
        }
    }

    fn retry_budget(&self) -> Option<&crate::store::RetryBudget> {
        None
    }

    fn records_table(&self) -> Option<&str> {
        None
    }

    async fn load(&self, key: &RecordKey) -> Result<Option<Record>> {
        self.inner.load(key).await
    }

    fn body_capacity(&self, record: &Record) -> usize {
        self.inner.body_capacity(record)
    }

    async fn keep_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        body: Bytes,
        at: Timestamp,
    ) -> Result<Option<Place>> {
        if self.has_no_bodies.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "the test wants it"));
        }
        self.inner.keep_body(key, id, body, at).await
    }

    async fn load_body(&self, key: &RecordKey, id: BodyId, place: Place) -> Result<Option<Bytes>> {
        if self.has_no_bodies.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "the test wants it"));
        }
        self.inner.load_body(key, id, place).await
    }

    async fn refer(&self, reference: &Reference, key: &RecordKey, until: Timestamp) -> Result<()> {
        self.inner.refer(reference, key, until).await
    }

    async fn audit(&self, key: &RecordKey, id: Revision, line: &AuditLine) -> Result<()> {
        self.inner.audit(key, id, line).await
    }

    async fn audit_lines(&self, key: &RecordKey) -> Result<Vec<AuditLine>> {
        self.inner.audit_lines(key).await
    }
}

fn operation() -> Operation {
    Operation::new("pay").lease(LEASE).grace(GRACE)
}

fn request() -> Request {
    let ReservationRequest { key, fingerprints, .. } = reservation("k");
    Request {
        key,
        fingerprints,
        answer_kind: crate::record::AnswerKind::Http,
        admission: Admission::ALWAYS,
        work: crate::record::Work::Now,
        origin: None,
        deadline: None,
    }
}

#[track_caller]
fn owned(outcome: std::result::Result<Ownership, Says<Replay>>) -> Ownership {
    match outcome {
        Ok(owned) => owned,
        other => panic!("{other:?}"),
    }
}

fn charged() -> Report {
    Report::Completed(Answer::json(201, "{}"))
}

fn refused() -> Report {
    Report::Completed(Answer::json(402, "{}"))
}

// T2
#[tokio::test]
async fn a_completion_whose_answer_was_lost_is_written() {
    let store = Faulty::new();
    let executor = store.executor(operation());
    let ours = owned(executor.reserve(&request()).await);
    store.script([Fault::DropAnswer]);
    let ended = store.passing(executor.finish(ours, charged())).await;
    assert!(matches!(ended, Says::Own { expires_at: Some(_) }), "{ended:?}");
}

// T11: its own earlier commit is what refuses the row.
#[tokio::test]
async fn a_row_that_its_own_commit_refuses_is_committed() {
    let store = Faulty::new();
    let executor = store.executor(operation());
    let ours = owned(executor.reserve(&request()).await);
    let row = Table::new("rows", "id").put(json!({ "id": 1 })).condition("attribute_not_exists(id)");
    ours.execution().write(row).unwrap();
    store.script([Fault::DropAnswer, Fault::Denied]);
    let ended = store.passing(executor.finish(ours, charged())).await;
    assert!(matches!(ended, Says::Own { expires_at: Some(_) }), "{ended:?}");
    assert!(store.record().await.unwrap().with_writes);
}

// T39
#[tokio::test]
async fn a_reservation_whose_answer_is_late_runs_nothing() {
    let store = Faulty::new();
    let executor = store.executor(operation());
    store.script([Fault::Slow(LEASE)]);
    let reserved = store.passing(executor.reserve(&request())).await;
    assert!(matches!(reserved, Err(Says::TooLate)), "{reserved:?}");
    store.rest(SECOND).await;
    assert_eq!(store.state().await, "failed_retryable");
}

// T39
#[tokio::test]
async fn a_reservation_that_others_have_changed_is_taken_back() {
    let store = Faulty::new();
    store.script([Fault::Expired]);
    let reserved = store.passing(store.executor(operation()).reserve(&request())).await;
    assert!(matches!(reserved, Err(Says::TooLate)), "{reserved:?}");
    store.rest(SECOND).await;
    assert_eq!(store.state().await, "failed_retryable");
}

// T52
#[tokio::test]
async fn a_request_that_only_wrote_an_expiry_owns_nothing() {
    let store = Faulty::new();
    let executor = store.executor(operation());
    let dead = owned(executor.reserve(&request()).await).execution().attempt();
    store.lease_ends();
    let reserved = executor.reserve(&request()).await;
    assert!(matches!(reserved, Err(Says::Unknown { .. })), "{reserved:?}");
    assert_eq!(store.record().await.unwrap().attempt, dead);
}

#[tokio::test]
#[should_panic(expected = "a request for pay comes to the executor of refund")]
async fn a_request_for_another_operation_reserves_nothing() {
    let executor = Faulty::new().executor(Operation::new("refund"));
    drop(executor.reserve(&request()).await);
}

#[tokio::test]
#[should_panic(expected = "is accepted, not reserved")]
async fn what_is_executed_later_is_not_reserved() {
    let executor = Faulty::new().executor(operation());
    let work = crate::record::Work::Later { claim_by: Timestamp::from_secs(9_000_000_000), max_attempts: 1 };
    drop(executor.reserve(&Request { work, ..request() }).await);
}

// T9
#[tokio::test]
async fn a_record_that_a_transaction_holds_is_in_flight() {
    let store = Faulty::new();
    store.script([Fault::Contended]);
    let reserved = store.executor(operation()).reserve(&request()).await;
    assert!(matches!(reserved, Err(Says::InFlight { .. })), "{reserved:?}");
}

// T17
#[tokio::test]
async fn a_reservation_without_an_answer_is_taken_back() {
    let store = Faulty::new();
    store.script([Fault::DropAnswer]);
    let reserved = store.executor(operation()).reserve(&request()).await;
    assert!(matches!(reserved, Err(Says::Unavailable)), "{reserved:?}");
    // Before its caller is answered: after that, its environment may be frozen.
    assert_eq!(store.state().await, "failed_retryable");
}

/// A store whose reservation got no answer, and the report that its worker deferred. The rest of its work is frozen with it.
async fn not_taken_back(faults: impl IntoIterator<Item = Fault>) -> (Faulty, Executor, Box<DeferredReport>) {
    let (store, queue) = (Faulty::new(), MemoryQueue::new());
    let executor = store.executor(operation()).defer_reports_to(queue.clone());
    store.script(faults);
    let reserved = executor.reserve(&request()).await;
    assert!(matches!(reserved, Err(Says::Unavailable)), "{reserved:?}");
    let [(message, delay)] = &queue.take()[..] else { panic!("not one report") };
    assert_eq!(*delay, STORE_TIMEOUT, "what is on its way lands first");
    let Ok(Message::DeferredReport(report)) = Message::read(message) else { panic!("{message}") };
    (store, executor, report)
}

// T17
#[tokio::test]
async fn what_cannot_be_taken_back_at_once_is_deferred() {
    let (store, executor, report) = not_taken_back([Fault::DropAnswer, Fault::Contended]).await;
    assert_eq!(store.state().await, "in_progress");
    for _ in 0..2 {
        assert_eq!(delivered(&executor, &report).await.unwrap(), NOTHING);
        assert!(store.record().await.unwrap().is_not_begun());
    }
}

// T17, T47
#[tokio::test]
async fn a_deferred_take_back_of_what_never_landed_writes_nothing() {
    let (store, executor, report) = not_taken_back([Fault::Late]).await;
    assert_eq!(delivered(&executor, &report).await.unwrap(), NOTHING);
    assert_eq!(store.state().await, "absent");
    // But what has landed by then is taken back.
    store.land().await;
    assert_eq!(store.state().await, "in_progress");
    assert_eq!(delivered(&executor, &report).await.unwrap(), NOTHING);
    assert!(store.record().await.unwrap().is_not_begun());
}

// T47
#[tokio::test]
async fn a_reservation_that_lands_late_is_taken_back() {
    for is_take_over in [false, true] {
        let store = Faulty::new();
        let executor = store.executor(operation());
        if is_take_over {
            let ours = owned(executor.reserve(&request()).await);
            executor.finish(ours, Report::NotExecuted(None)).await;
            // A fresh reservation, which is refused; then the take-over.
            store.script([Fault::None]);
        }
        store.script([Fault::Late]);
        let reserved = executor.reserve(&request()).await;
        assert!(matches!(reserved, Err(Says::Unavailable)), "{reserved:?}");
        store.rest(SECOND).await;
        store.land().await;
        assert_eq!(store.state().await, "in_progress");
        store.rest(10 * SECOND).await;
        assert_eq!(store.state().await, "failed_retryable", "{is_take_over}");
    }
}

// T49
#[tokio::test]
async fn a_body_that_may_be_deleted_soon_is_stored_again() {
    let store = Faulty::new();
    let engine = Engine { store: Arc::new(store.clone()), world: Arc::new(store.world.clone()) };
    let record = Record::reserve(&reservation("k"), Revision::mint(), NOW);
    let (id, place, encoding): (BodyId, _, _) =
        (store.world.nonce().into(), Place::BodyItem, Encoding::Identity);
    store.keep_body(&record.key, id, Bytes::from_static(b"body"), Timestamp::MAX).await.unwrap();
    let body = || KeptBody::Outside { id, place, encoding, length: 4 };
    let early = engine.keep_anew(&record, body(), NOW, SECOND).await.unwrap();
    assert_eq!(early, body());
    store.world.advance(BODY_OUTLIVES_RECORD);
    let KeptBody::Outside { id: anew, .. } = engine.keep_anew(&record, body(), NOW, SECOND).await.unwrap()
    else {
        panic!("it is still there")
    };
    assert_ne!(anew, id);
    assert!(store.load_body(&record.key, anew, place).await.unwrap().is_some());
}

// T39
#[tokio::test]
async fn a_request_that_resumes_late_sends_no_transaction() {
    for (late, is_committed) in [(CLOCK_SKEW, true), (CLOCK_SKEW + SECOND, false)] {
        let (store, request) = (Faulty::new(), request());
        let world = store.world.clone();
        let outcome = store
            .executor(operation())
            .run_single_transaction(&request, |_| {
                world.advance(late);
                Box::pin(async { Computed::Answer(Answer::json(201, "{}"), ()) })
            })
            .await;
        assert_eq!(matches!(outcome, Replied { says: Says::Own { .. }, .. }), is_committed, "{outcome:?}");
        assert_eq!(store.state().await, if is_committed { "completed" } else { "absent" });
    }
}

/// A run that computes nothing.
async fn runs_empty(store: &Faulty, operation: Operation) -> Replied<()> {
    let executor = store.executor(operation);
    executor.run_single_transaction(&request(), |_| Box::pin(async { Computed::Nothing(()) })).await
}

// T43
#[tokio::test]
async fn a_dead_worker_is_fenced_before_a_single_transaction_answers() {
    let store = Faulty::new();
    drop(owned(store.executor(operation().effects_in_transaction()).reserve(&request()).await));
    store.lease_ends();
    let outcome = runs_empty(&store, operation()).await;
    assert!(matches!(outcome, Replied { says: Says::Released, reply: Some(()) }), "{outcome:?}");
    assert_eq!(store.record().await.unwrap().state.settled_by(), Some(SettledBy::Certainty));
}

// T43
#[tokio::test]
async fn what_a_dead_worker_did_is_unknown_to_a_single_transaction() {
    let (store, again) = (Faulty::new(), operation().on_lease_expiry(OnLeaseExpiry::RunAgain));
    drop(owned(store.executor(operation()).reserve(&request()).await));
    store.lease_ends();
    let outcome = runs_empty(&store, again).await;
    let is_unknown = matches!(outcome, Replied { says: Says::Unknown { .. }, .. });
    assert!(is_unknown, "{outcome:?}");
}

// T43
#[tokio::test]
async fn an_empty_run_after_a_sent_transaction_confirms_nothing() {
    let (store, mut runs) = (Faulty::new(), 0);
    store.script([Fault::Denied]);
    let outcome = store
        .executor(operation())
        .run_single_transaction(&request(), |transaction| {
            runs += 1;
            let computed = if runs == 1 {
                let row = Table::new("rows", "id").put(json!({ "id": 1 }));
                transaction.write(row.condition("attribute_not_exists(id)").or_recompute()).unwrap();
                Computed::Answer(Answer::json(201, "{}"), ())
            } else {
                Computed::Nothing(())
            };
            Box::pin(async { computed })
        })
        .await;
    assert!(matches!(outcome, Replied { says: Says::Unconfirmed, .. }), "{outcome:?}");
}

/// A queue that takes a message as the store goes away.
struct Last(Faulty);

#[async_trait]
impl Queue for Last {
    async fn send(&self, _: &str, _: Duration) -> std::result::Result<(), QueueError> {
        self.0.is_away.store(true, Ordering::SeqCst);
        Ok(())
    }
}

// T5
#[tokio::test]
async fn a_mark_without_an_answer_leaves_its_caller_to_the_other_execution() {
    for again in [false, true] {
        let store = Faulty::new();
        let chosen = if again { OnLeaseExpiry::RunAgain } else { OnLeaseExpiry::Unknown };
        let operation = operation().on_lease_expiry(chosen);
        let executor = store.executor(operation).defer_reports_to(Last(store.clone()));
        let ours = owned(executor.reserve(&request()).await);
        let record = store.record().await.unwrap();
        let state = State::InProgress { lease_until: NOW.plus(LEASE) };
        let second = Record { state, ..record.again(&reservation("k"), Revision::mint(), NOW) };
        store.inner.put(Some(record.revision), &second, &[]).await.unwrap();
        let ended = store.passing(executor.finish(ours, charged())).await;
        assert!(matches!(ended, Says::AnsweredElsewhere), "{again}: {ended:?}");
        assert_eq!(store.record().await, Some(second), "nothing marks it");
    }
}

// T43: its own try may have committed that answer.
#[tokio::test]
async fn a_transaction_that_finds_an_unreadable_answer_is_unconfirmed() {
    let store = Faulty::new();
    let executor = store.executor(operation());
    let body: Vec<u8> = (0..4_000).flat_map(|_| store.world.nonce()).collect();
    let large = Answer::http(201, Vec::new(), Bytes::from(body));
    executor.finish(owned(executor.reserve(&request()).await), Report::Completed(large)).await;
    store.has_no_bodies.store(true, Ordering::SeqCst);
    let small = |_| -> BoxFuture<'static, Computed<()>> {
        Box::pin(async { Computed::Answer(Answer::json(201, "{}"), ()) })
    };
    let ran = store.passing(executor.run_single_transaction(&request(), small)).await;
    assert!(matches!(ran.says, Says::Unconfirmed), "{ran:?}");
}

// T53: another execution may have had the effect that the refusal denies: an earlier one, or a later one once the lease is over.
#[tokio::test]
async fn a_deferred_refusal_is_an_answer_only_if_no_other_execution_ran() {
    for (case, report, is_answer) in [
        ("alone", refused(), true),
        ("after another", refused(), false),
        ("after its lease", refused(), false),
        ("over a report", Report::NotExecuted(None), false),
    ] {
        let (store, queue) = (Faulty::new(), MemoryQueue::new());
        let again = operation().on_lease_expiry(OnLeaseExpiry::RunAgain).completion_timeout(Duration::ZERO);
        let executor = store.executor(again).defer_reports_to(queue.clone());
        let mut ours = owned(executor.reserve(&request()).await);
        match case {
            "after another" => {
                executor.finish(ours, Report::NotExecuted(None)).await;
                ours = owned(executor.reserve(&request()).await);
            }
            "after its lease" => store.lease_ends(),
            "over a report" => {
                let record = store.record().await.unwrap();
                let reported = Record {
                    revision: Revision::mint(),
                    reported: Some(Evidence::Perhaps),
                    ..record.clone()
                };
                store.inner.put(Some(record.revision), &reported, &[]).await.unwrap();
                store.lease_ends();
                ours = owned(executor.reserve(&request()).await);
            }
            _ => {}
        }
        store.is_away.store(true, Ordering::SeqCst);
        let ended = store.passing(executor.finish(ours, report)).await;
        assert_eq!(matches!(ended, Says::Own { expires_at: None }), is_answer, "{case}: {ended:?}");
        assert_eq!(matches!(ended, Says::Unknown { .. }), !is_answer, "{case}: {ended:?}");
        assert_eq!(queue.take().len(), 1, "{case}");
    }
}

// T53
#[tokio::test]
async fn a_refusal_over_a_claimed_effect_is_answered_as_unknown() {
    let store = Faulty::new();
    let executor = store.executor(operation());
    let ours = owned(executor.reserve(&request()).await);
    let record = store.record().await.unwrap();
    let claimed = record.claim(Revision::mint(), NOW, NOW).unwrap();
    store.inner.put(Some(record.revision), &claimed, &[]).await.unwrap();
    let ended = executor.finish(ours, refused()).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
}

// T4
#[tokio::test]
async fn a_transactional_workers_possible_effect_is_none() {
    let store = Faulty::new();
    let executor = store.executor(operation().effects_in_transaction());
    let ours = owned(executor.reserve(&request()).await);
    executor.finish(ours, Report::perhaps("panicked")).await;
    assert_eq!(store.record().await.unwrap().state.settled_by(), Some(SettledBy::Certainty));
}

// T5
#[tokio::test]
async fn a_deferred_effect_under_another_requests_key_is_not_dropped() {
    let store = Faulty::new();
    let first = Record::reserve(&reservation("k"), Revision::mint(), NOW);
    let report = DeferredReport::of(&first, &Kept::Completed(answer()), &[], NOW).unwrap();
    let others = Record::reserve(&reservation_for("k", "another body"), Revision::mint(), NOW);
    store.inner.put(None, &others, &[]).await.unwrap();
    assert_eq!(delivered(&store.executor(operation()), &report).await.unwrap().len(), 1);
    assert_eq!(store.record().await, Some(others));
}

// T5: operators know of both executions, and this one's effect is known.
#[tokio::test]
async fn an_effect_whose_double_execution_is_escalated_ends_the_others_unknown() {
    let store = Faulty::new();
    let first = Record::reserve(&reservation("k"), Revision::mint(), NOW);
    let second = first.again(&reservation("k"), Revision::mint(), NOW);
    let worker = &second;
    let unknown = second.mark_unknown(worker, Revision::mint(), NOW).unwrap();
    store.inner.put(None, &unknown, &[]).await.unwrap();
    let report = DeferredReport::of(&first, &Kept::Completed(answer()), &[], NOW).unwrap();
    assert_eq!(delivered(&store.executor(operation()), &report).await.unwrap().len(), 1);
    assert_eq!(store.state().await, "completed");
}

// T39: it has waited for another execution.
#[tokio::test]
async fn a_waiter_with_too_little_time_left_reserves_nothing() {
    let store = Faulty::new();
    let ours = owned(store.executor(operation()).reserve(&request()).await);
    let patient =
        store.executor(operation().while_in_flight(WhileInFlight::Wait(LEASE)).min_time_to_run(10 * SECOND));
    let request = Request { deadline: Some(NOW.plus(LEASE)), ..request() };
    let waits = async {
        tokio::join!(patient.reserve(&request), async {
            store.world.advance(LEASE - 3 * SECOND);
            store.executor(operation()).finish(ours, Report::NotExecuted(None)).await;
            store.record().await
        })
    };
    let (reserved, released) = store.passing(waits).await;
    assert!(matches!(reserved, Err(Says::TooLate)), "{reserved:?}");
    // A reservation that is taken back would have written.
    assert_eq!(store.record().await, released);
}

// T54: its body cannot be stored yet.
#[tokio::test]
async fn an_effect_is_in_the_record_before_its_report_is_handed_back() {
    let store = Faulty::new();
    let first = Record::reserve(&reservation("k"), Revision::mint(), NOW);
    store.inner.put(None, &first, &[]).await.unwrap();
    let bytes: Vec<u8> = (0..4_000).flat_map(|_| store.world.nonce()).collect();
    let bytes = Bytes::from(bytes);
    let length = bytes.len() as u64;
    let body = KeptBody::Inline { bytes, encoding: Encoding::Identity, length };
    let kept = KeptAnswer { body, ..answer() };
    let report = DeferredReport::of(&first, &Kept::Completed(kept), &[], NOW).unwrap();
    store.has_no_bodies.store(true, Ordering::SeqCst);
    let delivered = store.passing(delivered(&store.executor(operation()), &report)).await;
    assert!(matches!(delivered, Err(WorkError::Unwritten)));
    assert_eq!(store.record().await.unwrap().reported, Some(Evidence::Effect));
}
