//! What finds accepted work without a client: the table's stream, checks and sweeps.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use axum::http::StatusCode;
use lambda_idempotency::{
    Execution, Finding, async_trait,
    engine::CallError,
    operator::{Correction, Operator},
    outbox::{Deliverer, Topics},
    queue::{FairQueue, MemoryQueue, QueueError},
    stale::{CheckOutcome, Stale},
    telemetry::{OUTBOX_UNDELIVERED, WORK_ABANDONED, WORK_WAITING},
    time_budget::{DELIVERY_GRACE, MAX_DELAY},
};
use macro_rules_attribute::apply;
use serde_json::{Value, json, value::RawValue};

use super::{BOUND, MINUTE, Reports};
use crate::support::{
    clock::WatchedClock,
    counts::{counting, recording},
    faults::Fault,
    guarded::Guarded,
    on_each_store,
};

fn asked(queue: &MemoryQueue) -> Vec<Value> {
    queue.take().iter().map(|(message, _)| serde_json::from_str(message).expect("JSON")).collect()
}

/// The change of the record, as the stream shows it.
async fn change(reports: &Reports, number: u32, before: Option<&str>) -> Box<RawValue> {
    let items = reports.guarded.collection(&reports.key("r-1")).await;
    let record = items.into_iter().find(|item| item.contains_key("state")).expect("a record");
    let image = serde_json::to_value(serde_dynamo::Item::from(record)).expect("JSON");
    let mut change = json!({
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "Keys": { "pk": image["pk"], "sk": image["sk"] },
            "NewImage": image,
            "SequenceNumber": number.to_string(),
        },
    });
    if let Some(before) = before {
        change["dynamodb"]["OldImage"] = json!({ "state": { "S": before } });
    }
    serde_json::value::to_raw_value(&change).expect("JSON")
}

// T68
#[apply(on_each_store)]
async fn the_stream_queues_accepted_work_for_a_worker(endpoint: &str) {
    let (reports, work) = (Reports::on(endpoint).await, MemoryQueue::new());
    reports.post("r-1", r#""report""#).await;
    let deliverer = Deliverer::new(reports.guarded.store(), MemoryQueue::new(), Topics::default());
    let deliverer = deliverer.world(reports.guarded.clock.clone());
    let accepted = change(&reports, 1, None).await;
    // Without a queue it comes again.
    let one = std::slice::from_ref(&accepted);
    assert_eq!(deliverer.stream(one, MINUTE).await, [Some("1".to_owned())]);
    let deliverer = deliverer.work_to(work.clone());
    assert_eq!(deliverer.stream(one, MINUTE).await, []);
    assert_eq!(asked(&work), [reports.asked("r-1").await]);
    // Found later to have done nothing, or resumed by an operator: nobody waits for it. A worker that did nothing hands its own message
    // back, if it does not die meanwhile. If it is dead, its message stays hidden for long.
    const NOW: [Duration; 1] = [Duration::ZERO];
    let (pending, interrupted) = (&[][..], [("state", "S", "between_workers"), ("reconcile_at", "N", "5")]);
    let dead = ("last_failure", "S", "lease_expired");
    let escalated = ("reconcile_at", "N", "18446744073709551615");
    let with = |more| [&interrupted[..], &[more]].concat();
    for (before, image, delays) in [
        ("unknown", pending.to_vec(), &NOW[..]),
        ("in_progress", pending.to_vec(), &[MAX_DELAY]),
        ("in_progress", vec![dead], &NOW),
        ("between_workers", interrupted.to_vec(), &NOW),
        ("in_progress", interrupted.to_vec(), &[]),
        ("in_progress", with(dead), &NOW),
        // It has killed as many as may execute it.
        ("in_progress", [&with(dead)[..], &[("tries", "N", "3")]].concat(), &[]),
        // An operator has to look at it first.
        ("between_workers", with(escalated), &[]),
    ] {
        let mut changed: Value =
            serde_json::from_str(change(&reports, 2, Some(before)).await.get()).expect("JSON");
        for (attribute, kind, value) in &image {
            changed["dynamodb"]["NewImage"][*attribute] = json!({ *kind: value });
        }
        let changed = serde_json::value::to_raw_value(&changed).expect("JSON");
        assert_eq!(deliverer.stream(&[changed], MINUTE).await, []);
        let queued: Vec<_> = work.take().into_iter().map(|(_, delay)| delay).collect();
        assert_eq!(queued, delays, "{before} {image:?}");
    }
    assert!(reports.work(&reports.asked("r-1").await).await);
    assert_eq!(deliverer.stream(&[change(&reports, 3, Some("in_progress")).await], MINUTE).await, []);
    assert_eq!(asked(&work), [json!(null); 0]);
}

fn stale(reports: &Reports, work: &MemoryQueue) -> Stale {
    let [checks, sweeps, dead_letters] = [(); 3].map(|()| MemoryQueue::new());
    Stale::new(reports.guarded.undisturbed_store(), checks, sweeps, dead_letters)
        .work_to(work.clone())
        .sweep_units_per_second(1e9)
        .world(reports.guarded.clock.clone())
}

// T68: its message was lost.
#[apply(on_each_store)]
async fn a_sweep_queues_work_that_waits_and_deletes_what_is_done(endpoint: &str) {
    let (reports, work) = (Reports::on(endpoint).await, MemoryQueue::new());
    reports.post("r-1", r#""report""#).await;
    let stale = stale(&reports, &work);
    let sweep = async || stale.sweep(MINUTE).await.expect("the store answers");
    sweep().await;
    assert_eq!(asked(&work), [json!(null); 0], "it is young");
    reports.guarded.clock.advance(DELIVERY_GRACE);
    let ((), recorded) = recording(sweep()).await;
    assert_eq!(asked(&work), [reports.asked("r-1").await]);
    assert_eq!(reports.items("r-1").await, 2);
    // The alarms look at these.
    assert_eq!((&recorded[WORK_WAITING][..], &recorded[OUTBOX_UNDELIVERED][..]), (&[1.0][..], &[0.0][..]));
    // Once it is settled, its request is deleted. Here nobody else does it.
    reports.guarded.clock.advance(BOUND);
    let (checked, counts) = counting(stale.check(&reports.key("r-1"))).await;
    assert_eq!(checked.expect("the store answers"), CheckOutcome::Abandoned);
    assert_eq!((counts[WORK_ABANDONED], reports.items("r-1").await), (1, 2));
    sweep().await;
    assert_eq!((asked(&work).len(), reports.items("r-1").await), (0, 1));
}

// A scan may see the request of a transaction, and not yet its record: without a wait it would be deleted, and the work could never run.
#[apply(on_each_store)]
async fn a_sweep_deletes_no_request_that_is_young(endpoint: &str) {
    let (reports, work) = (Reports::on(endpoint).await, MemoryQueue::new());
    reports.post("r-1", r#""report""#).await;
    reports.guarded.delete(&reports.key("r-1")).await;
    let stale = stale(&reports, &work);
    let sweep = async || stale.sweep(MINUTE).await.expect("the store answers");
    sweep().await;
    assert_eq!(reports.items("r-1").await, 1);
    reports.guarded.clock.advance(DELIVERY_GRACE);
    sweep().await;
    assert_eq!((reports.items("r-1").await, asked(&work).len()), (0, 0));
}

// Nobody had found its worker dead before: the message of that worker is hidden for an hour and a half.
#[apply(on_each_store)]
async fn work_of_a_dead_worker_that_an_operator_frees_is_queued(endpoint: &str) {
    let (reports, work) = (Reports::on(endpoint).await, MemoryQueue::new());
    reports.post("r-1", r#""report""#).await;
    let asked_for = reports.asked("r-1").await;
    let (dying, gate) = reports.hanging();
    let died = asked_for.clone();
    let task = tokio::spawn(async move { dying.work(&died).await });
    gate.reached(1).await;
    reports.guarded.clock.advance(MINUTE * 2);
    let operator = Operator::new(reports.guarded.store()).world(reports.guarded.clock.clone());
    let (seen, free) = (reports.record("r-1").await, Correction::NotExecuted { retain: None });
    operator.correct(&seen, &free, "olga", "it did nothing").await.expect("it is corrected");
    let freed = change(&reports, 2, Some("in_progress")).await;
    let deliverer = Deliverer::new(reports.guarded.store(), MemoryQueue::new(), Topics::default());
    let deliverer = deliverer.world(reports.guarded.clock.clone()).work_to(work.clone());
    assert_eq!(deliverer.stream(&[freed], MINUTE).await, []);
    assert_eq!(asked(&work), [asked_for]);
    task.abort();
}

// T68
#[apply(on_each_store)]
async fn pending_work_is_checked_when_its_time_is_over(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let until = reports.guarded.now().plus(BOUND);
    let stale = stale(&reports, &MemoryQueue::new());
    let check = async || stale.check(&reports.key("r-1")).await.expect("the store answers");
    assert_eq!(check().await, CheckOutcome::Live(until));
    reports.guarded.clock.advance(BOUND - Duration::from_millis(1));
    assert_eq!(check().await, CheckOutcome::Live(until));
    reports.guarded.clock.advance(Duration::from_millis(1));
    assert_eq!(check().await, CheckOutcome::Abandoned);
    assert_eq!(check().await, CheckOutcome::Settled);
    reports.polled("r-1").await.assert_problem(408, "operation-abandoned");
}

/// Accepts work whose first execution ends behind its phase.
async fn interrupt(reports: &Reports) {
    let kept = reports.with(|parts, _| async move {
        let execution: Execution = parts.extensions.get().cloned().expect("it is guarded");
        let charge = execution.phase("charge").keys_live(BOUND);
        charge.call(|_| async { Ok::<_, CallError>(1) }).await.expect("it is kept");
        StatusCode::SERVICE_UNAVAILABLE
    });
    kept.post("r-1", r#""report""#).await;
    assert!(!kept.work(&kept.asked("r-1").await).await);
}

// T68: its message went to the dead letters, and no client can resume it.
#[apply(on_each_store)]
async fn a_sweep_queues_interrupted_work_and_survives_a_refused_deletion(endpoint: &str) {
    let resumes = || super::operation().resumes(["charge"], BOUND * 48);
    let guarded = Guarded::on(endpoint).await;
    let (reports, work) = (Reports::of(guarded, resumes()), MemoryQueue::new());
    interrupt(&reports).await;
    assert_eq!(reports.state("r-1").await, "between_workers");
    reports.guarded.clock.advance(DELIVERY_GRACE);
    let [checks, sweeps, dead_letters] = [(); 3].map(|()| MemoryQueue::new());
    let stale = Stale::new(reports.guarded.store(), checks, sweeps, dead_letters)
        .work_to(work.clone())
        .sweep_units_per_second(1e9)
        .world(reports.guarded.clock.clone());
    stale.sweep(MINUTE).await.expect("the store answers");
    assert_eq!(asked(&work), [reports.asked("r-1").await]);
    // Another one is done, and its request may not be deleted.
    let done = Reports::of(reports.guarded.clone(), super::operation());
    done.post("r-2", r#""report""#).await;
    done.guarded.faults.for_all("DeleteItem", Fault::AccessDenied);
    assert!(done.work(&done.asked("r-2").await).await);
    done.guarded.clock.advance(DELIVERY_GRACE);
    stale.sweep(MINUTE).await.expect("it goes on");
    assert_eq!((done.items("r-2").await, asked(&work).len()), (2, 1));
    done.guarded.faults.clear();
    stale.sweep(MINUTE).await.expect("the store answers");
    assert_eq!(done.items("r-2").await, 1);
}

// Otherwise each poll would escalate it, the stream would bring a worker for that, and the worker's end would make it due again.
#[apply(on_each_store)]
async fn escalated_work_waits_for_an_operator(endpoint: &str) {
    let resumes = super::operation().resumes(["charge"], BOUND);
    let (reports, work) = (Reports::of(Guarded::on(endpoint).await, resumes), MemoryQueue::new());
    interrupt(&reports).await;
    reports.guarded.clock.advance(BOUND);
    super::executed::reconciliation(&reports, Finding::NotFound).poll(MINUTE).await.expect("an answer");
    assert_eq!(reports.state("r-1").await, "between_workers");

    let deliverer = Deliverer::new(reports.guarded.store(), MemoryQueue::new(), Topics::default());
    let deliverer = deliverer.world(reports.guarded.clock.clone()).work_to(work.clone());
    let changed = async || change(&reports, 2, Some("between_workers")).await;
    assert_eq!(deliverer.stream(&[changed().await], MINUTE).await, []);
    stale(&reports, &work).sweep(MINUTE).await.expect("the store answers");
    assert_eq!(asked(&work), [json!(null); 0]);

    let operator = Operator::new(reports.guarded.store()).world(reports.guarded.clock.clone());
    let seen = reports.record("r-1").await;
    operator.correct(&seen, &Correction::Resume, "olga", "it is back").await.expect("it is resumed");
    assert_eq!(deliverer.stream(&[changed().await], MINUTE).await, []);
    assert_eq!(asked(&work), [reports.asked("r-1").await]);
    stale(&reports, &work).sweep(MINUTE).await.expect("the store answers");
    assert_eq!(asked(&work), [reports.asked("r-1").await]);
}

/// A queue of work that takes this long for a message.
struct Slow(MemoryQueue, WatchedClock, Duration);

#[async_trait]
impl FairQueue for Slow {
    async fn send_fairly(&self, message: &str, group: &str, delay: Duration) -> Result<(), QueueError> {
        self.1.advance(self.2);
        self.0.send_fairly(message, group, delay).await
    }
}

// T50: the worker was down for a day, and much waits.
#[apply(on_each_store)]
async fn a_sweep_that_has_too_little_time_for_work_goes_on(endpoint: &str) {
    let (reports, work, sweeps) = (Reports::on(endpoint).await, MemoryQueue::new(), MemoryQueue::new());
    let keys: Vec<_> = (0..40).map(|number| format!("r-{number}")).collect();
    for key in &keys {
        reports.post(key, r#""report""#).await;
    }
    reports.guarded.clock.advance(DELIVERY_GRACE);
    // Others are sent while a record is read: what they take together must not be too long for the store.
    let each = Duration::from_millis(100);
    let slow = Slow(work.clone(), reports.guarded.clock.clone(), each);
    let stale = Stale::new(
        reports.guarded.undisturbed_store(),
        MemoryQueue::new(),
        sweeps.clone(),
        MemoryQueue::new(),
    )
    .work_to(slow)
    .sweep_units_per_second(1e9)
    .world(reports.guarded.clock.clone());
    let mut begun = reports.guarded.now();
    let time = Duration::from_secs(2);
    stale.sweep(time).await.expect("the store answers");
    let mut queued = asked(&work);
    assert!((20..40).contains(&queued.len()), "{} in two seconds", queued.len());
    // Within its time, but for the eight that it had begun.
    assert!(reports.guarded.now().since(begun) <= time + 8 * each);
    assert_eq!(sweeps.take().len(), 1, "it is continued");
    // A queue that is fast again.
    let fast = self::stale(&reports, &work);
    begun = reports.guarded.now();
    fast.sweep(MINUTE).await.expect("the store answers");
    assert_eq!(reports.guarded.now(), begun);
    queued.extend(asked(&work));
    queued.sort_by_key(|message| message["key"].to_string());
    queued.dedup();
    assert_eq!(queued.len(), 40, "all of it is queued, and some of it twice");
}

// T36, T50
#[apply(on_each_store)]
async fn accepted_work_that_is_unreadable_stops_no_sweep(endpoint: &str) {
    let (reports, work) = (Reports::on(endpoint).await, MemoryQueue::new());
    for key in ["r-1", "r-2"] {
        reports.post(key, r#""report""#).await;
    }
    let mut newer = reports.guarded.item(&reports.key("r-1")).await.expect("a record");
    newer.insert("schema".to_owned(), AttributeValue::N("99".to_owned()));
    reports.guarded.write_raw(newer).await;
    reports.guarded.clock.advance(DELIVERY_GRACE);
    stale(&reports, &work).sweep(MINUTE).await.expect("it goes on");
    assert_eq!(asked(&work), [reports.asked("r-2").await]);
    assert_eq!(reports.items("r-1").await, 2, "nothing of it is deleted");
}
