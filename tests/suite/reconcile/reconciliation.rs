//! Unknown outcomes, and how reconciliation settles them.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::{
    async_trait,
    engine::{Executor, Ownership, Replay, Report, Request},
    operation::Operation,
    operator::{Correction, CorrectionError, MessageSummary, Operator},
    queue::{MemoryQueue, WorkError},
    reconcile::{Finding, ProviderReport, Question, ReconcileOutcome, Reconciler, Reconciliation},
    record::{Alarm, AlarmKind, Answer, Evidence, Note, Record, Says, State},
    store::{Store, Unsettled, conformance::samples, dynamodb::DynamoDbStore},
    telemetry::{
        ALARMED_COUNT, BETWEEN_WORKERS_COUNT, RECONCILE_POLL, UNKNOWN_COUNT, UNKNOWN_ESCALATED,
        UNKNOWN_OLDEST,
    },
    time::Timestamp,
    time_budget::DEFAULT_MAX_UNKNOWN_AGE,
};
use macro_rules_attribute::apply;

use crate::support::{
    BoxError,
    clock::WatchedClock,
    closed_queue::Closed,
    counts::recording,
    faults::Fault,
    guarded::{
        GRACE, Guarded, Item, LEASE, RETENTION, all_due, body_of, completed, fingerprints, fresh, operation,
        outcome_of, owned, random, record_key, replayed, replayed_text, request, written,
    },
    on_each_store,
};

const NOT_FOUND_GRACE: Duration = Duration::from_secs(300);
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const MAX_IDLE: Duration = Duration::from_secs(100);

type Found = Result<Finding, &'static str>;

/// A reconciler that returns what a test has prepared, and counts the questions.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<(VecDeque<Found>, usize)>>);

impl Provider {
    fn with(findings: impl IntoIterator<Item = Found>) -> Self {
        Self(Arc::new(Mutex::new((findings.into_iter().collect(), 0))))
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

#[async_trait]
impl Reconciler for Provider {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        Ok(state.0.pop_front().expect("the test has prepared an answer")?)
    }
}

struct Reconciling {
    guarded: Guarded,
    dead_letters: MemoryQueue,
    provider: Provider,
    reconciliation: Reconciliation,
}

impl Reconciling {
    async fn on(endpoint: &str, findings: impl IntoIterator<Item = Found>) -> Self {
        Self::of(Guarded::on(endpoint).await, findings)
    }

    /// With a client that does not retry.
    async fn trying_once(endpoint: &str, findings: impl IntoIterator<Item = Found>) -> Self {
        Self::of(Guarded::through(endpoint, |connect| connect.max_attempts(1)).await, findings)
    }

    /// Polls while the store takes no body: as many tries fail as fit into its time. The record's own write succeeds.
    async fn poll_without_bodies(&self, request: &Request) -> ReconcileOutcome {
        self.guarded.faults.script("PutItem", vec![Fault::DropRequest; 9]);
        let asked = self.guarded.clock.passing(self.poll(request)).await;
        assert_eq!(self.guarded.faults.left(), 0);
        asked
    }

    fn of(guarded: Guarded, findings: impl IntoIterator<Item = Found>) -> Self {
        let (dead_letters, provider) = (MemoryQueue::new(), Provider::with(findings));
        let reconciliation = Reconciliation::new(guarded.store(), dead_letters.clone())
            .world(guarded.clock.clone())
            .backoff(FIRST_BACKOFF, MAX_IDLE, 4)
            .not_found_grace(NOT_FOUND_GRACE)
            .operation(operation(), provider.clone());
        Self { guarded, dead_letters, provider, reconciliation }
    }

    async fn unknown(&self) -> Request {
        let (executor, request) = (self.guarded.executor(), request());
        let ours = owned(executor.reserve(&request).await);
        written(executor.finish(ours, Report::perhaps("handler_failed")).await);
        request
    }

    async fn poll(&self, request: &Request) -> ReconcileOutcome {
        self.reconciliation.ask_if_due(&request.key).await.expect("store and queue answer")
    }

    async fn reserve(&self, request: &Request) -> Result<Ownership, Says<Replay>> {
        self.guarded.executor().reserve(request).await
    }

    /// When the next question about the outcome is due, and how many have been asked.
    async fn next(&self, request: &Request) -> (Timestamp, u32) {
        match self.guarded.record(&request.key).await.expect("the record exists").state {
            State::Unknown { reconcile_at, asked, .. } => (reconcile_at, asked),
            other => panic!("{} is not unknown", other.name()),
        }
    }
}

/// A webhook's report of a charge. `webhook` returns the answer.
fn charged(webhook: &Provider) -> ProviderReport {
    ProviderReport::executed(201, webhook.clone())
}

fn executed() -> Found {
    Ok(Finding::Executed(Answer::json(201, r#"{"id":"pay_1"}"#)))
}

#[apply(on_each_store)]
async fn an_executed_operation_is_completed_with_its_answer(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, [executed()]).await;
    let request = reconciling.unknown().await;
    assert_eq!(outcome_of(&reconciling.reserve(&request).await), "unknown");
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Resolved("completed"));
    assert_eq!(replayed_text(reconciling.reserve(&request).await), r#"{"id":"pay_1"}"#);
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Settled);
    assert_eq!(reconciling.provider.asked(), 1);
}

#[apply(on_each_store)]
async fn after_not_executed_the_next_retry_runs_anew(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, [Ok(Finding::NotExecuted)]).await;
    let request = reconciling.unknown().await;
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Resolved("failed_retryable"));
    let second = owned(reconciling.reserve(&request).await);
    assert_eq!(second.execution().attempts(), 2);
    assert_eq!(outcome_of(&reconciling.reserve(&request).await), "in flight");
}

// A request that was still under way can land within the grace, after the question was asked.
#[apply(on_each_store)]
async fn not_found_counts_as_not_executed_only_after_the_grace(endpoint: &str) {
    let findings = (0..3).map(|_| Ok(Finding::NotFound));
    let reconciling = Reconciling::on(endpoint, findings).await;
    let request = reconciling.unknown().await;
    let since = reconciling.guarded.now();
    // It is asked again when the grace is over. The backoff alone does not cause a question before that.
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Scheduled(since.plus(NOT_FOUND_GRACE)));
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::NotDue);
    reconciling.guarded.clock.advance(NOT_FOUND_GRACE - Duration::from_millis(1));
    // An operator's question in between is still too early.
    let early = reconciling.reconciliation.ask(&request.key).await.unwrap();
    assert!(matches!(early, ReconcileOutcome::Scheduled(_)), "{early:?}");
    assert_eq!(reconciling.guarded.state(&request).await, "unknown");
    reconciling.guarded.clock.advance(FIRST_BACKOFF);
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Resolved("failed_retryable"));
}

#[apply(on_each_store)]
async fn an_unanswered_question_backs_off_and_is_finally_escalated(endpoint: &str) {
    let findings =
        [Err("away"), Ok(Finding::AskAgain(Some(Duration::from_secs(50)))), Err("away"), Err("away")];
    let reconciling = Reconciling::on(endpoint, findings).await;
    let request = reconciling.unknown().await;
    let mut backoff = Vec::new();
    for asked in 1..4 {
        let now = reconciling.guarded.now();
        let ReconcileOutcome::Scheduled(at) = reconciling.poll(&request).await else {
            panic!("question {asked}")
        };
        assert_eq!(reconciling.next(&request).await, (at, asked));
        backoff.push(at.since(now).as_secs_f64());
        reconciling.guarded.clock.set(at);
    }
    assert!(
        (7.5..=10.0).contains(&backoff[0]) && backoff[1] == 50.0 && (30.0..=40.0).contains(&backoff[2]),
        "{backoff:?}"
    );
    assert_eq!(reconciling.guarded.escalated_because(&request.key).await, None);

    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Escalated);
    assert_eq!(reconciling.next(&request).await, (Timestamp::MAX, 4));
    let because = reconciling.guarded.escalated_because(&request.key).await;
    assert_eq!(because.as_deref(), Some("all questions were asked, and it is still unknown"));
    // T81: the record says it, and the poll counts it. A letter for each would hide those of other tenants.
    assert!(reconciling.dead_letters.take().is_empty());
    // No more questions are asked, and the outcome still blocks every retry.
    reconciling.guarded.clock.advance(Duration::from_secs(365 * 24 * 3600));
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::NotDue);
    assert_eq!(outcome_of(&reconciling.reserve(&request).await), "unknown");
}

// T50
#[apply(on_each_store)]
async fn an_escalated_outcome_is_counted_by_each_poll(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let request = reconciling.unknown().await;
    // No letter is sent, so none can be lost.
    let asks_once = Reconciliation::new(reconciling.guarded.store(), Closed)
        .world(reconciling.guarded.clock.clone())
        .backoff(FIRST_BACKOFF, MAX_IDLE, 1)
        .operation(operation(), Provider::with([Err("away"), Ok(Finding::NotExecuted)]));
    assert_eq!(asks_once.ask_if_due(&request.key).await.unwrap(), ReconcileOutcome::Escalated);
    assert_eq!(reconciling.next(&request).await, (Timestamp::MAX, 1));
    for _ in 0..2 {
        let (polled, figures) = recording(asks_once.poll(Duration::from_secs(50))).await;
        assert_eq!((polled.unwrap().due, figures[UNKNOWN_ESCALATED].last()), (0, Some(&1.0)));
    }
    // An operator has it asked again.
    asks_once.receive(&MessageSummary::ask(&request.key)).await.unwrap();
    assert_eq!(reconciling.guarded.escalated_because(&request.key).await, None);
}

// T50: an outage of the store must not escalate what it cannot write.
#[apply(on_each_store)]
async fn a_record_that_cannot_be_written_is_not_escalated(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let request = reconciling.unknown().await;
    let poller = Reconciliation::new(reconciling.guarded.store(), reconciling.dead_letters.clone())
        .world(reconciling.guarded.clock.clone())
        .operation(operation(), Provider::with((0..3).map(|_| Ok(Finding::NotFound))));
    // Too late for "not found" to be proof.
    reconciling.guarded.clock.advance(Duration::from_secs(24 * 3600));
    for _ in 0..2 {
        reconciling.guarded.faults.for_all("PutItem", Fault::Throttle);
        let asked = reconciling.guarded.clock.passing(poller.ask_if_due(&request.key)).await;
        assert!(asked.is_err());
    }
    reconciling.guarded.faults.clear();
    assert_eq!(reconciling.guarded.escalated_because(&request.key).await, None);
    assert_eq!(poller.ask_if_due(&request.key).await.unwrap(), ReconcileOutcome::Escalated);
    let because = reconciling.guarded.escalated_because(&request.key).await;
    assert_eq!(because.as_deref(), Some("it is not found, and too late for that to be proof"));
}

#[apply(on_each_store)]
async fn a_record_that_an_operator_requeues_is_asked_about_again(endpoint: &str) {
    let findings = (0..5).map(|_| Err("away")).chain([executed()]);
    let reconciling = Reconciling::on(endpoint, findings).await;
    let request = reconciling.unknown().await;
    while reconciling.poll(&request).await != ReconcileOutcome::Escalated {
        reconciling.guarded.clock.set(reconciling.next(&request).await.0);
    }
    let ReconcileOutcome::Scheduled(at) = reconciling.reconciliation.ask(&request.key).await.unwrap() else {
        panic!("not scheduled")
    };
    assert_eq!(reconciling.next(&request).await, (at, 1));
    assert_eq!(reconciling.guarded.escalated_because(&request.key).await, None);
    let asked = reconciling.reconciliation.ask(&request.key).await.unwrap();
    assert_eq!(asked, ReconcileOutcome::Resolved("completed"));
}

#[apply(on_each_store)]
async fn an_operation_without_a_reconciler_is_escalated_at_once(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let request = reconciling.unknown().await;
    let other = Reconciliation::new(reconciling.guarded.store(), reconciling.dead_letters.clone())
        .world(reconciling.guarded.clock.clone())
        .operation(Operation::new("another"), Provider::default());
    assert_eq!(other.ask_if_due(&request.key).await.unwrap(), ReconcileOutcome::Escalated);
    let because = reconciling.guarded.escalated_because(&request.key).await;
    assert_eq!(because.as_deref(), Some("no reconciler knows the operation"));
    assert_eq!(other.ask_if_due(&request.key).await.unwrap(), ReconcileOutcome::NotDue);
}

// T32
#[apply(on_each_store)]
async fn simultaneous_webhook_and_poller_settle_once(endpoint: &str) {
    for _ in 0..10 {
        let reconciling = Reconciling::on(endpoint, [executed()]).await;
        let request = reconciling.unknown().await;
        let webhook = Provider::with([Ok(Finding::Executed(Answer::json(201, "webhook")))]);
        let effect = charged(&webhook);
        let (polled, reported) = tokio::join!(
            reconciling.reconciliation.ask_if_due(&request.key),
            reconciling.reconciliation.reported(&request.key, &effect)
        );
        let outcomes = [polled.unwrap(), reported.unwrap()];
        let settled = |outcome: &ReconcileOutcome| *outcome == ReconcileOutcome::Resolved("completed");
        let [poll_won, webhook_won] = outcomes.each_ref().map(settled);
        // The poll may read the record only after the webhook has claimed it: then it leaves the question to it.
        let loser = &outcomes[usize::from(poll_won)];
        assert!(poll_won != webhook_won, "{outcomes:?}");
        assert!(
            *loser == ReconcileOutcome::Settled || (webhook_won && *loser == ReconcileOutcome::NotDue),
            "{outcomes:?}"
        );
        let kept = replayed_text(reconciling.reserve(&request).await);
        let winner = if webhook_won { "webhook" } else { r#"{"id":"pay_1"}"# };
        assert_eq!(kept, winner);
    }
}

// A report of an execution outweighs "not found".
#[apply(on_each_store)]
async fn the_providers_report_wins_over_a_release(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, [Ok(Finding::NotExecuted)]).await;
    let request = reconciling.unknown().await;
    reconciling.poll(&request).await;
    let webhook = Provider::with([executed(), executed()]);
    let reported = reconciling.reconciliation.reported(&request.key, &charged(&webhook)).await.unwrap();
    assert_eq!(reported, ReconcileOutcome::Resolved("completed"));
    // It is delivered again, as webhooks are. A late denial changes nothing.
    let again = reconciling.reconciliation.reported(&request.key, &charged(&webhook)).await.unwrap();
    assert_eq!(again, ReconcileOutcome::Settled);
    assert_eq!(replayed_text(reconciling.reserve(&request).await), r#"{"id":"pay_1"}"#);
}

// T7
#[apply(on_each_store)]
async fn a_live_workers_record_is_not_settled(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let request = request();
    let ours = owned(reconciling.reserve(&request).await);
    let until = reconciling.guarded.now().plus(LEASE + GRACE);
    let webhook = Provider::with([]);
    let reported = reconciling.reconciliation.reported(&request.key, &charged(&webhook)).await.unwrap();
    assert_eq!((reported, webhook.asked()), (ReconcileOutcome::InFlight(until), 0));
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::InFlight(until));
    written(reconciling.guarded.executor().finish(ours, completed("mine")).await);
    assert_eq!(replayed_text(reconciling.reserve(&request).await), "mine");
}

#[apply(on_each_store)]
async fn the_providers_report_settles_a_dead_worker_not_yet_expired(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let request = request();
    drop(owned(reconciling.reserve(&request).await));
    reconciling.guarded.clock.advance(LEASE + GRACE);
    let webhook = Provider::with([executed()]);
    let reported = reconciling.reconciliation.reported(&request.key, &charged(&webhook)).await.unwrap();
    assert_eq!(reported, ReconcileOutcome::Resolved("completed"));
}

/// A reconciler that lets the worker end while the question is under way.
struct Meanwhile {
    worker: Executor,
    late: Mutex<Option<Ownership>>,
}

#[async_trait]
impl Reconciler for Meanwhile {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        let late = self.late.lock().unwrap().take().expect("asked once");
        written(self.worker.finish(late, completed("late")).await);
        Ok(Finding::NotExecuted)
    }
}

// T5
#[apply(on_each_store)]
async fn a_worker_that_reports_during_a_question_is_believed(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let request = request();
    let late = owned(reconciling.reserve(&request).await);
    reconciling.guarded.clock.advance(LEASE + GRACE);
    assert_eq!(outcome_of(&reconciling.reserve(&request).await), "unknown");
    let meanwhile = Meanwhile { worker: reconciling.guarded.executor(), late: Mutex::new(Some(late)) };
    let outcome = reconciling
        .reconciliation
        .reported(&request.key, &ProviderReport::executed(201, meanwhile))
        .await
        .unwrap();
    // One of the two is wrong. The library cannot decide which one.
    assert_eq!((outcome, reconciling.dead_letters.take().len()), (ReconcileOutcome::Escalated, 1));
    assert_eq!(replayed_text(reconciling.reserve(&request).await), "late");
}

/// Finds a charge, while another source that asked before the charge existed releases the key.
struct ReleasedMeanwhile(DynamoDbStore, Timestamp);

#[async_trait]
impl Reconciler for ReleasedMeanwhile {
    async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
        let seen = question.record();
        if seen.state.name() == "unknown" {
            let released = samples::released(seen, self.1, RETENTION);
            self.0.put(Some(seen.revision), &released, &[]).await.unwrap();
        }
        Ok(Finding::Executed(Answer::json(201, r#"{"id":"pay_1"}"#)))
    }
}

// T32: two polls at the same moment, or a poll and an operator.
#[apply(on_each_store)]
async fn proof_that_comes_a_moment_after_a_release_is_not_dropped(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let request = reconciling.unknown().await;
    let guarded = &reconciling.guarded;
    let racing = ReleasedMeanwhile(guarded.undisturbed_store(), guarded.now());
    let poller = Reconciliation::new(guarded.store(), reconciling.dead_letters.clone())
        .world(guarded.clock.clone())
        .operation(operation(), racing);
    let outcome = poller.ask_if_due(&request.key).await.unwrap();
    assert_eq!(outcome, ReconcileOutcome::Resolved("completed"));
    assert_eq!(replayed_text(reconciling.reserve(&request).await), r#"{"id":"pay_1"}"#);
}

/// Finds a charge, while the key is released and another execution takes it over.
struct TakenOverMeanwhile(DynamoDbStore, Executor, Timestamp, Arc<Mutex<Option<Ownership>>>);

#[async_trait]
impl Reconciler for TakenOverMeanwhile {
    async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
        let seen = question.record();
        if seen.attempts == 1 {
            let released = samples::released(seen, self.2, RETENTION);
            self.0.put(Some(seen.revision), &released, &[]).await.unwrap();
            let again = Request { key: seen.key.clone(), ..request() };
            *self.3.lock().unwrap() = Some(owned(self.1.reserve(&again).await));
        }
        Ok(Finding::Executed(Answer::json(201, r#"{"id":"pay_1"}"#)))
    }
}

// T5: a released record is not asked about, so the charge would never be seen again.
#[apply(on_each_store)]
async fn proof_keeps_the_next_execution_from_releasing_the_key(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let request = reconciling.unknown().await;
    let (guarded, second) = (&reconciling.guarded, Arc::default());
    let executor = guarded.executor();
    let source = TakenOverMeanwhile(
        guarded.undisturbed_store(),
        guarded.executor(),
        guarded.now(),
        Arc::clone(&second),
    );
    let poller = Reconciliation::new(guarded.store(), reconciling.dead_letters.clone())
        .world(guarded.clock.clone())
        .operation(operation(), source);
    let outcome = poller.ask_if_due(&request.key).await.unwrap();
    assert!(matches!(outcome, ReconcileOutcome::InFlight(_)), "{outcome:?}");
    let second = second.lock().unwrap().take().expect("the key was taken over");
    let ended = executor.finish(second, Report::NotExecuted(None)).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
    assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown");
    assert_eq!(poller.ask_if_due(&request.key).await.unwrap(), ReconcileOutcome::Resolved("completed"));
    assert_eq!(replayed_text(executor.reserve(&request).await), r#"{"id":"pay_1"}"#);
}

/// A reconciler that panics.
struct Panics;

#[async_trait]
impl Reconciler for Panics {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        panic!("an unexpected answer")
    }
}

// A poll asks about many outcomes, starting with the longest overdue.
#[apply(on_each_store)]
async fn a_question_that_panics_is_postponed_and_blocks_no_other(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let request = reconciling.unknown().await;
    let stumbling = Reconciliation::new(reconciling.guarded.store(), reconciling.dead_letters.clone())
        .world(reconciling.guarded.clock.clone())
        .operation(operation(), Panics);
    let outcome = tokio::spawn(async move { stumbling.ask_if_due(&request.key).await });
    assert!(matches!(outcome.await.expect("no panic").unwrap(), ReconcileOutcome::Scheduled(_)));
}

// T2
#[apply(on_each_store)]
async fn a_lost_answer_of_the_settling_write_is_no_second_settlement(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, [executed()]).await;
    let request = reconciling.unknown().await;
    reconciling.guarded.faults.script("PutItem", [Fault::DropAnswer]);
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Resolved("completed"));
    assert_eq!(reconciling.provider.asked(), 1);
}

#[apply(on_each_store)]
async fn the_index_finds_only_what_is_due(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, [Err("away")]).await;
    let store = reconciling.guarded.undisturbed_store();
    let (first, second, later) =
        (reconciling.unknown().await, reconciling.unknown().await, reconciling.unknown().await);
    let ours = owned(reconciling.reserve(&request()).await);
    let settled = request();
    let executor = reconciling.guarded.executor();
    let done = owned(executor.reserve(&settled).await);
    written(executor.finish(done, completed("{}")).await);
    reconciling.poll(&later).await;
    let mut due = all_due(&store, reconciling.guarded.now()).await;
    let mut expected = vec![first.key.clone(), second.key];
    due.sort_by_key(|key| key.partition_key());
    expected.sort_by_key(|key| key.partition_key());
    assert_eq!(due, expected);
    drop(ours);

    // A page for each partition. Each outcome is listed once, and the list can be filtered by tenant.
    let (mut keys, mut of_tenant) = (Vec::new(), Vec::new());
    for (tenant, keys) in [(None, &mut keys), (Some(first.key.tenant()), &mut of_tenant)] {
        let mut from = None;
        loop {
            let page = store.unresolved(tenant, from.as_ref()).await.unwrap();
            keys.extend(page.records.into_iter().map(|record| record.key));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
    }
    assert_eq!((keys.len(), of_tenant), (3, vec![first.key]));
}

#[apply(on_each_store)]
async fn a_reconcilers_large_answer_is_kept_like_a_handlers(endpoint: &str) {
    let body = random(20_000);
    let finding = Finding::Executed(Answer::http(201, Vec::new(), body.clone()));
    let reconciling = Reconciling::on(endpoint, [Ok(finding)]).await;
    let request = reconciling.unknown().await;
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Resolved("completed"));
    let replay = replayed(reconciling.reserve(&request).await);
    assert_eq!(body_of(&replay), Some(&body));
}

// T16, T54
#[apply(on_each_store)]
async fn an_answer_whose_body_cannot_be_stored_now_is_asked_for_again(endpoint: &str) {
    for (status, reported) in [(201, Some(Evidence::Effect)), (402, None)] {
        let body = random(20_000);
        let finding = || Ok(Finding::Executed(Answer::http(status, Vec::new(), body.clone())));
        let reconciling = Reconciling::trying_once(endpoint, [finding(), finding()]).await;
        let (request, guarded) = (reconciling.unknown().await, &reconciling.guarded);
        let asked = reconciling.poll_without_bodies(&request).await;
        assert!(matches!(asked, ReconcileOutcome::Scheduled(_)), "{asked:?}");
        // Until the body is stored, no denial releases an effect.
        assert_eq!(guarded.record(&request.key).await.unwrap().reported, reported);
        guarded.clock.advance(FIRST_BACKOFF);
        assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Resolved("completed"));
        assert_eq!(body_of(&replayed(reconciling.reserve(&request).await)), Some(&body));
    }
}

// T16: the record matters more than its body.
#[apply(on_each_store)]
async fn an_answer_whose_body_the_store_refuses_is_kept_without_it(endpoint: &str) {
    let finding = Finding::Executed(Answer::http(201, Vec::new(), random(20_000)));
    let reconciling = Reconciling::on(endpoint, [Ok(finding)]).await;
    let request = reconciling.unknown().await;
    reconciling.guarded.faults.script("PutItem", [Fault::AccessDenied]);
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Resolved("completed"));
    assert_eq!(body_of(&replayed(reconciling.reserve(&request).await)), None);
}

// T16
#[apply(on_each_store)]
async fn an_answer_whose_body_is_never_stored_is_kept_without_it(endpoint: &str) {
    for status in [201, 402] {
        let finding = || Ok(Finding::Executed(Answer::http(status, Vec::new(), random(20_000))));
        let reconciling = Reconciling::trying_once(endpoint, [finding(), finding()]).await;
        let request = reconciling.unknown().await;
        let asked = reconciling.poll_without_bodies(&request).await;
        assert!(matches!(asked, ReconcileOutcome::Scheduled(_)), "{asked:?}");
        // As long as a deferred report waits for its body.
        reconciling.guarded.clock.advance(Duration::from_secs(241));
        let asked = reconciling.poll_without_bodies(&request).await;
        assert_eq!(asked, ReconcileOutcome::Resolved("completed"));
        assert_eq!(body_of(&replayed(reconciling.reserve(&request).await)), None);
        assert_eq!(reconciling.dead_letters.take().len(), 0);
    }
}

// A record that cannot be asked about stays due, and becomes the longest overdue.
#[apply(on_each_store)]
async fn records_that_cannot_be_read_do_not_block_others(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, [executed()]).await;
    let guarded = &reconciling.guarded;
    let mut damaged = Vec::new();
    for _ in 0..30 {
        let mut item = guarded.item(&reconciling.unknown().await.key).await.unwrap();
        item.remove("attempts");
        damaged.push(item);
    }
    guarded.clock.advance(Duration::from_secs(1));
    let item = guarded.item(&reconciling.unknown().await.key).await.unwrap();
    // As if all were of one tenant.
    let place = item["reconcile_place"].as_s().unwrap().replace('#', "#0");
    for mut damaged in damaged {
        damaged.insert("reconcile_shard".to_owned(), item["reconcile_shard"].clone());
        damaged.insert("reconcile_place".to_owned(), AttributeValue::S(place[..place.len() - 1].to_owned()));
        guarded.write_raw(damaged).await;
    }
    let polled = reconciling.reconciliation.poll(Duration::from_secs(60)).await.unwrap();
    assert_eq!((polled.failed, polled.resolved), (30, 1));
}

/// Its finding is inconclusive. During its first question another poller asks too, and counts its question.
struct AskedTwice(DynamoDbStore, AtomicBool);

#[async_trait]
impl Reconciler for AskedTwice {
    async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
        if !self.1.swap(true, Ordering::SeqCst) {
            let mut counted = question.record().clone();
            counted.revision = fresh();
            let State::Unknown { asked, .. } = &mut counted.state else { panic!("{counted:?}") };
            *asked += 1;
            self.0.put(Some(question.record().revision), &counted, &[]).await.unwrap();
        }
        Ok(Finding::AskAgain(None))
    }
}

// No outcome is escalated without a reason.
#[apply(on_each_store)]
async fn an_outcome_that_a_race_escalates_says_why(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let request = reconciling.unknown().await;
    let guarded = &reconciling.guarded;
    let asked_twice = AskedTwice(guarded.undisturbed_store(), AtomicBool::new(false));
    let reconciliation = Reconciliation::new(guarded.store(), MemoryQueue::new())
        .world(guarded.clock.clone())
        .backoff(FIRST_BACKOFF, MAX_IDLE, 2)
        .operation(operation(), asked_twice);
    let outcome = reconciliation.ask_if_due(&request.key).await.unwrap();
    assert_eq!(outcome, ReconcileOutcome::Escalated);
    assert!(guarded.escalated_because(&request.key).await.is_some());
}

const HOUR: Duration = Duration::from_secs(3600);

// T40: a provider forgets its keys, and then finds nothing.
#[apply(on_each_store)]
async fn not_found_after_the_provider_forgot_is_escalated(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (why_not_at_once, after, outcome) in [
        ("within the window", HOUR, ReconcileOutcome::Resolved("failed_retryable")),
        ("after it", HOUR + Duration::from_millis(1), ReconcileOutcome::Escalated),
    ] {
        let provider = Provider::with(vec![Ok(Finding::NotFound); 3]);
        let operation = operation().not_found_within(HOUR);
        let reconciliation = Reconciliation::new(guarded.store(), MemoryQueue::new())
            .world(guarded.clock.clone())
            .not_found_grace(NOT_FOUND_GRACE)
            .operation(operation.clone(), provider);
        let (executor, request) = (guarded.executor_of(operation), request());
        // Released once, so that the second attempt begins later than the first.
        let first = owned(executor.reserve(&request).await);
        written(executor.finish(first, Report::NotExecuted(None)).await);
        guarded.clock.advance(HOUR);
        let second = owned(executor.reserve(&request).await);
        written(executor.finish(second, Report::perhaps("handler_failed")).await);
        guarded.clock.advance(after);
        let asked = reconciliation.ask_if_due(&request.key).await.expect("an answer");
        assert_eq!(asked, outcome, "{why_not_at_once}");
        let escalated = outcome == ReconcileOutcome::Escalated;
        let because = guarded.escalated_because(&request.key).await;
        let too_late = "it is not found, and too late for that to be proof";
        assert_eq!(because.as_deref(), escalated.then_some(too_late));
        assert_eq!(
            outcome_of(&executor.reserve(&request).await),
            if escalated { "unknown" } else { "owned" }
        );
        if escalated {
            // Requeued by an operator, it is asked about again, and "not found" is still no proof.
            let asked = reconciliation.ask(&request.key).await.expect("an answer");
            assert_eq!(asked, ReconcileOutcome::Escalated);
            assert_eq!(guarded.escalated_because(&request.key).await.as_deref(), Some(too_late));
        }
    }
}

// T41
#[apply(on_each_store)]
async fn a_late_report_begins_the_grace_anew(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, vec![Ok(Finding::NotFound); 3]).await;
    let (guarded, request) = (&reconciling.guarded, request());
    let executor = guarded.executor();
    let slow = owned(executor.reserve(&request).await);
    guarded.clock.advance(LEASE + GRACE);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown");
    guarded.clock.advance(NOT_FOUND_GRACE - Duration::from_secs(1));
    // The worker's last request may still be under way.
    written(executor.finish(slow, Report::perhaps("handler_failed")).await);
    guarded.clock.advance(Duration::from_secs(1));
    assert!(matches!(reconciling.poll(&request).await, ReconcileOutcome::Scheduled(_)));
    guarded.clock.advance(NOT_FOUND_GRACE - Duration::from_secs(1));
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Resolved("failed_retryable"));
}

// T42
#[apply(on_each_store)]
async fn every_settlement_keeps_the_answer_for_the_records_retention(endpoint: &str) {
    let week = Duration::from_secs(7 * 24 * 3600);
    // The retention of the reconciler differs from the guard's.
    let reconciling = Reconciling::on(endpoint, [executed(), executed()]).await;
    let guarded = &reconciling.guarded;
    let unknown = async || {
        let (executor, request) = (guarded.executor_of(operation().retain(week)), request());
        let ours = owned(executor.reserve(&request).await);
        written(executor.finish(ours, Report::perhaps("handler_failed")).await);
        request
    };
    let kept_for = async |request: &Request| {
        let record = guarded.record(&request.key).await.expect("a record");
        record.state.expires_at().expect("it is settled").since(guarded.now().rounded_up_to_second())
    };
    let by_provider = unknown().await;
    reconciling.poll(&by_provider).await;
    assert_eq!(kept_for(&by_provider).await, week);

    let operator = Operator::new(guarded.store()).world(guarded.clock.clone());
    let answer = || Answer::json(201, "{}");
    for (correction, expected) in [
        (Correction::Executed { answer: answer(), retain: None, messages: Vec::new() }, week),
        (Correction::NotExecuted { retain: None }, week),
        (Correction::Executed { answer: answer(), retain: Some(week * 2), messages: Vec::new() }, week * 2),
    ] {
        let by_operator = unknown().await;
        let seen = guarded.record(&by_operator.key).await.expect("a record");
        operator.correct(&seen, &correction, "olga", "asked the bank").await.expect("it is unknown");
        assert_eq!(kept_for(&by_operator).await, expected);
    }

    // With a shorter retention, its key would run again while clients may still use it.
    let refused = async |request: &Request, retain| {
        let seen = guarded.record(&request.key).await.expect("a record");
        let correction = Correction::NotExecuted { retain };
        operator.correct(&seen, &correction, "olga", "asked").await.expect_err("refused")
    };
    let by_operator = unknown().await;
    for retain in [Duration::ZERO, HOUR, week - Duration::from_secs(1)] {
        assert!(matches!(refused(&by_operator, Some(retain)).await, CorrectionError::ShortRetention));
    }
}

// T26: a reconciler's answer is treated like a handler's.
#[apply(on_each_store)]
async fn a_reconcilers_or_operators_answer_keeps_the_same_headers_as_a_handlers(endpoint: &str) {
    let headers = || {
        ["location", "set-cookie", "x-request-id", "date"]
            .map(|name| (name.to_owned(), "v".to_owned()))
            .to_vec()
    };
    let answer = || Answer::http(201, headers(), "{}");
    let kept = |replay: &Replay| {
        let headers = replay.answer.head.headers();
        headers.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let guarded = Guarded::on(endpoint).await;
    let operation = || operation().keep_header("X-Request-Id");
    let provider = Provider::with([Ok(Finding::Executed(answer()))]);
    let reconciliation = Reconciliation::new(guarded.store(), MemoryQueue::new())
        .world(guarded.clock.clone())
        .operation(operation(), provider);
    let operator = Operator::new(guarded.store()).world(guarded.clock.clone());
    for (by_operator, expected) in [(false, vec!["location", "x-request-id"]), (true, vec!["location"])] {
        let (executor, request) = (guarded.executor_of(operation()), request());
        let ours = owned(executor.reserve(&request).await);
        written(executor.finish(ours, Report::perhaps("handler_failed")).await);
        if by_operator {
            let seen = guarded.record(&request.key).await.expect("a record");
            let correction = Correction::Executed { answer: answer(), retain: None, messages: Vec::new() };
            operator.correct(&seen, &correction, "olga", "asked").await.expect("it is unknown");
        } else {
            reconciliation.ask(&request.key).await.expect("an answer");
        }
        assert_eq!(kept(&replayed(executor.reserve(&request).await)), expected, "{by_operator}");
    }
}

// A record that cannot be read would block its key for ever.
#[apply(on_each_store)]
async fn a_status_that_no_response_has_is_not_written(endpoint: &str) {
    for status in [0, 100, 199, 600, u16::MAX] {
        let answer = || Answer::http(status, Vec::new(), "{}");
        let reconciling = Reconciling::on(endpoint, [Ok(Finding::Executed(answer()))]).await;
        let request = reconciling.unknown().await;
        assert!(matches!(reconciling.poll(&request).await, ReconcileOutcome::Scheduled(_)), "{status}");
        let guarded = &reconciling.guarded;
        let seen = guarded.record(&request.key).await.expect("a record");
        let operator = Operator::new(guarded.store()).world(guarded.clock.clone());
        let correction = Correction::Executed { answer: answer(), retain: None, messages: Vec::new() };
        let refused = operator.correct(&seen, &correction, "olga", "asked").await;
        assert!(matches!(refused, Err(CorrectionError::NoStatus)), "{refused:?}");
        assert!(matches!(operator.preview(&seen, &correction), Err(CorrectionError::NoStatus)));
        assert_eq!(guarded.record(&request.key).await.expect("a record"), seen);
    }
}

/// A reconciler that takes as long to answer as the grace lasts.
struct Slow(WatchedClock);

#[async_trait]
impl Reconciler for Slow {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        self.0.advance(NOT_FOUND_GRACE);
        Ok(Finding::NotFound)
    }
}

// T41: the question cannot see what lands while it is being answered.
#[apply(on_each_store)]
async fn not_found_counts_from_the_time_of_the_question(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let reconciliation = Reconciliation::new(guarded.store(), MemoryQueue::new())
        .world(guarded.clock.clone())
        .not_found_grace(NOT_FOUND_GRACE)
        .operation(operation(), Slow(guarded.clock.clone()));
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    written(executor.finish(ours, Report::perhaps("handler_failed")).await);
    let asked = reconciliation.ask(&request.key).await.expect("an answer");
    assert!(matches!(asked, ReconcileOutcome::Scheduled(_)), "{asked:?}");
}

// T50: the poller was down.
#[apply(on_each_store)]
async fn an_outcome_unasked_for_a_day_is_escalated_after_one_question(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, [Err("away"), Err("away"), executed()]).await;
    let request = reconciling.unknown().await;
    reconciling.guarded.clock.advance(DEFAULT_MAX_UNKNOWN_AGE);
    let ReconcileOutcome::Scheduled(at) = reconciling.poll(&request).await else { panic!("not scheduled") };
    reconciling.guarded.clock.set(at);
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Escalated);
    let because = reconciling.guarded.escalated_because(&request.key).await;
    assert_eq!(because.as_deref(), Some("it has been unknown for too long"));
    assert_eq!(reconciling.provider.asked(), 2);
    // An operator's question is still asked.
    let asked = reconciling.reconciliation.ask(&request.key).await.unwrap();
    assert_eq!(asked, ReconcileOutcome::Resolved("completed"));
}

// T50: what `ask` and `redrive` send restarts both bounds, the number of questions and the day.
#[apply(on_each_store)]
async fn the_polls_after_an_operators_question_do_not_escalate_at_once(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, (0..6).map(|_| Err("away"))).await;
    let request = reconciling.unknown().await;
    reconciling.guarded.clock.advance(2 * DEFAULT_MAX_UNKNOWN_AGE);
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Escalated);
    reconciling.reconciliation.receive(&MessageSummary::ask(&request.key)).await.expect("it is asked");
    for asked in [1, 2, 3] {
        let (at, before) = reconciling.next(&request).await;
        assert_eq!(before, asked);
        reconciling.guarded.clock.set(at);
        let polled = reconciling.poll(&request).await;
        assert_eq!(polled == ReconcileOutcome::Escalated, asked == 3, "{polled:?} after {asked} questions");
    }
}

// T53: a deployment released what it did.
#[apply(on_each_store)]
async fn only_proof_or_an_operator_ends_what_an_operator_holds(endpoint: &str) {
    let denials = [Ok(Finding::NotFound), Ok(Finding::NotExecuted), executed()];
    let reconciling = Reconciling::on(endpoint, denials).await;
    let (guarded, request) = (&reconciling.guarded, request());
    let executor = guarded.executor();
    let ours = owned(executor.reserve(&request).await);
    written(executor.finish(ours, Report::NotExecuted(None)).await);
    let operator = Operator::new(guarded.store()).world(guarded.clock.clone());
    let seen = guarded.record(&request.key).await.expect("a record");
    let hold = async || operator.correct(&seen, &Correction::Hold, "olga", "a bad deployment").await;
    hold().await.expect("it was released");
    assert_eq!(outcome_of(&reconciling.reserve(&request).await), "unknown");
    let again = hold().await;
    assert!(matches!(again, Err(CorrectionError::Changed("unknown"))), "{again:?}");

    guarded.clock.advance(2 * NOT_FOUND_GRACE);
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::NotDue);
    let is_denied = async || guarded.record(&request.key).await.expect("a record").is_denied();
    assert!(!is_denied().await, "the provider was not asked since");
    for _ in ["not found", "not executed"] {
        let asked = reconciling.reconciliation.ask(&request.key).await.expect("an answer");
        assert_eq!(asked, ReconcileOutcome::Escalated);
        assert!(is_denied().await);
        assert_eq!(outcome_of(&reconciling.reserve(&request).await), "unknown");
    }
    let asked = reconciling.reconciliation.ask(&request.key).await.expect("an answer");
    assert_eq!(asked, ReconcileOutcome::Resolved("completed"));
}

// T32: the retry was faster.
#[apply(on_each_store)]
async fn what_a_retry_has_taken_over_is_not_held(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    written(executor.finish(ours, Report::NotExecuted(None)).await);
    let seen = guarded.record(&request.key).await.expect("a record");
    let ours = owned(executor.reserve(&request).await);
    let operator = Operator::new(guarded.store()).world(guarded.clock.clone());
    let held = operator.correct(&seen, &Correction::Hold, "olga", "a bad deployment").await;
    assert!(matches!(held, Err(CorrectionError::Changed("in_progress"))), "{held:?}");
    written(executor.finish(ours, completed("{}")).await);
    assert_eq!(guarded.undisturbed_store().audit_lines(&request.key).await.expect("readable"), []);
}

// T50, T40
#[apply(on_each_store)]
async fn nothing_is_released_while_a_provider_has_an_incident(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let request = reconciling.unknown().await;
    let provider = Provider::with((0..3).map(|_| Ok(Finding::NotFound)));
    let reconciliation = Reconciliation::new(reconciling.guarded.store(), reconciling.dead_letters.clone())
        .world(reconciling.guarded.clock.clone())
        .not_found_grace(NOT_FOUND_GRACE)
        .operation(operation(), provider.clone());
    let operator = Operator::new(reconciling.guarded.store()).world(reconciling.guarded.clock.clone());
    reconciling.guarded.clock.advance(NOT_FOUND_GRACE);
    let off = operator.switch_not_found(None, false, "olga", "INC-17").await.unwrap().expect("switched");
    let outcome = reconciliation.ask_if_due(&request.key).await.unwrap();
    assert!(matches!(outcome, ReconcileOutcome::Scheduled(_)), "{outcome:?}");
    reconciling.guarded.clock.set(reconciling.next(&request).await.0);
    operator.switch_not_found(Some(&off), true, "olga", "it is over").await.unwrap().expect("switched");
    let outcome = reconciliation.ask_if_due(&request.key).await.unwrap();
    assert_eq!(outcome, ReconcileOutcome::Resolved("failed_retryable"));
    let released = reconciling.guarded.record(&request.key).await.expect("the record exists");
    assert!(released.note.is_some_and(|note| note.as_str().contains("not found")));
}

// T50: whether a provider has an incident is not known then.
#[apply(on_each_store)]
async fn not_found_releases_nothing_if_its_switch_cannot_be_read(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, [Ok(Finding::NotFound), Ok(Finding::NotFound)]).await;
    let request = reconciling.unknown().await;
    reconciling.guarded.clock.advance(NOT_FOUND_GRACE);
    let name = [("pk", "not-found-releases"), ("sk", "switch")];
    let text = |(name, text): (&str, &str)| (name.to_owned(), AttributeValue::S(text.to_owned()));
    let empty = name.map(text).into();
    reconciling.guarded.write_raw(Item::clone(&empty)).await;
    let outcome = reconciling.reconciliation.ask_if_due(&request.key).await.unwrap();
    assert!(matches!(outcome, ReconcileOutcome::Scheduled(_)), "{outcome:?}");
    reconciling.guarded.delete_raw(&empty).await;
    reconciling.guarded.clock.set(reconciling.next(&request).await.0);
    let outcome = reconciling.reconciliation.ask_if_due(&request.key).await.unwrap();
    assert_eq!(outcome, ReconcileOutcome::Resolved("failed_retryable"));
}

#[apply(on_each_store)]
async fn a_poll_begins_no_question_it_has_no_time_for(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let request = reconciling.unknown().await;
    let polled = reconciling.reconciliation.poll(Duration::from_millis(999)).await.unwrap();
    assert_eq!((polled.due, reconciling.provider.asked()), (0, 0));
    assert_eq!(reconciling.next(&request).await.1, 0);
    let message = r#"{"version":1,"kind":"ask","key":"KEY"}"#.replace("KEY", &request.key.partition_key());
    let received = reconciling.reconciliation.receive_within(&message, Duration::from_millis(999)).await;
    assert!(matches!(received, Err(WorkError::NoTime)), "{received:?}");
}

// T50
#[apply(on_each_store)]
async fn each_poll_reports_escalated_outcomes_until_they_are_settled(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, [Ok(Finding::NotFound)]).await;
    let request = reconciling.unknown().await;
    // Too late for "not found" to be proof.
    reconciling.guarded.clock.advance(Duration::from_secs(24 * 60 * 60));
    assert_eq!(reconciling.poll(&request).await, ReconcileOutcome::Escalated);
    let polled = async || {
        let (polled, figures) = recording(reconciling.reconciliation.poll(Duration::from_secs(50))).await;
        polled.expect("the store answers");
        let last = |name: &str| figures.get(name).and_then(|values| values.last().copied());
        (last(UNKNOWN_ESCALATED), last(UNKNOWN_COUNT), last(UNKNOWN_OLDEST), last(RECONCILE_POLL))
    };
    for day in 1..=3 {
        assert_eq!(polled().await, (Some(1.0), Some(1.0), Some(f64::from(day) * 86_400.0), Some(1.0)));
        reconciling.guarded.clock.advance(Duration::from_secs(24 * 60 * 60));
    }
    let unknown = reconciling.guarded.record(&request.key).await.expect("the record exists");
    let settled = Operator::new(reconciling.guarded.store())
        .world(reconciling.guarded.clock.clone())
        .correct(&unknown, &Correction::NotExecuted { retain: None }, "alex", "the bank has no charge")
        .await
        .unwrap();
    assert_eq!(
        settled.note.as_ref().map(ToString::to_string).as_deref(),
        Some("alex: the bank has no charge")
    );
    assert_eq!(polled().await, (Some(0.0), Some(0.0), Some(0.0), Some(1.0)));
    // Those between workers are counted apart.
    let now = reconciling.guarded.now();
    let began = samples::in_progress(record_key("acme", "k-1"), fingerprints("{}"), now, now);
    let interrupted = samples::between_workers(&began, &[], now);
    reconciling.guarded.store().put(None, &interrupted, &[]).await.expect("the store answers");
    let poll = reconciling.reconciliation.poll(Duration::from_secs(50));
    let (_, figures) = recording(poll).await;
    assert_eq!((&figures[BETWEEN_WORKERS_COUNT][..], &figures[UNKNOWN_COUNT][..]), (&[1.0][..], &[0.0][..]));
}

// T57: one dead letter is sent, and deleted in the end.
#[apply(on_each_store)]
async fn each_poll_counts_records_with_an_alarm_until_it_is_cleared(endpoint: &str) {
    let reconciling = Reconciling::on(endpoint, []).await;
    let (guarded, now) = (&reconciling.guarded, reconciling.guarded.now());
    let began = samples::in_progress(record_key("acme", "k-1"), fingerprints("{}"), now, now);
    let alarm = Alarm {
        kind: AlarmKind::SecondEffect,
        because: Note::new("two effects"),
        raised_at: now,
        report: None,
        is_told: false,
    };
    let completed = samples::completed(&began, Answer::json(201, "{}"), now, RETENTION);
    let completed = Record { alarms: vec![alarm], ..completed };
    guarded.store().put(None, &completed, &[]).await.expect("the store answers");
    let polled = async || {
        let (polled, figures) = recording(reconciling.reconciliation.poll(Duration::from_secs(50))).await;
        polled.expect("the store answers");
        let last = |name: &str| figures.get(name).and_then(|values| values.last().copied());
        (last(ALARMED_COUNT), last(UNKNOWN_ESCALATED), last(UNKNOWN_COUNT))
    };
    for _ in 0..3 {
        assert_eq!(polled().await, (Some(1.0), Some(1.0), Some(0.0)));
        guarded.clock.advance(RETENTION);
    }
    let told = guarded.record(&completed.key).await.expect("it never expires");
    assert!(told.untold().is_none() && told.has_alarm(AlarmKind::SecondEffect));
    let operator = Operator::new(guarded.store()).world(guarded.clock.clone());
    operator.correct(&told, &Correction::ClearAlarms, "alex", "ch_2 is refunded").await.unwrap();
    assert_eq!(polled().await, (Some(0.0), Some(0.0), Some(0.0)));
}
