//! A provider's unsolicited report is checked against the record, in every state of the record (T46).

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::{
    async_trait,
    engine::{Executor, Ownership, Replay, Report, Request},
    operation::OnLeaseExpiry,
    operator::MessageSummary,
    queue::MemoryQueue,
    reconcile::{Finding, ProviderReport, Question, ReconcileOutcome, Reconciler, Reconciliation},
    record::{AlarmKind, Answer, Evidence, Note, Says, State},
    store::Store,
    time::Timestamp,
    time_budget::DEFAULT_NOT_FOUND_GRACE,
};
use macro_rules_attribute::apply;
use tokio::sync::Barrier;

use crate::support::{
    BoxError,
    faults::{ANY, Fault},
    guarded::{
        GRACE, Guarded, LEASE, completed, fresh, operation, outcome_of, owned, replayed, request, written,
    },
    on_each_store,
};

const PHASE: &str = "charge";

/// A reconciler with a fixed answer, which counts how often it is asked.
#[derive(Clone)]
struct Fixed(Result<Finding, &'static str>, Arc<AtomicUsize>);

impl Fixed {
    fn new(finding: Result<Finding, &'static str>) -> Self {
        Self(finding, Arc::default())
    }

    fn asked(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Reconciler for Fixed {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(self.0.clone()?)
    }
}

fn charged() -> Fixed {
    Fixed::new(Ok(Finding::Executed(Answer::json(201, r#"{"id":"pay_1"}"#))))
}

struct Listening {
    guarded: Guarded,
    dead_letters: MemoryQueue,
    questions: MemoryQueue,
    provider: Fixed,
    reconciliation: Reconciliation,
}

impl Listening {
    /// With a provider that gives this answer to every question.
    async fn on(endpoint: &str, provider: Fixed) -> Self {
        Self::with(Guarded::on(endpoint).await, provider)
    }

    /// The same, with this table.
    fn with(guarded: Guarded, provider: Fixed) -> Self {
        let (dead_letters, questions) = (MemoryQueue::new(), MemoryQueue::new());
        let reconciliation = Reconciliation::new(guarded.store(), dead_letters.clone())
            .world(guarded.clock.clone())
            .questions_to(questions.clone())
            .operation(operation(), provider.clone());
        Self { guarded, dead_letters, questions, provider, reconciliation }
    }

    async fn reserve(&self, request: &Request) -> Result<Ownership, Says<Replay>> {
        self.guarded.executor().reserve(request).await
    }

    /// A request whose worker ended like this.
    async fn ended(&self, report: Report) -> Request {
        let request = request();
        let ours = owned(self.reserve(&request).await);
        written(self.guarded.executor().finish(ours, report).await);
        request
    }

    async fn report(&self, request: &Request, reported: ProviderReport) -> ReconcileOutcome {
        self.reconciliation.reported(&request.key, &reported).await.expect("store and queue answer")
    }

    /// The deferred message and its delay.
    fn waiting(&self) -> (String, Duration) {
        let [waiting] = &self.questions.take()[..] else { panic!("not one question") };
        waiting.clone()
    }

    /// The reasons of the dead letters. Checks first that an operator can read each.
    fn reasons(&self) -> Vec<String> {
        let reason = |(dead_letter, _): (String, Duration)| {
            assert_eq!(
                MessageSummary::read(&dead_letter).kind.as_deref(),
                Some("contradiction"),
                "{dead_letter}"
            );
            let dead_letter: serde_json::Value = serde_json::from_str(&dead_letter).unwrap();
            dead_letter["reason"].as_str().expect("a reason").to_owned()
        };
        self.dead_letters.take().into_iter().map(reason).collect()
    }

    async fn state(&self, request: &Request) -> &'static str {
        self.guarded.record(&request.key).await.expect("the record exists").state.name()
    }
}

fn refusal() -> Report {
    Report::Completed(Answer::json(402, "{}"))
}

// T46
#[apply(on_each_store)]
async fn the_providers_report_during_a_lease_is_checked_against_the_outcome(endpoint: &str) {
    for (report, asked) in [(completed("mine"), 0), (refusal(), 1)] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = request();
        let ours = owned(listening.reserve(&request).await);
        let until = listening.guarded.now().plus(LEASE + GRACE);
        let outcome = listening.report(&request, ProviderReport::executed(201, charged())).await;
        assert_eq!(outcome, ReconcileOutcome::Scheduled(until));
        let (message, delay) = listening.waiting();
        assert_eq!(delay, LEASE + GRACE);
        drop(listening.guarded.executor().finish(ours, report).await);
        listening.reconciliation.receive(&message).await.unwrap();
        assert_eq!((listening.reasons().len(), listening.provider.asked()), (0, asked));
        assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(201));
    }
}

// T46
#[apply(on_each_store)]
async fn the_providers_report_during_a_lease_settles_a_dead_workers_record(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    drop(owned(listening.reserve(&request).await));
    listening.report(&request, ProviderReport::executed(201, charged())).await;
    let (message, delay) = listening.waiting();
    listening.guarded.clock.advance(delay);
    listening.reconciliation.receive(&message).await.unwrap();
    assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(201));
    // The message is delivered twice.
    listening.reconciliation.receive(&message).await.unwrap();
    assert_eq!((listening.reasons().len(), listening.provider.asked()), (0, 1));
}

// T46
#[apply(on_each_store)]
async fn the_providers_report_during_a_lease_overturns_the_workers_release(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    let ours = owned(listening.reserve(&request).await);
    listening.report(&request, ProviderReport::executed(201, charged())).await;
    let ended = listening.guarded.executor().finish(ours, Report::NotExecuted(None)).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
    assert_eq!(
        outcome_of(&listening.reserve(&request).await),
        "unknown",
        "no retry runs before the report is taken up"
    );
    listening.reconciliation.receive(&listening.waiting().0).await.unwrap();
    assert_eq!(outcome_of(&listening.reserve(&request).await), "replay");
}

// T46, T2
#[apply(on_each_store)]
async fn a_claim_survives_a_lost_write_or_answer(endpoint: &str) {
    for fault in [Fault::DropRequest, Fault::DropAnswer] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = request();
        let ours = owned(listening.reserve(&request).await);
        listening.guarded.faults.script("PutItem", [fault]);
        let report = listening.report(&request, ProviderReport::executed(201, charged()));
        let outcome = listening.guarded.clock.passing(report).await;
        assert!(matches!(outcome, ReconcileOutcome::Scheduled(_)), "{outcome:?}");
        drop(listening.guarded.executor().finish(ours, Report::NotExecuted(None)).await);
        assert_eq!(outcome_of(&listening.reserve(&request).await), "unknown");
    }
}

// T46
#[apply(on_each_store)]
async fn the_providers_report_overturns_a_simultaneous_release(endpoint: &str) {
    for _ in 0..5 {
        let listening = Listening::on(endpoint, charged()).await;
        let request = request();
        let ours = owned(listening.reserve(&request).await);
        let meet = Fault::Meet(Arc::new(Barrier::new(2)));
        listening.guarded.faults.script("PutItem", [meet.clone(), meet]);
        let executor = listening.guarded.executor();
        let (outcome, _) = tokio::join!(
            listening.report(&request, ProviderReport::executed(201, charged())),
            executor.finish(ours, Report::NotExecuted(None))
        );
        assert_eq!(listening.guarded.faults.left(), 0);
        // In either order.
        let expected = match outcome {
            ReconcileOutcome::Scheduled(_) => "unknown",
            ReconcileOutcome::Resolved("completed") => "replay",
            other => panic!("{other:?}"),
        };
        assert_eq!(outcome_of(&listening.reserve(&request).await), expected);
    }
}

// T46: the reconciler may ask a source that lags behind. What was seen outweighs "not found".
#[apply(on_each_store)]
async fn a_claim_that_its_own_source_denies_releases_nothing(endpoint: &str) {
    let refused = Ok(Finding::Executed(Answer::json(402, "{}")));
    let guarded = Guarded::on(endpoint).await;
    for source in [Ok(Finding::NotFound), Ok(Finding::NotExecuted), refused, Err("away")] {
        for report in [Report::NotExecuted(None), Report::perhaps("panicked")] {
            let listening = Listening::with(guarded.clone(), charged());
            let request = listening.ended(report).await;
            listening.guarded.clock.advance(DEFAULT_NOT_FOUND_GRACE);
            let outcome =
                listening.report(&request, ProviderReport::executed(201, Fixed::new(source.clone()))).await;
            // The source has the answer and sends its report again.
            let denies = matches!(&source, Ok(Finding::NotExecuted | Finding::Executed(_)));
            let expected = if denies { ReconcileOutcome::Escalated } else { ReconcileOutcome::NotDue };
            assert_eq!(outcome, expected, "{source:?}");
            assert_eq!(outcome_of(&listening.reserve(&request).await), "unknown");
            // A later report of a refusal does not release it either.
            let provider = Fixed::new(Ok(Finding::Executed(Answer::json(402, "{}"))));
            let later = Reconciliation::new(listening.guarded.store(), listening.dead_letters.clone())
                .world(listening.guarded.clock.clone())
                .operation(operation(), provider);
            let outcome =
                later.reported(&request.key, &ProviderReport::executed(402, charged())).await.unwrap();
            assert_eq!(outcome, ReconcileOutcome::Escalated);
            assert_eq!(outcome_of(&listening.reserve(&request).await), "unknown");
            // The report settles it even after the provider has forgotten the key, because the webhook includes the answer.
            listening.guarded.clock.advance(Duration::from_secs(24 * 3600));
            let outcome = listening.report(&request, ProviderReport::executed(201, charged())).await;
            assert_eq!(outcome, ReconcileOutcome::Resolved("completed"));
            assert_eq!(outcome_of(&listening.reserve(&request).await), "replay");
        }
    }
}

// T46, T5: otherwise its client would pay with another card.
#[apply(on_each_store)]
async fn a_workers_refusal_does_not_answer_a_claimed_effect(endpoint: &str) {
    for lease_expired in [false, true] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = request();
        let ours = owned(listening.reserve(&request).await);
        if lease_expired {
            listening.guarded.clock.advance(LEASE + GRACE);
        }
        // The charge's answer cannot be fetched now.
        listening.report(&request, ProviderReport::executed(201, Fixed::new(Err("away")))).await;
        let ended = listening.guarded.executor().finish(ours, refusal()).await;
        assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
        assert_eq!(outcome_of(&listening.reserve(&request).await), "unknown");
        let outcome = listening.reconciliation.ask_if_due(&request.key).await.unwrap();
        assert_eq!(outcome, ReconcileOutcome::Resolved("completed"));
        assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(201));
    }
}

/// Fetches the answer of a charge, while its client retries.
struct Retried(Executor, Request, Mutex<Option<&'static str>>);

#[async_trait]
impl Reconciler for Retried {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        *self.2.lock().unwrap() = Some(outcome_of(&self.0.reserve(&self.1).await));
        Ok(Finding::Executed(Answer::json(201, "{}")))
    }
}

// T46: fetching the answer takes time, and the function can be killed meanwhile.
#[apply(on_each_store)]
async fn no_retry_runs_while_a_claimed_effects_answer_is_fetched(endpoint: &str) {
    let ended = [Report::NotExecuted(None), Report::perhaps("panicked")];
    for report in ended {
        let listening = Listening::on(endpoint, charged()).await;
        let request = listening.ended(report).await;
        let by = Arc::new(Retried(listening.guarded.executor(), request.clone(), Mutex::new(None)));
        struct By(Arc<Retried>);
        #[async_trait]
        impl Reconciler for By {
            async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
                self.0.ask(question).await
            }
        }
        let outcome = listening.report(&request, ProviderReport::executed(201, By(by.clone()))).await;
        assert_eq!(outcome, ReconcileOutcome::Resolved("completed"));
        assert_eq!(*by.2.lock().unwrap(), Some("unknown"));
    }
}

// T46, T50: for days, providers resend what is not acknowledged.
#[apply(on_each_store)]
async fn a_repeated_report_leaves_the_record_escalated(endpoint: &str) {
    let listening = Listening::on(endpoint, Fixed::new(Ok(Finding::NotExecuted))).await;
    let request = listening.ended(Report::perhaps("panicked")).await;
    let effect = |source| ProviderReport::executed(201, Fixed::new(source));
    assert_eq!(listening.report(&request, effect(Err("away"))).await, ReconcileOutcome::NotDue);
    let asked = listening.reconciliation.ask(&request.key).await.unwrap();
    assert_eq!(asked, ReconcileOutcome::Escalated);
    let before = listening.guarded.record(&request.key).await;
    for (source, outcome) in
        [(Err("away"), ReconcileOutcome::NotDue), (Ok(Finding::NotExecuted), ReconcileOutcome::Escalated)]
    {
        assert_eq!(listening.report(&request, effect(source)).await, outcome);
        assert_eq!(listening.guarded.record(&request.key).await, before);
        assert_eq!(listening.dead_letters.take().len(), 0);
    }
    let settled = listening.report(&request, ProviderReport::executed(201, charged())).await;
    assert_eq!(settled, ReconcileOutcome::Resolved("completed"));
}

// T46: the refusal of the first of two executions, which arrives late.
#[apply(on_each_store)]
async fn a_late_refusal_of_a_worker_is_no_answer_either(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    let executor = listening.guarded.executor().defer_reports_to(MemoryQueue::new());
    let late = owned(listening.reserve(&request).await);
    listening.guarded.clock.advance(LEASE + GRACE + DEFAULT_NOT_FOUND_GRACE);
    let forgets = Reconciliation::new(listening.guarded.store(), listening.dead_letters.clone())
        .world(listening.guarded.clock.clone())
        .operation(operation(), Fixed::new(Ok(Finding::NotFound)));
    assert_eq!(forgets.ask(&request.key).await.unwrap(), ReconcileOutcome::Resolved("failed_retryable"));
    let second = owned(listening.reserve(&request).await);
    written(executor.finish(second, Report::perhaps("handler_failed")).await);
    listening.report(&request, ProviderReport::executed(201, Fixed::new(Err("away")))).await;
    let ended = executor.finish(late, refusal()).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
    assert_eq!(outcome_of(&listening.reserve(&request).await), "unknown");
}

// T46, T16: an outage of the store after the report was written does not make the refusal true.
#[apply(on_each_store)]
async fn a_queued_refusal_settles_nothing_once_an_effect_is_claimed(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let (request, reports) = (request(), MemoryQueue::new());
    let executor = listening.guarded.executor().defer_reports_to(reports.clone());
    let ours = owned(listening.reserve(&request).await);
    listening.report(&request, ProviderReport::executed(201, charged())).await;
    listening.guarded.faults.for_all(ANY, Fault::DropRequest);
    let ended = listening.guarded.clock.passing(executor.finish(ours, refusal())).await;
    listening.guarded.faults.clear();
    // The worker has not seen the report.
    assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
    let [(report, _)] = &reports.take()[..] else { panic!("not one report") };
    listening.reconciliation.receive(report).await.unwrap();
    assert_eq!(listening.state(&request).await, "unknown");
}

// T46
#[apply(on_each_store)]
async fn a_claimed_effect_stops_even_an_operation_that_may_run_again(endpoint: &str) {
    for lease_expired in [false, true] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = request();
        let again = listening.guarded.executor_of(operation().on_lease_expiry(OnLeaseExpiry::RunAgain));
        drop(owned(again.reserve(&request).await));
        if lease_expired {
            listening.guarded.clock.advance(LEASE + GRACE);
        }
        listening.report(&request, ProviderReport::executed(201, Fixed::new(Err("away")))).await;
        listening.guarded.clock.advance(LEASE + GRACE);
        assert_eq!(outcome_of(&again.reserve(&request).await), "unknown");
    }
}

// T46: it may be late, and may be about an earlier attempt or an earlier generation of the key.
#[apply(on_each_store)]
async fn a_refusal_is_confirmed_before_it_counts(endpoint: &str) {
    let refused = || Fixed::new(Ok(Finding::Executed(Answer::json(402, "{}"))));
    for reported in [ProviderReport::not_executed(), ProviderReport::executed(402, refused())] {
        let listening = Listening::on(endpoint, refused()).await;
        let request = listening.ended(Report::perhaps("panicked")).await;
        assert_eq!(listening.report(&request, reported).await, ReconcileOutcome::Resolved("completed"));
        assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(402));
        assert_eq!((listening.provider.asked(), listening.reasons().len()), (1, 0));
    }
    let listening = Listening::on(endpoint, charged()).await;
    let request = listening.ended(Report::perhaps("panicked")).await;
    listening.report(&request, ProviderReport::not_executed()).await;
    assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(201));
}

// T46, T50: webhooks come again and again; only an operator begins the questions anew.
#[apply(on_each_store)]
async fn a_reported_refusal_begins_no_questions_anew(endpoint: &str) {
    let listening = Listening::on(endpoint, Fixed::new(Ok(Finding::AskAgain(None)))).await;
    let request = listening.ended(Report::perhaps("panicked")).await;
    for asked in 1..=2 {
        let outcome = listening.report(&request, ProviderReport::not_executed()).await;
        assert!(matches!(outcome, ReconcileOutcome::Scheduled(_)), "{outcome:?}");
        let record = listening.guarded.record(&request.key).await.unwrap();
        assert!(
            matches!(record.state, State::Unknown { asked: known, anew_at: None, .. } if known == asked),
            "{record:?}"
        );
    }
    let escalated = Reconciliation::new(listening.guarded.store(), listening.dead_letters.clone())
        .world(listening.guarded.clock.clone())
        .backoff(LEASE, LEASE, 1)
        .operation(operation(), listening.provider.clone());
    assert_eq!(escalated.ask(&request.key).await.unwrap(), ReconcileOutcome::Escalated);
    let before = listening.guarded.record(&request.key).await;
    let outcome = listening.report(&request, ProviderReport::not_executed()).await;
    assert_eq!(outcome, ReconcileOutcome::Escalated);
    assert_eq!(listening.guarded.record(&request.key).await, before);
}

// T46: no question follows, so it must come again.
#[apply(on_each_store)]
async fn a_queued_effect_about_an_escalated_record_stays_in_its_queue(endpoint: &str) {
    let listening = Listening::on(endpoint, Fixed::new(Ok(Finding::AskAgain(None)))).await;
    let request = request();
    let ours = owned(listening.reserve(&request).await);
    listening.report(&request, ProviderReport::executed(201, charged())).await;
    let (message, _) = listening.waiting();
    listening.guarded.executor().finish(ours, Report::perhaps("panicked")).await;
    let escalated = Reconciliation::new(listening.guarded.store(), listening.dead_letters.clone())
        .world(listening.guarded.clock.clone())
        .backoff(LEASE, LEASE, 1)
        .operation(operation(), listening.provider.clone());
    assert_eq!(escalated.ask(&request.key).await.unwrap(), ReconcileOutcome::Escalated);
    assert!(escalated.receive(&message).await.is_err(), "it is delivered again");
}

// T46
#[apply(on_each_store)]
async fn a_refusal_of_an_unregistered_operation_is_not_dead_lettered(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = listening.ended(Report::perhaps("panicked")).await;
    let unregistered = Reconciliation::new(listening.guarded.store(), listening.dead_letters.clone())
        .world(listening.guarded.clock.clone());
    for (reported, outcome, dead_letters) in [
        (ProviderReport::not_executed(), ReconcileOutcome::Settled, 0),
        (ProviderReport::executed(402, charged()), ReconcileOutcome::Settled, 0),
        (ProviderReport::executed(201, charged()), ReconcileOutcome::Escalated, 1),
    ] {
        assert_eq!(unregistered.reported(&request.key, &reported).await.unwrap(), outcome);
        assert_eq!(listening.reasons().len(), dead_letters);
    }
}

// T46
#[apply(on_each_store)]
async fn a_deferred_report_follows_a_growing_lease(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    let ours = owned(listening.reserve(&request).await);
    listening.report(&request, ProviderReport::executed(201, charged())).await;
    let (message, _) = listening.waiting();
    // The queue delivers it too early, or a heartbeat has extended the lease.
    listening.guarded.clock.advance(LEASE);
    listening.reconciliation.receive(&message).await.unwrap();
    assert_eq!(listening.waiting(), (message, GRACE));
    assert_eq!(listening.provider.asked(), 0);
    drop(ours);
}

// T46: the provider has reported a charge. A charge that cannot be found now does not permit another.
#[apply(on_each_store)]
async fn an_unconfirmed_claim_blocks_every_retry(endpoint: &str) {
    let grace = DEFAULT_NOT_FOUND_GRACE;
    let refused = Ok(Finding::Executed(Answer::json(402, "{}")));
    let (not_found, denied) = (Ok(Finding::NotFound), Ok(Finding::NotExecuted));
    let guarded = Guarded::on(endpoint).await;
    for provider in [not_found.clone(), denied.clone(), refused, Ok(Finding::AskAgain(None)), Err("away")] {
        for (report, late) in [
            (Some(Report::NotExecuted(None)), Duration::ZERO),
            (Some(Report::perhaps("panicked")), Duration::ZERO),
            (Some(Report::perhaps("panicked")), grace),
            (None, Duration::ZERO),
            (None, grace),
        ] {
            let listening = Listening::with(guarded.clone(), Fixed::new(provider.clone()));
            let request = request();
            let ours = owned(listening.reserve(&request).await);
            let key = request.key.downstream_key(&request.fingerprints.current(), PHASE);
            let effect = ProviderReport::executed(201, charged()).under(PHASE, &key);
            listening.report(&request, effect).await;
            let (message, delay) = listening.waiting();
            match report.clone() {
                Some(report) => drop(listening.guarded.executor().finish(ours, report).await),
                None => drop(ours),
            }
            listening.guarded.clock.advance(delay + late);
            listening.reconciliation.receive(&message).await.unwrap();
            assert_eq!(outcome_of(&listening.reserve(&request).await), "unknown");
            let dead_letters = listening.dead_letters.take();
            listening.guarded.clock.advance(grace);
            // "Not found" may merely be too early.
            let denies = match &provider {
                Ok(Finding::NotFound) => late == grace,
                Ok(finding) => !matches!(finding, Finding::AskAgain(_)),
                Err(_) => false,
            };
            if denies {
                let [(dead_letter, _)] = &dead_letters[..] else { panic!("not one dead letter") };
                let why = match &provider {
                    Ok(Finding::NotFound) => "the provider does not find it",
                    Ok(Finding::NotExecuted) => "the provider denies it",
                    _ => "the provider has a refusal",
                };
                assert!(dead_letter.contains(why) && dead_letter.contains(&key), "{dead_letter}");
                let polled = listening.reconciliation.ask_if_due(&request.key).await.unwrap();
                assert_eq!(polled, ReconcileOutcome::NotDue);
            } else {
                // The provider is asked again. A denial then is escalated.
                assert!(dead_letters.is_empty(), "{dead_letters:?}");
                let finding = if late == grace { not_found.clone() } else { denied.clone() };
                let back = Reconciliation::new(listening.guarded.store(), listening.dead_letters.clone())
                    .world(listening.guarded.clock.clone())
                    .operation(operation(), Fixed::new(finding));
                let polled = back.ask_if_due(&request.key).await.unwrap();
                assert_eq!(polled, ReconcileOutcome::Escalated);
                let because = guarded.escalated_because(&request.key).await.expect("a reason");
                assert!(because.contains("an effect was reported"), "{because}");
            }
            assert_eq!(outcome_of(&listening.reserve(&request).await), "unknown");
            // An operator's question releases nothing either.
            listening.reconciliation.ask(&request.key).await.unwrap();
            assert_eq!(listening.state(&request).await, "unknown");
        }
    }
}

// T46: events arrive in any order, and all attempts share one downstream key.
#[apply(on_each_store)]
async fn an_earlier_attempts_late_refusal_does_not_settle_a_later_one(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = listening.ended(Report::NotExecuted(None)).await;
    let again = owned(listening.reserve(&request).await);
    let unknown = Report::perhaps("handler_failed");
    written(listening.guarded.executor().finish(again, unknown).await);
    for reported in [ProviderReport::not_executed(), ProviderReport::executed(402, charged())] {
        let outcome = listening.report(&request, reported).await;
        assert!(
            matches!(
                outcome,
                ReconcileOutcome::Resolved("completed")
                    | ReconcileOutcome::Settled
                    | ReconcileOutcome::Escalated
            ),
            "{outcome:?}"
        );
    }
    assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(201));
    assert_eq!(listening.provider.asked(), 1);
}

// T46
#[apply(on_each_store)]
async fn a_provider_report_that_contradicts_a_completed_record_is_escalated(endpoint: &str) {
    for (report, reported) in [
        (refusal(), ProviderReport::executed(201, charged())),
        (completed("mine"), ProviderReport::executed(402, charged())),
        (completed("mine"), ProviderReport::not_executed()),
    ] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = listening.ended(report).await;
        let before = listening.guarded.record(&request.key).await;
        assert_eq!(listening.report(&request, reported).await, ReconcileOutcome::Escalated);
        assert_eq!(listening.reasons().len(), 1);
        let after = listening.guarded.record(&request.key).await;
        assert!(after.as_ref().is_some_and(|after| after.has_alarm(AlarmKind::Contradicted)));
        assert_eq!(after.map(|after| after.state), before.map(|before| before.state));
    }
}

// T54: a denial that comes between two writes would release the record.
#[apply(on_each_store)]
async fn an_effect_is_named_and_claimed_by_one_write(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    let ours = owned(listening.reserve(&request).await);
    let key = ours.execution().downstream_key(PHASE);
    written(listening.guarded.executor().finish(ours, Report::perhaps("handler_failed")).await);
    let writes = std::iter::once(Fault::Pass).chain(std::iter::repeat_n(Fault::AccessDenied, 20));
    listening.guarded.faults.script("PutItem", writes);
    let effect = ProviderReport::executed(201, charged()).under(PHASE, &key).effect_id("ch_1");
    assert!(listening.reconciliation.reported(&request.key, &effect).await.is_err());
    let record = listening.guarded.record(&request.key).await.expect("a record");
    let named = record.effect_id.as_ref().map(ToString::to_string);
    assert_eq!((named.as_deref(), record.reported), (Some("ch_1"), Some(Evidence::Effect)));
}

// T83: the provider has forgotten its key, or the key was sent to two of its accounts.
#[apply(on_each_store)]
async fn a_second_effect_is_escalated_once_and_stays_in_the_record(endpoint: &str) {
    for is_completed in [true, false] {
        let listening = Listening::on(endpoint, charged()).await;
        let report = || if is_completed { completed("mine") } else { Report::perhaps("handler_failed") };
        let request = request();
        let ours = owned(listening.reserve(&request).await);
        let key = ours.execution().downstream_key(PHASE);
        written(listening.guarded.executor().finish(ours, report()).await);
        let reported = async |id: &str| {
            let effect = ProviderReport::executed(201, charged()).under(PHASE, &key).effect_id(id);
            listening.report(&request, effect).await
        };
        for _ in 0..2 {
            reported("ch_1").await;
        }
        assert_eq!((listening.state(&request).await, listening.reasons().len()), ("completed", 0));
        let long = "x".repeat(10_000);
        let events = [
            ("ch_2", 1),
            ("ch_3", 1),
            ("ch_2", 0),
            ("ch_1", 0),
            ("ch_3", 0),
            ("", 0),
            (&*long, 1),
            (&*long, 0),
        ];
        for (id, dead_letters) in events {
            reported(id).await;
            assert_eq!(listening.reasons().len(), dead_letters, "{id}");
        }
        let record = listening.guarded.record(&request.key).await.expect("a record");
        assert!(record.has_alarm(AlarmKind::SecondEffect) && record.untold().is_none());
        assert_eq!(record.effect_id.as_ref().map(ToString::to_string).as_deref(), Some("ch_1"));
        assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(201));
    }
}

// T83, T46: otherwise its worker, or "not found", would release it, and a third execution would begin.
#[apply(on_each_store)]
async fn a_second_effect_claims_its_record_as_any_effect(endpoint: &str) {
    let listening = Listening::on(endpoint, Fixed::new(Ok(Finding::NotFound))).await;
    let request = request();
    let ours = owned(listening.reserve(&request).await);
    let key = ours.execution().downstream_key(PHASE);
    let reported = async |id: &str| {
        let effect = ProviderReport::executed(201, charged()).under(PHASE, &key).effect_id(id);
        listening.report(&request, effect).await
    };
    let mut record = listening.guarded.record(&request.key).await.expect("a record");
    record.effect_id = Some(Note::new("ch_1"));
    let before = std::mem::replace(&mut record.revision, fresh());
    listening.guarded.store().put(Some(before), &record, &[]).await.expect("the store answers");
    assert!(matches!(reported("ch_2").await, ReconcileOutcome::Scheduled(_)));
    let claimed = listening.guarded.record(&request.key).await.expect("a record");
    assert_eq!(claimed.reported, Some(Evidence::Effect));
    assert!(claimed.has_alarm(AlarmKind::SecondEffect));
    let ended = listening.guarded.executor().finish(ours, Report::NotExecuted(None)).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
}

#[apply(on_each_store)]
async fn a_provider_report_that_agrees_with_the_record_changes_nothing(endpoint: &str) {
    for (report, reported) in [
        (completed("mine"), ProviderReport::executed(201, charged())),
        (refusal(), ProviderReport::executed(402, charged())),
        (refusal(), ProviderReport::not_executed()),
        (Report::NotExecuted(None), ProviderReport::not_executed()),
    ] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = listening.ended(report).await;
        let before = listening.guarded.record(&request.key).await;
        assert_eq!(listening.report(&request, reported).await, ReconcileOutcome::Settled);
        assert_eq!(listening.guarded.record(&request.key).await, before);
        assert_eq!(listening.reasons().len(), 0);
    }
}

// T5, T46: a refusal is no proof of an effect, whether it is a function's or an HTTP answer.
#[apply(on_each_store)]
async fn a_found_refusal_never_completes_a_record_with_a_reported_effect(endpoint: &str) {
    for (answer, state, outcome) in [
        (Answer::refusal("no such address"), "unknown", ReconcileOutcome::Escalated),
        (Answer::json(402, "{}"), "unknown", ReconcileOutcome::Escalated),
        (Answer::json(201, "{}"), "completed", ReconcileOutcome::Resolved("completed")),
    ] {
        let listening = Listening::on(endpoint, Fixed::new(Ok(Finding::Executed(answer)))).await;
        let request = listening.ended(Report::perhaps("handler_failed")).await;
        let mut marked = listening.guarded.record(&request.key).await.expect("a record");
        let seen = marked.revision;
        (marked.revision, marked.reported) = (fresh(), Some(Evidence::Effect));
        listening.guarded.undisturbed_store().put(Some(seen), &marked, &[]).await.expect("it is written");
        listening.guarded.clock.advance(DEFAULT_NOT_FOUND_GRACE);
        let asked = listening.reconciliation.ask(&request.key).await.expect("an outcome");
        assert_eq!((asked, listening.state(&request).await), (outcome, state));
        let because = listening.guarded.escalated_because(&request.key).await;
        assert_eq!(because.is_some(), state == "unknown");
    }
}

// T46
#[apply(on_each_store)]
async fn an_effect_without_a_record_is_escalated_unless_it_is_old(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let bound = Duration::from_secs(14 * 24 * 60 * 60 + 5 * 60);
    let now = listening.guarded.now();
    let old = now.minus(bound + Duration::from_millis(1));
    let report = async |reported| listening.report(&request(), reported).await;
    let effect = || ProviderReport::executed(201, charged());
    assert_eq!(report(effect()).await, ReconcileOutcome::Escalated);
    assert_eq!(report(effect().made_at(now.minus(bound))).await, ReconcileOutcome::Escalated);
    assert_eq!(report(effect().made_at(Timestamp::MAX)).await, ReconcileOutcome::Escalated);
    assert_eq!(listening.reasons().len(), 3);
    // Its record may have expired. A refusal need not have a record.
    assert_eq!(report(effect().made_at(old)).await, ReconcileOutcome::Gone);
    assert_eq!(report(ProviderReport::executed(402, charged())).await, ReconcileOutcome::Settled);
    assert_eq!(report(ProviderReport::not_executed()).await, ReconcileOutcome::Settled);
    assert_eq!(listening.reasons().len(), 0);
    listening.reconciliation.unclaimed("idk_1", "it leads to no record").await.unwrap();
    assert_eq!(listening.reasons(), ["it leads to no record"]);
}

// T46: metadata leads to the record, but any client could have set it.
#[apply(on_each_store)]
async fn a_provider_report_under_another_requests_key_settles_nothing_and_is_escalated(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let source = charged();
    let request = listening.ended(Report::perhaps("handler_failed")).await;
    let effect = || ProviderReport::executed(201, source.clone());
    assert_eq!(
        listening.report(&request, effect().under(PHASE, "forged")).await,
        ReconcileOutcome::Escalated
    );
    assert_eq!((listening.reasons().len(), source.asked()), (1, 0));
    let refused = ProviderReport::executed(402, source.clone()).under(PHASE, "forged");
    assert_eq!(listening.report(&request, refused).await, ReconcileOutcome::Settled);
    assert_eq!((listening.state(&request).await, source.asked()), ("unknown", 0));
    let key = request.key.downstream_key(&request.fingerprints.current(), PHASE);
    let settled = listening.report(&request, effect().under(PHASE, &key)).await;
    assert_eq!(settled, ReconcileOutcome::Resolved("completed"));
}

/// A reconciler that finds a charge. Before it returns, it lets the worker complete with a refusal.
struct Meanwhile {
    worker: Executor,
    late: Mutex<Option<Ownership>>,
}

#[async_trait]
impl Reconciler for Meanwhile {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        let late = self.late.lock().unwrap().take();
        if let Some(late) = late {
            written(self.worker.finish(late, refusal()).await);
        }
        Ok(Finding::Executed(Answer::json(201, "{}")))
    }
}

// T46, T5
#[apply(on_each_store)]
async fn a_finding_that_contradicts_a_completion_meanwhile_is_escalated(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    let late = owned(listening.reserve(&request).await);
    listening.guarded.clock.advance(LEASE + GRACE);
    assert_eq!(outcome_of(&listening.reserve(&request).await), "unknown");
    let meanwhile = Meanwhile { worker: listening.guarded.executor(), late: Mutex::new(Some(late)) };
    let polling = Reconciliation::new(listening.guarded.store(), listening.dead_letters.clone())
        .world(listening.guarded.clock.clone())
        .operation(operation(), meanwhile);
    assert_eq!(polling.ask_if_due(&request.key).await.unwrap(), ReconcileOutcome::Escalated);
    assert_eq!(listening.reasons().len(), 1);
    assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(402));
}

// T36, T46: no repetition helps, and the effect must not be forgotten.
#[apply(on_each_store)]
async fn a_reported_effect_whose_record_is_unreadable_is_escalated(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = listening.ended(Report::perhaps("handler_failed")).await;
    let mut newer = listening.guarded.item(&request.key).await.expect("a record");
    newer.insert("schema".to_owned(), AttributeValue::N("99".to_owned()));
    listening.guarded.write_raw(newer.clone()).await;
    let outcome = listening.report(&request, ProviderReport::executed(201, charged())).await;
    assert_eq!(outcome, ReconcileOutcome::Escalated);
    assert_eq!(listening.reasons(), ["its record cannot be read"]);
    assert_eq!(listening.guarded.item(&request.key).await, Some(newer));
}
