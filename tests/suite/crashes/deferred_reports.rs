//! Reports that cannot be written. They are deferred to a queue, and applied under the same fence as their worker.

use std::time::Duration;

use lambda_idempotency::{
    async_trait,
    engine::{Executor, Report, Request},
    queue::{MemoryQueue, Queue, QueueError, WorkError},
    reconcile::{Finding, Question, Reconciler, Reconciliation},
    record::{Evidence, Says},
    store::{Store, conformance::samples},
    time_budget::CLOCK_SKEW,
    world::World,
};
use macro_rules_attribute::apply;
use serde_json::Value;

use crate::support::{
    BoxError,
    closed_queue::Closed,
    faults::{ANY, Fault},
    guarded::{
        GRACE, Guarded, Item, LEASE, RETENTION, body_of, completed, fingerprints, operation, outcome_of,
        owned, random, replayed, replayed_text, request, written,
    },
    on_each_store,
};

const HOUR: Duration = Duration::from_secs(3600);

/// A reconciler that must not be asked.
struct NeverAsked;

#[async_trait]
impl Reconciler for NeverAsked {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Err("must not be asked".into())
    }
}

struct Lost {
    guarded: Guarded,
    queue: MemoryQueue,
    dead_letters: MemoryQueue,
    reconciliation: Reconciliation,
}

impl Lost {
    async fn on(endpoint: &str) -> Self {
        let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
        let (queue, dead_letters) = (MemoryQueue::new(), MemoryQueue::new());
        let reconciliation = Reconciliation::new(guarded.store(), dead_letters.clone())
            .world(guarded.clock.clone())
            .operation(operation(), NeverAsked);
        Self { guarded, queue, dead_letters, reconciliation }
    }

    fn executor(&self) -> Executor {
        // No completion timeout: one try, and then the queue.
        self.guarded
            .executor_of(operation().completion_timeout(Duration::ZERO))
            .defer_reports_to(self.queue.clone())
    }

    /// The store goes away between the effect and its completion.
    async fn lose(&self, request: &Request, report: Report) {
        let executor = self.executor();
        let ours = owned(executor.reserve(request).await);
        self.guarded.faults.for_all(ANY, Fault::DropRequest);
        // Its key is not free yet: no corrected request may follow.
        let is_not_begun = matches!(report, Report::NotBegun);
        let ended = self.guarded.clock.passing(executor.finish(ours, report)).await;
        assert!(
            matches!(
                (&ended, is_not_begun),
                (Says::Own { expires_at: None }, false) | (Says::NotCommitted, true)
            ),
            "{ended:?}"
        );
        self.guarded.faults.clear();
    }

    /// Deletes the record's other items, as time to live would.
    async fn delete_body(&self, request: &Request) {
        for item in self.guarded.collection(&request.key).await {
            if item["sk"].as_s().is_ok_and(|sk| sk.starts_with("body#")) {
                let delete = self.guarded.undisturbed.delete_item().table_name(&self.guarded.table);
                let key = ["pk", "sk"].map(|name| (name.to_owned(), item[name].clone()));
                delete.set_key(Some(key.into())).send().await.expect("the table answers");
            }
        }
    }

    /// The one deferred message, as the function receives it.
    fn message(&self) -> String {
        let [(message, Duration::ZERO)] = &self.queue.take()[..] else { panic!("not one message") };
        assert!(message.len() < 256 * 1024, "{} bytes", message.len());
        assert_eq!(json(message)["kind"], "deferred_report");
        message.clone()
    }

    async fn outcome(&self, request: &Request) -> &'static str {
        outcome_of(&self.guarded.executor().reserve(request).await)
    }
}

#[apply(on_each_store)]
async fn a_report_that_cannot_be_written_is_deferred_and_applied(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    for (report, before, after) in [
        (completed("mine"), "in flight", "replay"),
        (Report::NotExecuted(None), "in flight", "owned"),
        (Report::perhaps("panicked"), "in flight", "unknown"),
    ] {
        let request = request();
        lost.lose(&request, report).await;
        assert_eq!(lost.outcome(&request).await, before);
        lost.reconciliation.receive(&lost.message()).await.unwrap();
        assert_eq!(lost.outcome(&request).await, after);
    }
    assert_eq!(lost.dead_letters.take().len(), 0);
}

#[apply(on_each_store)]
async fn an_operation_not_begun_frees_its_key_through_the_queue_too(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    let request = request();
    lost.lose(&request, Report::NotBegun).await;
    let message = lost.message();
    assert_eq!(lost.outcome(&request).await, "in flight");
    lost.reconciliation.receive(&message).await.unwrap();
    assert!(lost.guarded.record(&request.key).await.unwrap().is_not_begun());
    let corrected = Request { fingerprints: fingerprints("corrected"), ..request.clone() };
    let ours = owned(lost.guarded.executor().reserve(&corrected).await);
    assert_eq!(ours.execution().attempts(), 1);
    // A second delivery changes nothing, and is not a double execution.
    let current = lost.guarded.item(&request.key).await;
    lost.reconciliation.receive(&message).await.unwrap();
    assert_eq!(lost.guarded.item(&request.key).await, current);
    written(lost.guarded.executor().finish(ours, completed("corrected")).await);
    lost.guarded.delete(&request.key).await;
    lost.guarded.clock.advance(RETENTION * 2);
    lost.reconciliation.receive(&message).await.unwrap();
    assert_eq!((lost.guarded.state(&request).await, lost.dead_letters.take().len()), ("absent", 0));
}

#[apply(on_each_store)]
async fn a_report_delivered_twice_or_too_late_changes_nothing_more(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    let request = request();
    lost.lose(&request, completed("mine")).await;
    let message = lost.message();
    lost.guarded.clock.advance(LEASE + GRACE);
    assert_eq!(lost.outcome(&request).await, "unknown");
    lost.reconciliation.receive(&message).await.unwrap();
    let written = lost.guarded.item(&request.key).await;
    lost.reconciliation.receive(&message).await.unwrap();
    assert_eq!(lost.guarded.item(&request.key).await, written);

    // After the retention the key is new, and the old report belongs to no record.
    lost.guarded.clock.advance(RETENTION * 2);
    let second = owned(lost.guarded.executor().reserve(&request).await);
    lost.reconciliation.receive(&message).await.unwrap();
    assert_eq!(lost.guarded.record(&request.key).await.unwrap().attempt, second.execution().attempt());
    assert_eq!(lost.guarded.state(&request).await, "in_progress");
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

// T5: the source that knows more wins, through the queue too.
#[apply(on_each_store)]
async fn a_report_overrides_only_sources_that_know_less(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    for (report, after) in [
        (completed("mine"), "replay"),
        (Report::NotExecuted(None), "owned"),
        (Report::perhaps("panicked"), "owned"),
    ] {
        let request = request();
        lost.lose(&request, report).await;
        lost.guarded.clock.advance(LEASE + GRACE);
        let seen = lost.guarded.record(&request.key).await.unwrap();
        // Released by the provider's report.
        let released = samples::released(&seen, lost.guarded.now(), RETENTION);
        lost.guarded.undisturbed_store().put(Some(seen.revision), &released, &[]).await.unwrap();
        lost.reconciliation.receive(&lost.message()).await.unwrap();
        assert_eq!((lost.outcome(&request).await, lost.dead_letters.take().len()), (after, 0));
    }
}

// T51: a record that was settled by another source, and then deleted by time to live, is not created again.
#[apply(on_each_store)]
async fn a_report_whose_record_has_expired_is_escalated(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    for (report, dead_letters) in
        [(completed("mine"), 1), (Report::NotExecuted(None), 0), (Report::perhaps("panicked"), 1)]
    {
        let request = request();
        lost.lose(&request, report).await;
        let message = lost.message();
        lost.guarded.delete(&request.key).await;
        lost.guarded.clock.advance(RETENTION);
        lost.guarded.clock.advance(Duration::from_millis(1));
        lost.reconciliation.receive(&message).await.unwrap();
        assert_eq!(lost.guarded.state(&request).await, "absent");
        let sent = lost.dead_letters.take();
        assert_eq!(sent.len(), dead_letters);
        for (dead_letter, _) in sent {
            let (read, key) = (json(&dead_letter), request.key.partition_key());
            assert_eq!((read["kind"].as_str(), read["key"].as_str()), (Some("contradiction"), Some(&*key)));
            // If it is sent back to the queue, it is refused, and becomes a dead letter again.
            let again = lost.reconciliation.receive(&dead_letter).await;
            assert!(matches!(again, Err(WorkError::Malformed(_))), "{again:?}");
        }
    }
}

// T49
#[apply(on_each_store)]
async fn a_body_that_waited_is_stored_again_or_reported_gone(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    let days = RETENTION * 3;
    for (waited, deleted, kept) in [(HOUR, false, true), (days, false, true), (days, true, false)] {
        let (request, body) = (request(), random(20_000));
        let executor = lost.executor();
        let ours = owned(executor.reserve(&request).await);
        // The body is stored, and then the store goes away.
        lost.guarded.faults.script("PutItem", [Fault::Pass, Fault::DropRequest]);
        let ended = executor.finish(ours, completed(body.clone())).await;
        assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
        let message = lost.message();
        if deleted {
            lost.delete_body(&request).await;
        }
        lost.guarded.clock.advance(waited);
        lost.reconciliation.receive(&message).await.unwrap();
        let record = lost.guarded.item(&request.key).await.unwrap();
        let seconds = |item: &Item| item["expires_at"].as_n().unwrap().parse::<u64>().unwrap();
        let named = record.get("body_id").map(|id| {
            let id: String = id.as_b().unwrap().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            format!("body#{id}")
        });
        let replay = replayed(lost.guarded.executor().reserve(&request).await);
        assert!(body_of(&replay) == kept.then_some(&body), "{waited:?} {deleted}");
        let body_item = lost.guarded.collection(&request.key).await;
        let body_item = body_item.iter().find(|item| item["sk"].as_s().ok() == named.as_ref());
        assert_eq!(
            body_item.map(|body| seconds(body) >= seconds(&record)),
            kept.then_some(true),
            "{waited:?}"
        );
    }
    // While the store cannot say whether the body exists, nothing is written.
    let (request, executor) = (request(), lost.executor());
    let ours = owned(executor.reserve(&request).await);
    lost.guarded.faults.script("PutItem", [Fault::Pass, Fault::DropRequest]);
    executor.finish(ours, completed(random(20_000))).await;
    let message = lost.message();
    lost.guarded.clock.advance(days);
    lost.guarded.faults.for_all("GetItem", Fault::DropRequest);
    let applied = lost.reconciliation.receive(&message).await;
    assert!(matches!(applied, Err(WorkError::Unwritten)), "{applied:?}");
    assert_eq!(lost.guarded.state(&request).await, "in_progress");
}

// No reader could read the resulting record.
#[apply(on_each_store)]
async fn a_report_with_a_status_that_no_response_has_is_malformed(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    let request = request();
    lost.lose(&request, completed("mine")).await;
    let message = lost.message();
    for status in [0, 100, 199, 600, 999] {
        let forged = message.replace(r#""status":{"N":"201"}"#, &format!(r#""status":{{"N":"{status}"}}"#));
        assert_ne!(forged, message);
        let received = lost.reconciliation.receive(&forged).await;
        assert!(matches!(received, Err(WorkError::Malformed(_))), "{status}: {received:?}");
        assert_eq!(lost.guarded.state(&request).await, "in_progress");
    }
}

// T51: the same case, found by the worker itself.
#[apply(on_each_store)]
async fn a_worker_whose_record_has_expired_defers_its_report(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    let (executor, request) = (lost.executor(), request());
    // A second attempt. The time of the first does not count.
    let first = owned(executor.reserve(&request).await);
    executor.finish(first, Report::NotExecuted(None)).await;
    lost.guarded.clock.advance(RETENTION / 2);
    // Clocks may differ.
    let kept = RETENTION - CLOCK_SKEW;
    for (waited, state) in [(kept - Duration::from_millis(1), "completed"), (kept, "absent")] {
        let ours = owned(executor.reserve(&request).await);
        lost.guarded.delete(&request.key).await;
        lost.guarded.clock.advance(waited);
        let ended = executor.finish(ours, completed("late")).await;
        assert_eq!(lost.guarded.state(&request).await, state, "{ended:?}");
        if state == "absent" {
            assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
            lost.reconciliation.receive(&lost.message()).await.unwrap();
            assert_eq!(lost.dead_letters.take().len(), 1);
        } else {
            lost.guarded.delete(&request.key).await;
        }
    }
}

// T26: software other than the library wrote the message.
#[apply(on_each_store)]
async fn a_report_keeps_no_header_that_a_handlers_answer_would_not_keep(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    for outside in [false, true] {
        let request = request();
        if outside {
            let ours = owned(lost.executor().reserve(&request).await);
            lost.guarded.faults.script("PutItem", [Fault::Pass, Fault::DropRequest]);
            lost.executor().finish(ours, completed(random(20_000))).await;
        } else {
            lost.lose(&request, completed("mine")).await;
        }
        let message = lost.message();
        let forged = message.replace("content-type", "set-cookie");
        assert_ne!(forged, message);
        lost.reconciliation.receive(&forged).await.unwrap();
        let replay = replayed(lost.guarded.executor().reserve(&request).await);
        let names: Vec<_> = replay.answer.head.headers().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["location"], "{outside}");
    }
}

// T2
#[apply(on_each_store)]
async fn a_report_whose_write_landed_is_recognised(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    let (executor, request) = (lost.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    lost.guarded.faults.for_all("PutItem", Fault::DropAnswer);
    let ended = executor.finish(ours, completed("mine")).await;
    assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
    lost.guarded.faults.clear();
    let landed = lost.guarded.item(&request.key).await;
    lost.reconciliation.receive(&lost.message()).await.unwrap();
    assert_eq!((lost.guarded.item(&request.key).await, lost.dead_letters.take().len()), (landed, 0));
}

// T29
#[apply(on_each_store)]
async fn a_report_whose_record_was_forgotten_is_written_all_the_same(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    let request = request();
    lost.lose(&request, completed("mine")).await;
    lost.guarded.delete(&request.key).await;
    lost.reconciliation.receive(&lost.message()).await.unwrap();
    assert_eq!(replayed_text(lost.guarded.executor().reserve(&request).await), "mine");
}

// T16
#[apply(on_each_store)]
async fn a_body_goes_with_its_report_as_far_as_it_fits(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    for (length, kept) in [(0, true), (500, true), (150_000, true), (300_000, false)] {
        let (request, body) = (request(), random(length));
        lost.lose(&request, completed(body.clone())).await;
        lost.reconciliation.receive(&lost.message()).await.unwrap();
        let replay = replayed(lost.guarded.executor().reserve(&request).await);
        assert_eq!(replay.answer.head.status(), Some(201));
        assert!(body_of(&replay) == kept.then_some(&body), "{length} bytes");
    }
    // A body that is already stored is not part of the message.
    let (request, body) = (request(), random(300_000));
    let executor = lost.executor();
    let ours = owned(executor.reserve(&request).await);
    lost.guarded.faults.script("PutItem", [Fault::Pass, Fault::DropRequest]);
    let ended = executor.finish(ours, completed(body.clone())).await;
    assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
    lost.reconciliation.receive(&lost.message()).await.unwrap();
    assert!(body_of(&replayed(lost.guarded.executor().reserve(&request).await)) == Some(&body));
}

#[apply(on_each_store)]
async fn a_report_that_cannot_be_written_returns_to_its_queue(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    let request = request();
    lost.lose(&request, completed("mine")).await;
    let message = lost.message();
    lost.guarded.faults.for_all(ANY, Fault::DropRequest);
    let applied = lost.guarded.clock.passing(lost.reconciliation.receive(&message)).await;
    assert!(matches!(applied, Err(WorkError::Unwritten)), "{applied:?}");
    lost.guarded.faults.clear();
    lost.reconciliation.receive(&message).await.unwrap();
    assert_eq!(lost.outcome(&request).await, "replay");
}

// A transient fault costs no delivery.
#[apply(on_each_store)]
async fn a_report_is_tried_again_while_there_is_time(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    for fault in [Fault::DropRequest, Fault::DropAnswer, Fault::Throttle, Fault::TransactionConflict] {
        let request = request();
        lost.lose(&request, completed("mine")).await;
        let message = lost.message();
        lost.guarded.faults.script(ANY, [fault.clone()]);
        let applied = lost.guarded.clock.passing(lost.reconciliation.receive(&message)).await;
        assert!(applied.is_ok(), "{fault:?}: {applied:?}");
        assert_eq!((lost.outcome(&request).await, lost.guarded.faults.left()), ("replay", 0), "{fault:?}");
    }
}

#[apply(on_each_store)]
async fn a_report_that_no_queue_accepts_ends_as_unwritten(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    let executor = lost.executor().defer_reports_to(Closed);
    let ours = owned(executor.reserve(&request()).await);
    lost.guarded.faults.for_all(ANY, Fault::DropRequest);
    let ended = executor.finish(ours, completed("mine")).await;
    assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
}

/// A queue that never answers.
struct Hanging;

#[async_trait]
impl Queue for Hanging {
    async fn send(&self, _: &str, _: Duration) -> Result<(), QueueError> {
        std::future::pending().await
    }
}

// The process dies at the deadline.
#[apply(on_each_store)]
async fn deferring_leaves_time_for_the_answer(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    let executor = lost.guarded.executor().defer_reports_to(Hanging);
    let mut request = request();
    let deadline = lost.guarded.now().plus(Duration::from_secs(5));
    request.deadline = Some(deadline);
    let ours = owned(executor.reserve(&request).await);
    lost.guarded.faults.for_all(ANY, Fault::BlackHole);
    let clock = lost.guarded.clock.clone();
    let report = tokio::spawn(async move { executor.finish(ours, completed("mine")).await });
    // No single wait is longer than the time left.
    while !report.is_finished() {
        assert!(clock.now() < deadline, "it should have ended by now");
        if clock.sleepers() > 0 {
            clock.advance(Duration::from_millis(50));
        }
        tokio::task::yield_now().await;
    }
    assert!(matches!(report.await.unwrap(), Says::Own { expires_at: None }));
    assert!(lost.guarded.now() < deadline, "{:?} before {deadline:?}", lost.guarded.now());
}

// T16, T49: a transient fault does not drop an inline body, and the body does not prevent the record of the effect.
#[apply(on_each_store)]
async fn a_body_that_cannot_be_stored_now_waits_in_its_message(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    for (waited, written) in [(Duration::ZERO, false), (Duration::from_secs(241), true)] {
        let (request, body) = (request(), random(20_000));
        lost.lose(&request, completed(body.clone())).await;
        let message = lost.message();
        lost.guarded.clock.advance(waited);
        // As many tries as fit into its time. The record's own write would succeed.
        lost.guarded.faults.script("PutItem", vec![Fault::DropRequest; 9]);
        let applied = lost.guarded.clock.passing(lost.reconciliation.receive(&message)).await;
        assert_eq!(lost.guarded.faults.left(), 0);
        if !written {
            assert!(matches!(applied, Err(WorkError::Unwritten)), "{applied:?}");
            let record = lost.guarded.record(&request.key).await.unwrap();
            // No retry runs until the body is stored.
            assert_eq!((record.state.name(), record.reported), ("unknown", Some(Evidence::Effect)));
            lost.reconciliation.receive(&message).await.unwrap();
        }
        let replay = replayed(lost.guarded.executor().reserve(&request).await);
        assert!(body_of(&replay) == (!written).then_some(&body));
    }
}

// T42: the retention of the reconcile function differs from the guard's.
#[apply(on_each_store)]
async fn a_report_is_kept_for_its_guards_retention(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    let (week, request) = (RETENTION * 7, request());
    let without_timeout = operation().completion_timeout(Duration::ZERO).retain(week);
    let executor = lost.guarded.executor_of(without_timeout).defer_reports_to(lost.queue.clone());
    let ours = owned(executor.reserve(&request).await);
    lost.guarded.faults.for_all(ANY, Fault::DropRequest);
    lost.guarded.clock.passing(executor.finish(ours, completed("mine"))).await;
    lost.guarded.faults.clear();
    lost.reconciliation.receive(&lost.message()).await.unwrap();
    let record = lost.guarded.record(&request.key).await.unwrap();
    let kept = record.state.expires_at().unwrap().since(lost.guarded.now().rounded_up_to_second());
    assert_eq!(kept, week);
}
