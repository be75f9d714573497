//! Domain writes that are refused, or that come when their record has moved on. The effect of their operation is never repeated, and never
//! forgotten.

use std::time::Duration;

use futures_util::{FutureExt, future::join};
use lambda_idempotency::{
    async_trait,
    engine::{Computed, Replied, Report, Request, SingleTransaction},
    operation::OnLeaseExpiry,
    queue::MemoryQueue,
    reconcile::{Finding, Question, Reconciler, Reconciliation},
    record::{Answer, Evidence, Says},
    telemetry::DOUBLE_EXECUTION,
    time_budget::MAX_SENDING_TIME,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    BoxError,
    bank::{Bank, TRANSACTION},
    clock::{SENT_AGAIN, in_time},
    counts::counting,
    faults::Fault,
    guarded::{
        GRACE, Guarded, LEASE, RETENTION, completed, operation, outcome_of, owned, replayed_text, request,
        written,
    },
    on_each_store,
    tables::domain_table,
};

/// A provider that gives the same answer to every question.
struct Fixed(Finding);

#[async_trait]
impl Reconciler for Fixed {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok(self.0.clone())
    }
}

impl Bank {
    /// The lease has expired, and the provider says this.
    async fn settle(&self, request: &Request, finding: Finding) {
        self.guarded.clock.advance(LEASE + GRACE);
        let settled = Reconciliation::new(self.guarded.store(), MemoryQueue::new())
            .world(self.guarded.clock.clone())
            .operation(operation(), Fixed(finding));
        settled.ask(&request.key).await.unwrap();
    }

    /// No retry repeats the effect, however often the provider denies it.
    async fn is_claimed(&self, request: &Request) {
        let record = self.guarded.record(&request.key).await.unwrap();
        assert_eq!((record.reported, record.state.name()), (Some(Evidence::Effect), "unknown"));
        self.settle(request, Finding::NotExecuted).await;
        assert_eq!(outcome_of(&self.executor().reserve(request).await), "unknown");
        assert_eq!(self.cents("a").await, Some(100));
    }
}

// T5
#[apply(on_each_store)]
async fn an_effect_whose_queued_writes_are_refused_claims_its_record(endpoint: &str) {
    for released in [false, true] {
        let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
        assert!(matches!(bank.lose(&request, [bank.take(101)]).await, Says::Unknown { .. }));
        if released {
            bank.settle(&request, Finding::NotExecuted).await;
            assert_eq!(bank.guarded.state(&request).await, "failed_retryable");
        }
        let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
        bank.reconciliation(&dead_letters).receive(message).await.unwrap();
        let [(dead_letter, _)] = &dead_letters.take()[..] else { panic!("not one dead letter") };
        let dead_letter: Value = serde_json::from_str(dead_letter).unwrap();
        assert_eq!(
            (&dead_letter["kind"], &dead_letter["state"]),
            (&json!("contradiction"), &json!("unknown"))
        );
        assert_eq!(outcome_of(&bank.executor().reserve(&request).await), "unknown");
        bank.is_claimed(&request).await;
    }
}

// T5
#[apply(on_each_store)]
async fn a_late_worker_whose_writes_are_refused_claims_its_record(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let late = bank.begin(&request).await;
    late.execution().write(bank.take(101)).unwrap();
    bank.settle(&request, Finding::NotExecuted).await;
    assert_eq!(bank.guarded.state(&request).await, "failed_retryable");
    let ended = bank.executor().finish(late, completed("charged")).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
    bank.is_claimed(&request).await;
}

// Its caller has the true answer.
#[apply(on_each_store)]
async fn a_deferred_report_with_writes_waits_for_its_records_execution(endpoint: &str) {
    let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
    assert!(matches!(bank.lose(&request, [bank.book("b-1")]).await, Says::Own { expires_at: None }));
    let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
    let runs_again = || operation().on_lease_expiry(OnLeaseExpiry::RunAgain);
    let reconciliation = Reconciliation::new(bank.guarded.store(), dead_letters.clone())
        .world(bank.guarded.clock.clone())
        .operation(runs_again(), Fixed(Finding::NotFound));
    bank.guarded.clock.advance(LEASE + GRACE);
    let executor = bank.guarded.executor_of(runs_again());
    let second = owned(executor.reserve(&request).await);
    assert!(reconciliation.receive(message).await.is_err());
    // It did nothing, but the first one reports an effect.
    let ended = executor.finish(second, Report::NotExecuted(None)).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
    reconciliation.receive(message).await.unwrap();
    assert_eq!((bank.cents("b-1").await, dead_letters.take()), (Some(1), vec![]));
    assert_eq!(replayed_text(executor.reserve(&request).await), "ok");
}

#[apply(on_each_store)]
async fn a_queued_report_from_an_earlier_generation_with_writes_is_escalated(endpoint: &str) {
    for completes in [false, true] {
        let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
        assert!(matches!(bank.lose(&request, [bank.book("b-1")]).await, Says::Own { expires_at: None }));
        bank.settle(&request, Finding::Executed(Answer::json(201, "{}"))).await;
        bank.guarded.clock.advance(RETENTION + Duration::from_secs(301));
        let next = bank.begin(&request).await;
        let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
        let reconciliation = bank.reconciliation(&dead_letters);
        if completes {
            next.execution().write(bank.book("b-2")).unwrap();
            written(bank.executor().finish(next, completed("next")).await);
        }
        // While another execution owns the record, it may wait. It is never acknowledged without a report.
        let acknowledged = reconciliation.receive(message).await.is_ok();
        assert_eq!((acknowledged, dead_letters.take().len()), (true, 1), "completes: {completes}");
        assert_eq!(bank.cents("b-1").await, None);
    }
}

// T39
#[apply(on_each_store)]
async fn a_frozen_request_in_a_single_transaction_sends_nothing_once_it_resumes(endpoint: &str) {
    let (bank, request) = (&Bank::on(endpoint).await, request());
    let take = |text: &'static str, freezes: bool| {
        let (write, clock) = (bank.take(30), bank.guarded.clock.clone());
        move |transaction: SingleTransaction| {
            transaction.write(write.clone()).unwrap();
            if freezes {
                // Long enough for the other execution's record to expire.
                clock.advance(RETENTION + Duration::from_secs(301));
            }
            async move { Computed::Answer(Answer::http(201, Vec::new(), text), ()) }.boxed()
        }
    };
    let executor = bank.executor();
    let other = executor.run_single_transaction(&request, take("the other's", false)).await;
    assert!(matches!(other, Replied { says: Says::Own { .. }, .. }), "{other:?}");
    let resumed = executor.run_single_transaction(&request, take("late", true)).await;
    assert!(matches!(resumed, Replied { says: Says::Unconfirmed, .. }), "{resumed:?}");
    assert_eq!(bank.cents("a").await, Some(70));
}

// T11, T39: the clock of the waits may stand still while a process is frozen.
#[apply(on_each_store)]
async fn a_process_frozen_between_two_sends_sends_its_transaction_no_more(endpoint: &str) {
    let (first_backoff, second_backoff) = (Duration::from_millis(25), Duration::from_millis(50));
    for (frozen_for, sent) in [(MAX_SENDING_TIME, 2), (MAX_SENDING_TIME + Duration::from_millis(1), 1)] {
        let (bank, request) = (&Bank::on(endpoint).await, request());
        let (write, clock, began) = (bank.take(30), &bank.guarded.clock, bank.guarded.now());
        bank.guarded.faults.for_all(TRANSACTION, Fault::DropRequest);
        let compute = move |transaction: SingleTransaction| {
            transaction.write(write.clone()).unwrap();
            async { Computed::Answer(Answer::http(201, Vec::new(), "taken"), ()) }.boxed()
        };
        let executor = bank.executor();
        let transacted = executor.run_single_transaction(&request, compute);
        let freezes = async {
            clock.slept(first_backoff, 1).await;
            clock.set(began.plus(frozen_for).minus(first_backoff));
            clock.advance(first_backoff);
            if sent == 2 {
                // The next try would be sent too late.
                clock.slept(second_backoff, 1).await;
                clock.advance(second_backoff);
            }
        };
        let (outcome, ()) = join(in_time(transacted), freezes).await;
        assert!(matches!(outcome, Replied { says: Says::Unconfirmed, .. }), "{outcome:?}");
        assert_eq!(bank.guarded.faults.asked(TRANSACTION), sent, "{frozen_for:?}");
    }
}

// T39: it does not know until when a transaction may be sent.
#[apply(on_each_store)]
async fn the_client_of_the_store_does_not_resend_a_single_transaction(endpoint: &str) {
    let (guarded, request) = (Guarded::on(endpoint).await, request());
    let accounts = domain_table(&guarded.undisturbed).await;
    guarded.faults.for_all(TRANSACTION, Fault::DropRequest);
    let executor = guarded.executor_of(operation().completion_timeout(Duration::ZERO));
    let compute = move |transaction: SingleTransaction| {
        transaction.write(accounts.put(json!({ "id": "a" }))).unwrap();
        async { Computed::Answer(Answer::http(201, Vec::new(), "put"), ()) }.boxed()
    };
    let transacted = executor.run_single_transaction(&request, compute);
    let outcome = guarded.clock.through(&[SENT_AGAIN], transacted).await;
    assert!(matches!(outcome, Replied { says: Says::Unconfirmed, .. }), "{outcome:?}");
    assert_eq!(guarded.faults.asked(TRANSACTION), 3, "one request for each try of the engine");
}

// T5: the worker's own unknown outcome must not hide it.
#[apply(on_each_store)]
async fn a_double_execution_is_reported_although_its_writes_are_refused(endpoint: &str) {
    for unknown in [false, true] {
        let (bank, request) = (Bank::on(endpoint).await, request());
        let executor = bank.deferring();
        let late = owned(executor.reserve(&request).await);
        late.execution().write(bank.take(1)).unwrap();
        late.execution().write(bank.take(2)).unwrap_err();
        bank.settle(&request, Finding::NotExecuted).await;
        let second = bank.begin(&request).await;
        if unknown {
            let unknown = Report::perhaps("handler_failed");
            written(bank.executor().finish(second, unknown).await);
        }
        let (ended, counted) = counting(executor.finish(late, completed("charged"))).await;
        assert!(matches!(ended, Says::Unknown { .. } | Says::AnsweredElsewhere), "{ended:?}");
        assert_eq!(counted.get(DOUBLE_EXECUTION), unknown.then_some(&1));
        let (dead_letters, messages) = (MemoryQueue::new(), bank.queue.take());
        let reconciliation = bank.reconciliation(&dead_letters);
        assert_eq!(messages.len(), usize::from(!unknown), "it waits for the other execution");
        for (message, _) in messages {
            assert!(reconciliation.receive(&message).await.is_err());
        }
        reconciliation.ask_if_due(&request.key).await.unwrap();
        // The second execution, and its rows that nobody has.
        assert_eq!(dead_letters.take().len(), if unknown { 2 } else { 0 });
    }
}

// What it computes from today's rows does not matter.
#[apply(on_each_store)]
async fn a_single_transaction_duplicate_is_replayed_although_its_write_is_refused(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let first = bank.take(30);
    let computed = |writes: Vec<_>| {
        move |transaction: SingleTransaction| {
            for write in writes.clone() {
                let _ = transaction.write(write);
            }
            async { Computed::Answer(Answer::http(201, Vec::new(), "taken"), ()) }.boxed()
        }
    };
    let outcome = bank.executor().run_single_transaction(&request, computed(vec![first.clone()])).await;
    assert!(matches!(outcome, Replied { says: Says::Own { .. }, .. }), "{outcome:?}");
    let twice = computed(vec![first.clone(), first]);
    let outcome = bank.executor().run_single_transaction(&request, twice).await;
    assert!(matches!(outcome, Replied { says: Says::Replay(_), .. }), "{outcome:?}");
    assert_eq!(bank.cents("a").await, Some(70));
}

// A refusal is no effect, even if its rows can be written.
#[apply(on_each_store)]
async fn a_refusal_whose_writes_can_never_be_made_claims_nothing(endpoint: &str) {
    let (bank, request) = (Bank::on(endpoint).await, request());
    let ours = bank.begin(&request).await;
    written(bank.executor().finish(ours, Report::perhaps("handler_failed")).await);
    for (status, claimed) in [(402, false), (201, true)] {
        let answer = Answer::json(status, "{}");
        bank.settle(&request, Finding::ExecutedWith(answer, vec![bank.take(1), bank.take(2)])).await;
        let record = bank.guarded.record(&request.key).await.unwrap();
        assert_eq!((record.reported.is_some(), record.state.name()), (claimed, "unknown"));
    }
}

// It computes again what was refused.
#[apply(on_each_store)]
async fn an_operation_that_may_run_again_is_not_claimed(endpoint: &str) {
    let (bank, request, dead_letters) = (Bank::on(endpoint).await, request(), MemoryQueue::new());
    assert!(matches!(bank.lose(&request, [bank.take(101)]).await, Says::Unknown { .. }));
    let [(message, _)] = &bank.queue.take()[..] else { panic!("not one message") };
    let runs_again = || operation().on_lease_expiry(OnLeaseExpiry::RunAgain);
    let reconciliation = Reconciliation::new(bank.guarded.store(), dead_letters.clone())
        .world(bank.guarded.clock.clone())
        .operation(runs_again(), Fixed(Finding::NotFound));
    reconciliation.receive(message).await.unwrap();
    assert_eq!(dead_letters.take().len(), 1);
    bank.guarded.clock.advance(LEASE + GRACE);
    let executor = bank.guarded.executor_of(runs_again());
    let second = owned(executor.reserve(&request).await);
    written(executor.finish(second, completed("again")).await);
}
