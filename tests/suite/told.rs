//! What a provider tells by itself is held against the record whatever its state (T46).

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
    a_word_during_a_live_lease_is_held_against_what_becomes_of_it,
    a_word_during_a_live_lease_settles_the_record_of_a_worker_that_died,
    a_word_during_a_live_lease_overturns_the_workers_release,
    a_word_that_waits_follows_a_lease_that_grows,
    a_claim_outlasts_a_write_or_an_answer_that_is_lost,
    a_word_that_meets_a_release_at_the_same_moment_overturns_it,
    a_word_that_nobody_confirms_keeps_every_retry_away,
    a_word_whose_own_source_denies_it_releases_nothing,
    a_workers_refusal_is_no_answer_once_an_effect_is_told_of,
    a_retry_does_not_run_while_the_answer_to_an_effect_is_asked_for,
    a_word_that_comes_again_leaves_the_record_with_people,
    a_late_refusal_of_a_worker_is_no_answer_either,
    a_refusal_that_is_handed_over_after_an_effect_was_told_of_settles_nothing,
    what_may_run_again_does_not_once_an_effect_is_told_of,
    a_refusal_is_confirmed_before_it_counts,
    a_refusal_of_an_operation_that_nobody_knows_is_no_letter,
    a_late_refusal_of_an_earlier_attempt_does_not_end_a_later_one,
    a_word_that_contradicts_a_completed_record_is_escalated,
    a_word_that_agrees_with_the_record_changes_nothing,
    an_effect_without_a_record_is_escalated_unless_it_is_old,
    a_word_under_another_requests_key_settles_nothing_and_is_escalated,
    a_question_whose_answer_contradicts_what_was_completed_meanwhile_is_escalated,
);

const PHASE: &str = "charge";

/// Says one thing, and counts how often it is asked.
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
    /// With a provider that says this when it is asked.
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

    /// A record that its worker ended so.
    async fn ended(&self, ending: Ending) -> Request {
        let request = request();
        let ours = owned(self.reserve(&request).await);
        written(self.guarded.executor().finish(ours, ending).await);
        request
    }

    async fn tell(&self, request: &Request, told: Told) -> ReconcileOutcome {
        self.reconciliation.told(&request.key, &told).await.expect("store and queue answer")
    }

    /// The message that waits, and for how long.
    fn waiting(&self) -> (String, Duration) {
        let [waiting] = &self.questions.take()[..] else { panic!("not one question") };
        waiting.clone()
    }

    /// The dead letters, by their reasons, each of which an operator can read.
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
async fn a_word_during_a_live_lease_is_held_against_what_becomes_of_it(endpoint: &str) {
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
async fn a_word_during_a_live_lease_settles_the_record_of_a_worker_that_died(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    drop(owned(listening.reserve(&request).await));
    listening.tell(&request, Told::executed(201, charged())).await;
    let (message, delay) = listening.waiting();
    listening.guarded.clock.advance(delay);
    listening.reconciliation.receive(&message).await.unwrap();
    assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(201));
    // It comes twice.
    listening.reconciliation.receive(&message).await.unwrap();
    assert_eq!((listening.reasons().len(), listening.provider.asked()), (0, 1));
}

// T46
async fn a_word_during_a_live_lease_overturns_the_workers_release(endpoint: &str) {
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
async fn a_claim_outlasts_a_write_or_an_answer_that_is_lost(endpoint: &str) {
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
async fn a_word_that_meets_a_release_at_the_same_moment_overturns_it(endpoint: &str) {
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
        // Whichever comes first.
        let expected = match outcome {
            ReconcileOutcome::Scheduled(_) => "unknown",
            ReconcileOutcome::Resolved("completed") => "replay",
            other => panic!("{other:?}"),
        };
        assert_eq!(told(&listening.reserve(&request).await), expected);
    }
}

// T46: whoever takes the word up asks somebody who lags behind, and what was seen is stronger than what is not found.
async fn a_word_whose_own_source_denies_it_releases_nothing(endpoint: &str) {
    let refused = Ok(Finding::Executed(Answer::json(402, "{}")));
    for source in [Ok(Finding::NotFound), Ok(Finding::NotExecuted), refused, Err("away")] {
        for ending in [Ending::NotExecuted, Ending::PerhapsExecuted(UnknownCause::Panicked)] {
            let listening = Listening::on(endpoint, charged()).await;
            let request = listening.ended(ending).await;
            listening.guarded.clock.advance(DEFAULT_NOT_FOUND_GRACE);
            let outcome = listening.tell(&request, Told::executed(201, Says::this(source.clone()))).await;
            // Who told it has the answer, and tells it again.
            let denies = matches!(&source, Ok(Finding::NotExecuted | Finding::Executed(_)));
            let expected = if denies { ReconcileOutcome::Escalated } else { ReconcileOutcome::NotDue };
            assert_eq!(outcome, expected, "{source:?}");
            assert_eq!(told(&listening.reserve(&request).await), "unknown");
            // Nor does a refusal that is told after it.
            let provider = Says::this(Ok(Finding::Executed(Answer::json(402, "{}"))));
            let later = Reconciliation::new(listening.guarded.store(), listening.letters.clone())
                .world(listening.guarded.clock.clone())
                .operation(operation(), provider);
            let outcome = later.told(&request.key, &Told::executed(402, charged())).await.unwrap();
            assert_eq!(outcome, ReconcileOutcome::Escalated);
            assert_eq!(told(&listening.reserve(&request).await), "unknown");
            // Nor is it found, though that is later than it would be remembered: the webhook has its answer with it.
            listening.guarded.clock.advance(Duration::from_secs(24 * 3600));
            let outcome = listening.tell(&request, Told::executed(201, charged())).await;
            assert_eq!(outcome, ReconcileOutcome::Resolved("completed"));
            assert_eq!(told(&listening.reserve(&request).await), "replay");
        }
    }
}

// T46, T5: its client would pay by another card.
async fn a_workers_refusal_is_no_answer_once_an_effect_is_told_of(endpoint: &str) {
    for lease_over in [false, true] {
        let listening = Listening::on(endpoint, charged()).await;
        let request = request();
        let ours = owned(listening.reserve(&request).await);
        if lease_over {
            listening.guarded.clock.advance(LEASE + GRACE);
        }
        // Its own answer cannot be written now.
        listening.tell(&request, Told::executed(201, Says::this(Err("away")))).await;
        let ended = listening.guarded.executor().finish(ours, refusal()).await;
        assert!(matches!(ended, FinishOutcome::InDoubt), "{ended:?}");
        assert_eq!(told(&listening.reserve(&request).await), "unknown");
        let outcome = listening.reconciliation.ask_if_due(&request.key).await.unwrap();
        assert_eq!(outcome, ReconcileOutcome::Resolved("completed"));
        assert_eq!(replayed(listening.reserve(&request).await).answer.head.status(), Some(201));
    }
}

/// Writes the answer of a charge down, while its client asks again.
struct Retried(Executor, Request, Mutex<Option<&'static str>>);

#[async_trait]
impl Reconciler for Retried {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        *self.2.lock().unwrap() = Some(told(&self.0.reserve(&self.1).await));
        Ok(Finding::Executed(Answer::json(201, "{}")))
    }
}

// T46: what is asked takes its time, and a function can be killed meanwhile.
async fn a_retry_does_not_run_while_the_answer_to_an_effect_is_asked_for(endpoint: &str) {
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

// T46, T50: providers send for days what is not acknowledged.
async fn a_word_that_comes_again_leaves_the_record_with_people(endpoint: &str) {
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

// T46: of the first of two executions, which comes late.
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

// T46, T16: a store that goes away after the word was written makes it no truer.
async fn a_refusal_that_is_handed_over_after_an_effect_was_told_of_settles_nothing(endpoint: &str) {
    for loses_the_mark in [false, true] {
        let listening = Listening::on(endpoint, charged()).await;
        let (request, endings) = (request(), MemoryQueue::new());
        let executor = listening.guarded.executor().lost_endings_to(endings.clone());
        let ours = owned(listening.reserve(&request).await);
        listening.tell(&request, Told::executed(201, charged())).await;
        listening.guarded.faults.for_all(ANY, Fault::DropRequest);
        let ended = listening.guarded.clock.passing(executor.finish(ours, refusal())).await;
        listening.guarded.faults.clear();
        // It has not seen the word.
        assert!(matches!(ended, FinishOutcome::HandedOver), "{ended:?}");
        if loses_the_mark {
            // A version before it has written the record.
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
async fn what_may_run_again_does_not_once_an_effect_is_told_of(endpoint: &str) {
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

// T46: it may be late, and of an earlier attempt, or of an earlier life of the key.
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
async fn a_refusal_of_an_operation_that_nobody_knows_is_no_letter(endpoint: &str) {
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
async fn a_word_that_waits_follows_a_lease_that_grows(endpoint: &str) {
    let listening = Listening::on(endpoint, charged()).await;
    let request = request();
    let ours = owned(listening.reserve(&request).await);
    listening.tell(&request, Told::executed(201, charged())).await;
    let (message, _) = listening.waiting();
    // The queue delivers it too early, or a heartbeat has made the lease longer.
    listening.guarded.clock.advance(LEASE);
    listening.reconciliation.receive(&message).await.unwrap();
    assert_eq!(listening.waiting(), (message, GRACE));
    assert_eq!(listening.provider.asked(), 0);
    drop(ours);
}

// T46: the provider has said that it charged. That it cannot be found now is no leave to charge again.
async fn a_word_that_nobody_confirms_keeps_every_retry_away(endpoint: &str) {
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
            // What is not found may be too early to be found.
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
                // It is asked again; and that it denies it then is for people.
                assert!(letters.is_empty(), "{letters:?}");
                let says = if late == grace { not_found.clone() } else { denied.clone() };
                let back = Reconciliation::new(listening.guarded.store(), listening.letters.clone())
                    .world(listening.guarded.clock.clone())
                    .operation(operation(), Says::this(says));
                let polled = back.ask_if_due(&request.key).await.unwrap();
                assert_eq!((polled, listening.letters.take().len()), (ReconcileOutcome::Escalated, 1));
            }
            assert_eq!(told(&listening.reserve(&request).await), "unknown");
            // A person who asks anew releases nothing by that either.
            listening.reconciliation.ask(&request.key).await.unwrap();
            assert_eq!(listening.state(&request).await, "unknown");
        }
    }
}

// T36: rolled back, or not rolled out yet.
#[test]
fn a_version_before_this_message_refuses_it() {
    // The kinds that it knows.
    for kind in ["ask", "ending", "forgotten", "double_execution"] {
        assert!(!WAITING.contains(&format!("\"kind\":\"{kind}\"")));
    }
    assert_eq!(Letter::read(WAITING).queue, Some("reconcile"));
    assert!(Letter::read(WAITING).record.is_some());
}

/// A word that waits, as it is written today.
const WAITING: &str = r#"{"kind":"told","key":"acme#pay#k","said":{"word":{"executed":201},"under":["charge","key"],"made_at":1}}"#;

// T46: events come in any order, and all attempts share one downstream key.
async fn a_late_refusal_of_an_earlier_attempt_does_not_end_a_later_one(endpoint: &str) {
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
    // Its record may have expired; and of what was refused there need not be one.
    assert_eq!(tell(effect().made_at(old)).await, ReconcileOutcome::Gone);
    assert_eq!(tell(Told::executed(402, charged())).await, ReconcileOutcome::Settled);
    assert_eq!(tell(Told::not_executed()).await, ReconcileOutcome::Settled);
    assert_eq!(listening.reasons().len(), 0);
    listening.reconciliation.unclaimed("idk_1", "it leads to no record").await.unwrap();
    assert_eq!(listening.reasons(), ["it leads to no record"]);
}

// T46, R2: what leads to a record is metadata, which anybody can have set.
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

/// Says that it was charged, and lets the worker say the opposite before anybody hears of it.
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
