//! Domain writes that are refused, or come when their record has moved on: the effect beside them is never repeated, nor forgotten.

use std::time::Duration;

use futures_util::FutureExt;
use lambda_idempotency::{
    async_trait,
    engine::{Computation, Computed, Ending, FinishOutcome, OneTripOutcome, Request, ReserveOutcome},
    operation::LeaseOver,
    queue::MemoryQueue,
    reconcile::{Finding, Question, Reconciler, Reconciliation},
    record::{Answer, UnknownCause},
    telemetry::DOUBLE_EXECUTION,
};
use serde_json::{Value, json};

use crate::support::{
    BoxError,
    bank::Bank,
    counts::counting,
    guarded::{GRACE, LEASE, RETENTION, completed, operation, owned, replayed_text, request, told, written},
    on_each_store,
};

on_each_store!(
    an_effect_whose_queued_writes_are_refused_claims_its_record,
    a_late_worker_whose_writes_are_refused_claims_its_record,
    a_queued_ending_with_writes_waits_for_the_execution_that_has_its_record,
    a_queued_ending_with_writes_never_ends_in_a_new_life_unheard,
    a_frozen_request_in_one_trip_sends_nothing_once_it_thaws,
    a_double_execution_is_reported_although_its_writes_are_refused,
    a_duplicate_in_one_trip_is_replayed_although_its_write_is_refused,
    a_refusal_whose_writes_can_never_be_made_claims_nothing,
    an_operation_that_may_run_again_is_not_claimed,
);

/// A provider that says the same to every question.
struct Says(Finding);

#[async_trait]
impl Reconciler for Says {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok(self.0.clone())
    }
}

impl Bank {
    /// The lease is over, and the provider says this.
    async fn settle(&self, request: &Request, finding: Finding) {
        self.guarded.clock.advance(LEASE + GRACE);
        let settled = Reconciliation::new(self.guarded.store(), MemoryQueue::new())
            .world(self.guarded.clock.clone())
            .operation(operation(), Says(finding));
        settled.ask(&request.key).await.unwrap();
    }

    /// Nobody repeats the effect, however often the provider denies it.
    async fn is_claimed(&self, request: &Request) {
        let record = self.guarded.record(&request.key).await.unwrap();
        assert_eq!((record.claimed, record.state.name()), (true, "unknown"));
        self.settle(request, Finding::NotExecuted).await;
        assert_eq!(told(&self.executor().reserve(request).await), "unknown");
        assert_eq!(self.cents("a").await, Some(100));
    }
}

// R22, R28, T5
async fn an_effect_whose_queued_writes_are_refused_claims_its_record(endpoint: &str) {
    for released in [false, true] {
        let (bank, request, letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
        assert!(matches!(bank.lose(&request, [bank.take(101)]).await, FinishOutcome::InDoubt));
        if released {
            bank.settle(&request, Finding::NotExecuted).await;
            assert_eq!(bank.guarded.state(&request).await, "failed_retryable");
        }
        let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
        bank.reconciliation(&letters).receive(message).await.unwrap();
        let [(letter, _)] = &letters.take()[..] else { panic!("not one letter") };
        let letter: Value = serde_json::from_str(letter).unwrap();
        let state = if released { "unknown" } else { "in_progress" };
        assert_eq!((&letter["kind"], &letter["state"]), (&json!("contradiction"), &json!(state)));
        bank.guarded.clock.advance(LEASE + GRACE);
        assert_eq!(told(&bank.executor().reserve(&request).await), "unknown");
        bank.is_claimed(&request).await;
    }
}

// R22, R28, T5
async fn a_late_worker_whose_writes_are_refused_claims_its_record(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let late = bank.begin(&request).await;
    late.execution().write(bank.take(101)).unwrap();
    bank.settle(&request, Finding::NotExecuted).await;
    assert_eq!(bank.guarded.state(&request).await, "failed_retryable");
    let ended = bank.executor().finish(late, completed("charged")).await;
    assert!(matches!(ended, FinishOutcome::InDoubt), "{ended:?}");
    bank.is_claimed(&request).await;
}

// R22, R11: its caller has the true answer.
async fn a_queued_ending_with_writes_waits_for_the_execution_that_has_its_record(endpoint: &str) {
    let (bank, request, letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
    assert!(matches!(bank.lose(&request, [bank.book("b-1")]).await, FinishOutcome::HandedOver));
    let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
    let runs_again = || operation().when_lease_over(LeaseOver::RunAgain);
    let reconciliation = Reconciliation::new(bank.guarded.store(), letters.clone())
        .world(bank.guarded.clock.clone())
        .operation(runs_again(), Says(Finding::NotFound));
    bank.guarded.clock.advance(LEASE + GRACE);
    let executor = bank.guarded.executor_of(runs_again());
    let second = owned(executor.reserve(&request).await);
    assert!(reconciliation.receive(message).await.is_err());
    written(executor.finish(second, Ending::NotExecuted).await);
    reconciliation.receive(message).await.unwrap();
    assert_eq!((bank.cents("b-1").await, letters.take()), (Some(1), vec![]));
    assert_eq!(replayed_text(executor.reserve(&request).await), "ok");
}

// R22, R29
async fn a_queued_ending_with_writes_never_ends_in_a_new_life_unheard(endpoint: &str) {
    for completes in [false, true] {
        let (bank, request, letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
        assert!(matches!(bank.lose(&request, [bank.book("b-1")]).await, FinishOutcome::HandedOver));
        bank.settle(&request, Finding::Executed(Answer::json(201, "{}"))).await;
        bank.guarded.clock.advance(RETENTION + Duration::from_secs(301));
        let next = bank.begin(&request).await;
        let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
        let reconciliation = bank.reconciliation(&letters);
        if completes {
            next.execution().write(bank.book("b-2")).unwrap();
            written(bank.executor().finish(next, completed("next")).await);
        }
        // While somebody else has the record it may wait; it is never acknowledged without a word.
        let acknowledged = reconciliation.receive(message).await.is_ok();
        assert_eq!((acknowledged, letters.take().len()), (true, 1), "completes: {completes}");
        assert_eq!(bank.cents("b-1").await, None);
    }
}

// R23, T39
async fn a_frozen_request_in_one_trip_sends_nothing_once_it_thaws(endpoint: &str) {
    let (bank, request) = (&Bank::on(endpoint).await, request());
    let take = |text: &'static str, freezes: bool| {
        let (write, clock) = (bank.take(30), bank.guarded.clock.clone());
        move |computation: Computation| {
            computation.write(write.clone()).unwrap();
            if freezes {
                // Long enough for the other's record to expire.
                clock.advance(RETENTION + Duration::from_secs(301));
            }
            async move { Computed::Answer(Answer::http(201, Vec::new(), text), ()) }.boxed()
        }
    };
    let executor = bank.executor();
    let other = executor.in_one_trip(&request, take("the other's", false)).await;
    assert!(matches!(other, OneTripOutcome::Committed { .. }), "{other:?}");
    let thawed = executor.in_one_trip(&request, take("late", true)).await;
    assert!(matches!(thawed, OneTripOutcome::Unconfirmed), "{thawed:?}");
    assert_eq!(bank.cents("a").await, Some(70));
}

// R22, T5: the worker's own doubt must not hide it.
async fn a_double_execution_is_reported_although_its_writes_are_refused(endpoint: &str) {
    for unknown in [false, true] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        let executor = bank.handing_over();
        let late = owned(executor.reserve(&request).await);
        late.execution().write(bank.take(1)).unwrap();
        late.execution().write(bank.take(2)).unwrap_err();
        bank.settle(&request, Finding::NotExecuted).await;
        let second = bank.begin(&request).await;
        if unknown {
            let doubt = Ending::PerhapsExecuted(UnknownCause::HandlerFailed);
            written(bank.executor().finish(second, doubt).await);
        }
        let (ended, counted) = counting(executor.finish(late, completed("charged"))).await;
        assert!(matches!(ended, FinishOutcome::InDoubt | FinishOutcome::AnsweredElsewhere), "{ended:?}");
        assert_eq!(counted.get(DOUBLE_EXECUTION), Some(&1));
        assert!(bank.queue.take().iter().any(|(message, _)| message.contains("double_execution")));
    }
}

// R23: what it computes from today's rows does not matter.
async fn a_duplicate_in_one_trip_is_replayed_although_its_write_is_refused(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let first = bank.take(30);
    let computed = |writes: Vec<_>| {
        move |computation: Computation| {
            for write in writes.clone() {
                let _ = computation.write(write);
            }
            async { Computed::Answer(Answer::http(201, Vec::new(), "taken"), ()) }.boxed()
        }
    };
    let outcome = bank.executor().in_one_trip(&request, computed(vec![first.clone()])).await;
    assert!(matches!(outcome, OneTripOutcome::Committed { .. }), "{outcome:?}");
    let twice = computed(vec![first.clone(), first]);
    let outcome = bank.executor().in_one_trip(&request, twice).await;
    assert!(matches!(outcome, OneTripOutcome::Met(ReserveOutcome::Replay(_))), "{outcome:?}");
    assert_eq!(bank.cents("a").await, Some(70));
}

// R22, R29: a refusal is no effect, whatever its rows are worth.
async fn a_refusal_whose_writes_can_never_be_made_claims_nothing(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let ours = bank.begin(&request).await;
    written(bank.executor().finish(ours, Ending::PerhapsExecuted(UnknownCause::HandlerFailed)).await);
    for (status, claimed) in [(402, false), (201, true)] {
        let answer = Answer::json(status, "{}");
        bank.settle(&request, Finding::ExecutedWith(answer, vec![bank.take(1), bank.take(2)])).await;
        let record = bank.guarded.record(&request.key).await.unwrap();
        assert_eq!((record.claimed, record.state.name()), (claimed, "unknown"));
    }
}

// R11: it computes again what was refused.
async fn an_operation_that_may_run_again_is_not_claimed(endpoint: &str) {
    let (bank, request, letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
    assert!(matches!(bank.lose(&request, [bank.take(101)]).await, FinishOutcome::InDoubt));
    let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
    let runs_again = || operation().when_lease_over(LeaseOver::RunAgain);
    let reconciliation = Reconciliation::new(bank.guarded.store(), letters.clone())
        .world(bank.guarded.clock.clone())
        .operation(runs_again(), Says(Finding::NotFound));
    reconciliation.receive(message).await.unwrap();
    assert_eq!(letters.take().len(), 1);
    bank.guarded.clock.advance(LEASE + GRACE);
    let executor = bank.guarded.executor_of(runs_again());
    let second = owned(executor.reserve(&request).await);
    written(executor.finish(second, completed("again")).await);
}
