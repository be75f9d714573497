//! A provider's unsolicited word is checked against the record, whatever its state (T46).

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lambda_idempotency::{
    async_trait,
    engine::{Ending, Executor, FinishOutcome, Ownership, Request, ReserveOutcome},
    operation::LeaseOver,
    operator::Letter,
    queue::MemoryQueue,
    reconcile::{Finding, Question, ReconcileOutcome, Reconciler, Reconciliation, Told},
    record::{Answer, UnknownCause},
    time::Timestamp,
    time_budget::DEFAULT_NOT_FOUND_GRACE,
};
use tokio::sync::Barrier;

use crate::support::{
    BoxError,
    faults::{ANY, Fault},
    guarded::{GRACE, Guarded, LEASE, completed, operation, owned, replayed, request, told, written},
    on_each_store,
};

on_each_store!(
    the_providers_word_during_a_lease_is_checked_against_the_outcome,
    the_providers_word_during_a_lease_settles_a_dead_workers_record,
    the_providers_word_during_a_lease_overturns_the_workers_release,
    a_deferred_word_follows_a_growing_lease,
    a_claim_survives_a_lost_write_or_answer,
    the_providers_word_overturns_a_simultaneous_release,
    an_unconfirmed_claim_blocks_every_retry,
    a_claim_that_its_own_source_denies_releases_nothing,
    a_workers_refusal_does_not_answer_a_claimed_effect,
    no_retry_runs_while_a_claimed_effects_answer_is_fetched,
    a_repeated_word_leaves_the_record_escalated,
    a_late_refusal_of_a_worker_is_no_answer_either,
    a_queued_refusal_settles_nothing_once_an_effect_is_claimed,
    a_claimed_effect_stops_even_what_may_run_again,
    a_refusal_is_confirmed_before_it_counts,
    a_refusal_of_an_unregistered_operation_is_not_dead_lettered,
    an_earlier_attempts_late_refusal_does_not_settle_a_later_one,
    a_word_that_contradicts_a_completed_record_is_escalated,
    a_word_that_agrees_with_the_record_changes_nothing,
    an_effect_without_a_record_is_escalated_unless_it_is_old,
    a_word_under_another_requests_key_settles_nothing_and_is_escalated,
    a_question_whose_answer_contradicts_what_was_completed_meanwhile_is_escalated,
);

const PHASE: &str = "charge";

/// A reconciler with a fixed answer, which counts how often it is asked.
#[derive(Clone)]
struct Says(Result<Finding, &'static str>, Arc<AtomicUsize>);

impl Says {
    fn this(finding: Result<Finding, &'static str>) -> Self {
        Self(finding, Arc::default())
    }

    fn asked(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Reconciler for Says {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(self.0.clone()?)
    }
}

fn charged() -> Says {
    Says::this(Ok(Finding::Executed(Answer::json(201, r#"{"id":"pay_1"}"#))))
}

struct Listening {
    guarded: Guarded,
    letters: MemoryQueue,
    questions: MemoryQueue,
    provider: Says,
    reconciliation: Reconciliation,
}

impl Listening {
    /// With a provider that gives this answer when asked.
    async fn on(endpoint: &str, provider: Says) -> Self {
        let guarded = Guarded::on(endpoint).await;
        let (letters, questions) = (MemoryQueue::new(), MemoryQueue::new());
        let reconciliation = Reconciliation::new(guarded.store(), letters.clone())
            .world(guarded.clock.clone())
            .questions_to(questions.clone())
            .operation(operation(), provider.clone());
        Self { guarded, letters, questions, provider, reconciliation }
    }

    async fn reserve(&self, request: &Request) -> ReserveOutcome {
        self.guarded.executor().reserve(request).await
    }

    /// A request whose worker ended like this.
    async fn ended(&self, ending: Ending) -> Request {
        let request = request();
        let ours = owned(self.reserve(&request).await);
        written(self.guarded.executor().finish(ours, ending).await);
        request
    }

    async fn tell(&self, request: &Request, told: Told) -> ReconcileOutcome {
        self.reconciliation.told(&request.key, &told).await.expect("store and queue answer")
    }

    /// The deferred message and its delay.
    fn waiting(&self) -> (String, Duration) {
        let [waiting] = &self.questions.take()[..] else { panic!("not one question") };
        waiting.clone()
    }

    /// The reasons of the dead letters, after checking that an operator can read each.
    fn reasons(&self) -> Vec<String> {
        let reason = |(letter, _): (String, Duration)| {
            assert_eq!(Letter::read(&letter).kind.as_deref(), Some("contradiction"), "{letter}");
            let letter: serde_json::Value = serde_json::from_str(&letter).unwrap();
            letter["reason"].as_str().expect("a reason").to_owned()
        };
        self.letters.take().into_iter().map(reason).collect()
    }

    async fn state(&self, request: &Request) -> &'static str {
        self.guarded.record(&request.key).await.expect("there is a record").state.name()
    }
}

fn refusal() -> Ending {
    Ending::Completed(Answer::json(402, "{}"))
}

// T46
async fn the_providers_word_during_a_lease_is_checked_against_the_outcome(endpoint: &str) {
    for (ending, asked) in [(completed("mine"), 0), (refusal(), 1)] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = request();
        let ours = owned(listening.reserve(&request).await);
        let until = listening.guarded.now().plus(LEASE + GRACE);
        let outcome = listening.tell(&request, Told::executed(201, charged())).await;
        assert_eq!(outcome, ReconcileOutcome::Scheduled(until));
        let (message, delay) = listening.waiting();
        assert_eq!(delay, LEASE + GRACE);
        drop(listening.guarded.executor().finish(ours, ending).await);
        listening.reconciliation.receive(&message).await.unwrap();
        assert_eq!((listening.reasons().len(), listening.provider.asked()), (0, asked));
        assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(201));
    }
}

// T46
async fn the_providers_word_during_a_lease_settles_a_dead_workers_record(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    drop(owned(listening.reserve(&request).await));
    listening.tell(&request, Told::executed(201, charged())).await;
    let (message, delay) = listening.waiting();
    listening.guarded.clock.advance(delay);
    listening.reconciliation.receive(&message).await.unwrap();
    assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(201));
    // The message is delivered twice.
    listening.reconciliation.receive(&message).await.unwrap();
    assert_eq!((listening.reasons().len(), listening.provider.asked()), (0, 1));
}

// T46
async fn the_providers_word_during_a_lease_overturns_the_workers_release(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    let ours = owned(listening.reserve(&request).await);
    listening.tell(&request, Told::executed(201, charged())).await;
    let ended = listening.guarded.executor().finish(ours, Ending::NotExecuted).await;
    assert!(matches!(ended, FinishOutcome::InDoubt), "{ended:?}");
    assert_eq!(
        told(&listening.reserve(&request).await),
        "unknown",
        "no retry runs before the word is taken up"
    );
    listening.reconciliation.receive(&listening.waiting().0).await.unwrap();
    assert_eq!(told(&listening.reserve(&request).await), "replay");
}

// T46, T2
async fn a_claim_survives_a_lost_write_or_answer(endpoint: &str) {
    for fault in [Fault::DropRequest, Fault::DropAnswer] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = request();
        let ours = owned(listening.reserve(&request).await);
        listening.guarded.faults.script("PutItem", [fault]);
        let outcome = listening.tell(&request, Told::executed(201, charged())).await;
        assert!(matches!(outcome, ReconcileOutcome::Scheduled(_)), "{outcome:?}");
        drop(listening.guarded.executor().finish(ours, Ending::NotExecuted).await);
        assert_eq!(told(&listening.reserve(&request).await), "unknown");
    }
}

// T46
async fn the_providers_word_overturns_a_simultaneous_release(endpoint: &str) {
    for _ in 0..5 {
        let listening = Listening::on(endpoint, charged()).await;
        let request = request();
        let ours = owned(listening.reserve(&request).await);
        let meet = Fault::Meet(Arc::new(Barrier::new(2)));
        listening.guarded.faults.script("PutItem", [meet.clone(), meet]);
        let executor = listening.guarded.executor();
        let (outcome, _) = tokio::join!(
            listening.tell(&request, Told::executed(201, charged())),
            executor.finish(ours, Ending::NotExecuted)
        );
        assert_eq!(listening.guarded.faults.left(), 0);
        // In either order.
        let expected = match outcome {
            ReconcileOutcome::Scheduled(_) => "unknown",
            ReconcileOutcome::Resolved("completed") => "replay",
            other => panic!("{other:?}"),
        };
        assert_eq!(told(&listening.reserve(&request).await), expected);
    }
}

// T46: whoever processes the word may ask a source that lags behind; what was seen outweighs "not found".
async fn a_claim_that_its_own_source_denies_releases_nothing(endpoint: &str) {
    let refused = Ok(Finding::Executed(Answer::json(402, "{}")));
    for source in [Ok(Finding::NotFound), Ok(Finding::NotExecuted), refused, Err("away")] {
        for ending in [Ending::NotExecuted, Ending::PerhapsExecuted(UnknownCause::Panicked)] {
            let listening = Listening::on(endpoint, charged()).await;
            let request = listening.ended(ending).await;
            listening.guarded.clock.advance(DEFAULT_NOT_FOUND_GRACE);
            let outcome = listening.tell(&request, Told::executed(201, Says::this(source.clone()))).await;
            // The source has the answer and sends its word again.
            let denies = matches!(&source, Ok(Finding::NotExecuted | Finding::Executed(_)));
            let expected = if denies { ReconcileOutcome::Escalated } else { ReconcileOutcome::NotDue };
            assert_eq!(outcome, expected, "{source:?}");
            assert_eq!(told(&listening.reserve(&request).await), "unknown");
            // Nor does a later word of a refusal release it.
            let provider = Says::this(Ok(Finding::Executed(Answer::json(402, "{}"))));
            let later = Reconciliation::new(listening.guarded.store(), listening.letters.clone())
                .world(listening.guarded.clock.clone())
                .operation(operation(), provider);
            let outcome = later.told(&request.key, &Told::executed(402, charged())).await.unwrap();
            assert_eq!(outcome, ReconcileOutcome::Escalated);
            assert_eq!(told(&listening.reserve(&request).await), "unknown");
            // The word settles it even after the provider has forgotten the key: the webhook brings its answer along.
            listening.guarded.clock.advance(Duration::from_secs(24 * 3600));
            let outcome = listening.tell(&request, Told::executed(201, charged())).await;
            assert_eq!(outcome, ReconcileOutcome::Resolved("completed"));
            assert_eq!(told(&listening.reserve(&request).await), "replay");
        }
    }
}

// T46, T5: else its client would pay with another card.
async fn a_workers_refusal_does_not_answer_a_claimed_effect(endpoint: &str) {
    for lease_over in [false, true] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = request();
        let ours = owned(listening.reserve(&request).await);
        if lease_over {
            listening.guarded.clock.advance(LEASE + GRACE);
        }
        // The charge's own answer cannot be fetched now.
        listening.tell(&request, Told::executed(201, Says::this(Err("away")))).await;
        let ended = listening.guarded.executor().finish(ours, refusal()).await;
        assert!(matches!(ended, FinishOutcome::InDoubt), "{ended:?}");
        assert_eq!(told(&listening.reserve(&request).await), "unknown");
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
        *self.2.lock().unwrap() = Some(told(&self.0.reserve(&self.1).await));
        Ok(Finding::Executed(Answer::json(201, "{}")))
    }
}

// T46: fetching the answer takes time, and the function can be killed meanwhile.
async fn no_retry_runs_while_a_claimed_effects_answer_is_fetched(endpoint: &str) {
    let ended = [Ending::NotExecuted, Ending::PerhapsExecuted(UnknownCause::Panicked)];
    for ending in ended {
        let listening = Listening::on(endpoint, charged()).await;
        let request = listening.ended(ending).await;
        let by = Arc::new(Retried(listening.guarded.executor(), request.clone(), Mutex::new(None)));
        struct By(Arc<Retried>);
        #[async_trait]
        impl Reconciler for By {
            async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
                self.0.ask(question).await
            }
        }
        let outcome = listening.tell(&request, Told::executed(201, By(by.clone()))).await;
        assert_eq!(outcome, ReconcileOutcome::Resolved("completed"));
        assert_eq!(*by.2.lock().unwrap(), Some("unknown"));
    }
}

// T46, T50: providers resend for days what is not acknowledged.
async fn a_repeated_word_leaves_the_record_escalated(endpoint: &str) {
    let listening = Listening::on(endpoint, Says::this(Ok(Finding::NotExecuted))).await;
    let request = listening.ended(Ending::PerhapsExecuted(UnknownCause::Panicked)).await;
    let word = |source| Told::executed(201, Says::this(source));
    assert_eq!(listening.tell(&request, word(Err("away"))).await, ReconcileOutcome::NotDue);
    let asked = listening.reconciliation.ask(&request.key).await.unwrap();
    assert_eq!((asked, listening.letters.take().len()), (ReconcileOutcome::Escalated, 1));
    let before = listening.guarded.record(&request.key).await;
    for (source, outcome) in
        [(Err("away"), ReconcileOutcome::NotDue), (Ok(Finding::NotExecuted), ReconcileOutcome::Escalated)]
    {
        assert_eq!(listening.tell(&request, word(source)).await, outcome);
        assert_eq!(listening.guarded.record(&request.key).await, before);
        assert_eq!(listening.letters.take().len(), 0);
    }
    let settled = listening.tell(&request, Told::executed(201, charged())).await;
    assert_eq!(settled, ReconcileOutcome::Resolved("completed"));
}

// T46: the refusal of the first of two executions, which arrives late.
async fn a_late_refusal_of_a_worker_is_no_answer_either(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    let executor = listening.guarded.executor().lost_endings_to(MemoryQueue::new());
    let late = owned(listening.reserve(&request).await);
    listening.guarded.clock.advance(LEASE + GRACE + DEFAULT_NOT_FOUND_GRACE);
    let forgets = Reconciliation::new(listening.guarded.store(), listening.letters.clone())
        .world(listening.guarded.clock.clone())
        .operation(operation(), Says::this(Ok(Finding::NotFound)));
    assert_eq!(forgets.ask(&request.key).await.unwrap(), ReconcileOutcome::Resolved("failed_retryable"));
    let second = owned(listening.reserve(&request).await);
    written(executor.finish(second, Ending::PerhapsExecuted(UnknownCause::HandlerFailed)).await);
    listening.tell(&request, Told::executed(201, Says::this(Err("away")))).await;
    let ended = executor.finish(late, refusal()).await;
    assert!(matches!(ended, FinishOutcome::InDoubt), "{ended:?}");
    assert_eq!(told(&listening.reserve(&request).await), "unknown");
}

// T46, T16: that the store goes away after the word was written makes the refusal no truer.
async fn a_queued_refusal_settles_nothing_once_an_effect_is_claimed(endpoint: &str) {
    for loses_the_mark in [false, true] {
        let listening = Listening::on(endpoint, charged()).await;
        let (request, endings) = (request(), MemoryQueue::new());
        let executor = listening.guarded.executor().lost_endings_to(endings.clone());
        let ours = owned(listening.reserve(&request).await);
        listening.tell(&request, Told::executed(201, charged())).await;
        listening.guarded.faults.for_all(ANY, Fault::DropRequest);
        let ended = listening.guarded.clock.passing(executor.finish(ours, refusal())).await;
        listening.guarded.faults.clear();
        // The worker has not seen the word.
        assert!(matches!(ended, FinishOutcome::HandedOver), "{ended:?}");
        if loses_the_mark {
            // A version that does not know claims has written the record.
            let mut item = listening.guarded.item(&request.key).await.unwrap();
            item.remove("claimed");
            listening.guarded.write_raw(item).await;
        }
        let [(ending, _)] = &endings.take()[..] else { panic!("not one ending") };
        listening.reconciliation.receive(ending).await.unwrap();
        let expected = if loses_the_mark { "completed" } else { "unknown" };
        assert_eq!(listening.state(&request).await, expected);
    }
}

// T46, R6
async fn a_claimed_effect_stops_even_what_may_run_again(endpoint: &str) {
    for lease_over in [false, true] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = request();
        let again = listening.guarded.executor_of(operation().when_lease_over(LeaseOver::RunAgain));
        drop(owned(again.reserve(&request).await));
        if lease_over {
            listening.guarded.clock.advance(LEASE + GRACE);
        }
        listening.tell(&request, Told::executed(201, Says::this(Err("away")))).await;
        listening.guarded.clock.advance(LEASE + GRACE);
        assert_eq!(told(&again.reserve(&request).await), "unknown");
    }
}

// T46: it may be late, and about an earlier attempt or an earlier reservation of the key.
async fn a_refusal_is_confirmed_before_it_counts(endpoint: &str) {
    let refused = || Says::this(Ok(Finding::Executed(Answer::json(402, "{}"))));
    for told in [Told::not_executed(), Told::executed(402, refused())] {
        let listening = Listening::on(endpoint, refused()).await;
        let request = listening.ended(Ending::PerhapsExecuted(UnknownCause::Panicked)).await;
        assert_eq!(listening.tell(&request, told).await, ReconcileOutcome::Resolved("completed"));
        assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(402));
        assert_eq!((listening.provider.asked(), listening.reasons().len()), (1, 0));
    }
    let listening = Listening::on(endpoint, charged()).await;
    let request = listening.ended(Ending::PerhapsExecuted(UnknownCause::Panicked)).await;
    listening.tell(&request, Told::not_executed()).await;
    assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(201));
}

// T46
async fn a_refusal_of_an_unregistered_operation_is_not_dead_lettered(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = listening.ended(Ending::PerhapsExecuted(UnknownCause::Panicked)).await;
    let knows_none = Reconciliation::new(listening.guarded.store(), listening.letters.clone())
        .world(listening.guarded.clock.clone());
    for (told, outcome, letters) in [
        (Told::not_executed(), ReconcileOutcome::Settled, 0),
        (Told::executed(402, charged()), ReconcileOutcome::Settled, 0),
        (Told::executed(201, charged()), ReconcileOutcome::Escalated, 1),
    ] {
        assert_eq!(knows_none.told(&request.key, &told).await.unwrap(), outcome);
        assert_eq!(listening.reasons().len(), letters);
    }
}

// T46, R18
async fn a_deferred_word_follows_a_growing_lease(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    let ours = owned(listening.reserve(&request).await);
    listening.tell(&request, Told::executed(201, charged())).await;
    let (message, _) = listening.waiting();
    // The queue delivers it too early, or a heartbeat has extended the lease.
    listening.guarded.clock.advance(LEASE);
    listening.reconciliation.receive(&message).await.unwrap();
    assert_eq!(listening.waiting(), (message, GRACE));
    assert_eq!(listening.provider.asked(), 0);
    drop(ours);
}

// T46: the provider has said that it charged. That the charge cannot be found now does not permit another.
async fn an_unconfirmed_claim_blocks_every_retry(endpoint: &str) {
    let grace = DEFAULT_NOT_FOUND_GRACE;
    let refused = Ok(Finding::Executed(Answer::json(402, "{}")));
    let (not_found, denied) = (Ok(Finding::NotFound), Ok(Finding::NotExecuted));
    for provider in [not_found.clone(), denied.clone(), refused, Ok(Finding::AskAgain(None)), Err("away")] {
        for (ending, late) in [
            (Some(Ending::NotExecuted), Duration::ZERO),
            (Some(Ending::PerhapsExecuted(UnknownCause::Panicked)), Duration::ZERO),
            (Some(Ending::PerhapsExecuted(UnknownCause::Panicked)), grace),
            (None, Duration::ZERO),
            (None, grace),
        ] {
            let listening = Listening::on(endpoint, Says::this(provider.clone())).await;
            let request = request();
            let ours = owned(listening.reserve(&request).await);
            let key = request.key.downstream_key(&request.fingerprints.current(), PHASE);
            let word = Told::executed(201, charged()).under(PHASE, &key);
            listening.tell(&request, word).await;
            let (message, delay) = listening.waiting();
            match ending.clone() {
                Some(ending) => drop(listening.guarded.executor().finish(ours, ending).await),
                None => drop(ours),
            }
            listening.guarded.clock.advance(delay + late);
            listening.reconciliation.receive(&message).await.unwrap();
            assert_eq!(told(&listening.reserve(&request).await), "unknown");
            let letters = listening.letters.take();
            listening.guarded.clock.advance(grace);
            // "Not found" may merely be too early.
            let denies = match &provider {
                Ok(Finding::NotFound) => late == grace,
                Ok(finding) => !matches!(finding, Finding::AskAgain(_)),
                Err(_) => false,
            };
            if denies {
                let [(letter, _)] = &letters[..] else { panic!("not one letter") };
                assert!(letter.contains("does not confirm") && letter.contains(&key), "{letter}");
                let polled = listening.reconciliation.ask_if_due(&request.key).await.unwrap();
                assert_eq!(polled, ReconcileOutcome::NotDue);
            } else {
                // It is asked again, and a denial then is escalated.
                assert!(letters.is_empty(), "{letters:?}");
                let says = if late == grace { not_found.clone() } else { denied.clone() };
                let back = Reconciliation::new(listening.guarded.store(), listening.letters.clone())
                    .world(listening.guarded.clock.clone())
                    .operation(operation(), Says::this(says));
                let polled = back.ask_if_due(&request.key).await.unwrap();
                assert_eq!((polled, listening.letters.take().len()), (ReconcileOutcome::Escalated, 1));
            }
            assert_eq!(told(&listening.reserve(&request).await), "unknown");
            // An operator's question releases nothing either.
            listening.reconciliation.ask(&request.key).await.unwrap();
            assert_eq!(listening.state(&request).await, "unknown");
        }
    }
}

// T36: after a rollback, or before the deployment is complete.
#[test]
fn an_older_version_refuses_this_message() {
    // The kinds that the older version knows.
    for kind in ["ask", "ending", "forgotten", "double_execution"] {
        assert!(!WAITING.contains(&format!("\"kind\":\"{kind}\"")));
    }
    assert_eq!(Letter::read(WAITING).queue, Some("reconcile"));
    assert!(Letter::read(WAITING).record.is_some());
}

/// A deferred word, as this version writes it.
const WAITING: &str = r#"{"kind":"told","key":"acme#pay#k","said":{"word":{"executed":201},"under":["charge","key"],"made_at":1}}"#;

// T46: events arrive in any order, and all attempts share one downstream key.
async fn an_earlier_attempts_late_refusal_does_not_settle_a_later_one(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = listening.ended(Ending::NotExecuted).await;
    let again = owned(listening.reserve(&request).await);
    let doubt = Ending::PerhapsExecuted(UnknownCause::HandlerFailed);
    written(listening.guarded.executor().finish(again, doubt).await);
    for told in [Told::not_executed(), Told::executed(402, charged())] {
        let outcome = listening.tell(&request, told).await;
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
async fn a_word_that_contradicts_a_completed_record_is_escalated(endpoint: &str) {
    for (ending, told) in [
        (refusal(), Told::executed(201, charged())),
        (completed("mine"), Told::executed(402, charged())),
        (completed("mine"), Told::not_executed()),
    ] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = listening.ended(ending).await;
        let before = listening.guarded.record(&request.key).await;
        assert_eq!(listening.tell(&request, told).await, ReconcileOutcome::Escalated);
        assert_eq!(listening.reasons().len(), 1);
        assert_eq!(listening.guarded.record(&request.key).await, before);
    }
}

async fn a_word_that_agrees_with_the_record_changes_nothing(endpoint: &str) {
    for (ending, told) in [
        (completed("mine"), Told::executed(201, charged())),
        (refusal(), Told::executed(402, charged())),
        (refusal(), Told::not_executed()),
        (Ending::NotExecuted, Told::not_executed()),
    ] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = listening.ended(ending).await;
        let before = listening.guarded.record(&request.key).await;
        assert_eq!(listening.tell(&request, told).await, ReconcileOutcome::Settled);
        assert_eq!(listening.guarded.record(&request.key).await, before);
        assert_eq!(listening.reasons().len(), 0);
    }
}

// T46
async fn an_effect_without_a_record_is_escalated_unless_it_is_old(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let bound = Duration::from_secs(14 * 24 * 60 * 60 + 5 * 60);
    let now = listening.guarded.now();
    let old = now.minus(bound + Duration::from_millis(1));
    let tell = async |told| listening.tell(&request(), told).await;
    let effect = || Told::executed(201, charged());
    assert_eq!(tell(effect()).await, ReconcileOutcome::Escalated);
    assert_eq!(tell(effect().made_at(now.minus(bound))).await, ReconcileOutcome::Escalated);
    assert_eq!(tell(effect().made_at(Timestamp::MAX)).await, ReconcileOutcome::Escalated);
    assert_eq!(listening.reasons().len(), 3);
    // Its record may have expired; and a refusal need not have one.
    assert_eq!(tell(effect().made_at(old)).await, ReconcileOutcome::Gone);
    assert_eq!(tell(Told::executed(402, charged())).await, ReconcileOutcome::Settled);
    assert_eq!(tell(Told::not_executed()).await, ReconcileOutcome::Settled);
    assert_eq!(listening.reasons().len(), 0);
    listening.reconciliation.unclaimed("idk_1", "it leads to no record").await.unwrap();
    assert_eq!(listening.reasons(), ["it leads to no record"]);
}

// T46, R2: metadata leads to the record, and anybody could have set it.
async fn a_word_under_another_requests_key_settles_nothing_and_is_escalated(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let (doubt, source) = (UnknownCause::HandlerFailed, charged());
    let request = listening.ended(Ending::PerhapsExecuted(doubt)).await;
    let told = || Told::executed(201, source.clone());
    assert_eq!(listening.tell(&request, told().under(PHASE, "forged")).await, ReconcileOutcome::Escalated);
    assert_eq!((listening.reasons().len(), source.asked()), (1, 0));
    let refused = Told::executed(402, source.clone()).under(PHASE, "forged");
    assert_eq!(listening.tell(&request, refused).await, ReconcileOutcome::Settled);
    assert_eq!((listening.state(&request).await, source.asked()), ("unknown", 0));
    let key = request.key.downstream_key(&request.fingerprints.current(), PHASE);
    let settled = listening.tell(&request, told().under(PHASE, &key)).await;
    assert_eq!(settled, ReconcileOutcome::Resolved("completed"));
}

/// A reconciler that finds a charge, and lets the worker complete with a refusal before it returns.
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
async fn a_question_whose_answer_contradicts_what_was_completed_meanwhile_is_escalated(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    let late = owned(listening.reserve(&request).await);
    listening.guarded.clock.advance(LEASE + GRACE);
    assert_eq!(told(&listening.reserve(&request).await), "unknown");
    let meanwhile = Meanwhile { worker: listening.guarded.executor(), late: Mutex::new(Some(late)) };
    let polling = Reconciliation::new(listening.guarded.store(), listening.letters.clone())
        .world(listening.guarded.clock.clone())
        .operation(operation(), meanwhile);
    assert_eq!(polling.ask_if_due(&request.key).await.unwrap(), ReconcileOutcome::Escalated);
    assert_eq!(listening.reasons().len(), 1);
    assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(402));
}
