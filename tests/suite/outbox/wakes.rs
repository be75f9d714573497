//! What asks for a delivery: the table's stream, and a sweep for what the stream missed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_idempotency::{
    async_trait,
    outbox::Deliverer,
    queue::{FairQueue, FifoQueue, MemoryQueue, QueueError},
    stale::Stale,
    telemetry::{OUTBOX_BATCH, OUTBOX_UNDELIVERED},
    time_budget::DELIVERY_GRACE,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json, value::RawValue};

use super::{topic, topics};
use crate::support::{
    clock::WatchedClock,
    counts::{counting, recording},
    embedded,
    guarded::{Guarded, completed, owned, request, written},
    on_each_store,
};

const MINUTE: Duration = Duration::from_secs(60);

fn change(number: u32, key: &str, sk: &str, image: Option<Value>) -> Box<RawValue> {
    let mut record = json!({
        "eventName": "INSERT",
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "Keys": { "pk": { "S": key }, "sk": { "S": sk } },
            "SequenceNumber": number.to_string(),
        },
    });
    if let Some(image) = image {
        record["dynamodb"]["NewImage"] = image;
    }
    serde_json::value::to_raw_value(&record).expect("JSON")
}

fn new(number: u32, key: &str) -> Box<RawValue> {
    change(number, key, "message#1800000000123#0000000000", Some(json!({ "anything": { "BOOL": true } })))
}

fn asked(queue: &MemoryQueue) -> Vec<Value> {
    queue.take().iter().map(|(message, _)| serde_json::from_str(message).expect("JSON")).collect()
}

fn deliver(key: &str) -> Value {
    json!({ "version": 1, "kind": "deliver", "key": key })
}

// T63
#[apply(on_each_store)]
async fn the_stream_asks_for_one_delivery_for_each_operation(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, MemoryQueue::new());
    let deliverer = Deliverer::new(guarded.store(), queue.clone(), topics()).world(guarded.clock.clone());
    let batch = [
        new(1, "t#pay#a"),
        new(2, "t#pay#a"),
        new(3, "t#pay#b"),
        // Neither a record, nor the removal of a message, nor what cannot be read is a new message.
        change(4, "t#pay#c", "record", Some(json!({}))),
        change(5, "t#pay#d", "message#1800000000123#0000000000", None),
        serde_json::value::to_raw_value(&json!({ "dynamodb": [] })).expect("JSON"),
    ];
    assert_eq!(deliverer.stream(&batch, MINUTE).await, []);
    let mut sent = asked(&queue);
    sent.sort_by_key(|message| message["key"].to_string());
    assert_eq!(sent, [deliver("t#pay#a"), deliver("t#pay#b")]);
}

/// The group and the id of each message.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<(String, String)>>>);

#[async_trait]
impl FairQueue for Sent {
    async fn send_fairly(&self, _: &str, group: &str, delay: Duration) -> Result<(), QueueError> {
        self.0.lock().unwrap().push((group.to_owned(), format!("{delay:?}")));
        Ok(())
    }
}

#[async_trait]
impl FifoQueue for Sent {
    async fn send_in_group(&self, _: &str, group: &str, id: &str) -> Result<(), QueueError> {
        self.0.lock().unwrap().push((group.to_owned(), id.to_owned()));
        Ok(())
    }
}

// T63: a group is delivered by one deliverer at a time, and a wake that SQS takes for a duplicate asks for nothing.
#[tokio::test]
async fn a_wake_is_grouped_by_operation_and_named_by_its_last_message() {
    let (guarded, sent) = (Guarded::on(embedded::endpoint()).await, Sent::default());
    let deliverer = Deliverer::new(guarded.store(), sent.clone(), topics());
    for (key, last) in [("t#pay#a", 3), ("t#pay#a", 3), ("t#pay#a", 4), ("t#pay#b", 3)] {
        let batch = [new(1, key), new(2, key), new(last, key)];
        assert_eq!(deliverer.stream(&batch, MINUTE).await, []);
    }
    let sent = sent.0.lock().unwrap().clone();
    let [first, again, more, other] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(first, again, "the same batch");
    assert!(first.0 == more.0 && first.1 != more.1, "the same group, and not a duplicate: {sent:?}");
    assert!(other.0 != first.0 && other.1 != first.1, "another operation: {sent:?}");
    assert!(sent.iter().all(|(group, id)| !group.contains("pay") && !id.contains("pay")), "no key in clear");
}

// T81: the work of one tenant must not delay that of another.
#[tokio::test]
async fn accepted_work_is_queued_in_the_group_of_its_tenant() {
    let (guarded, sent) = (Guarded::on(embedded::endpoint()).await, Sent::default());
    let deliverer = Deliverer::new(guarded.store(), MemoryQueue::new(), topics()).work_to(sent.clone());
    let pending = json!({
        "state": { "S": "pending" }, "request_id": { "B": "AAAA" }, "tries": { "N": "0" }, "max_attempts": { "N": "3" },
    });
    let keys = ["acme#report#a", "acme#report#b", "acme#other#a", "acme2#report#a"];
    let batch = keys.map(|key| change(1, key, "record", Some(pending.clone())));
    assert_eq!(deliverer.stream(&batch, MINUTE).await, []);
    let groups: Vec<_> = sent.0.lock().unwrap().iter().map(|(group, _)| group.clone()).collect();
    let [first, second, other_operation, other_tenant] = &groups[..] else { panic!("{groups:?}") };
    assert!(first == second && first == other_operation && first != other_tenant, "{groups:?}");
    assert!(!first.contains("acme"), "no tenant in clear");
}

/// A queue that accepts no message about this record.
struct Refuses(&'static str, MemoryQueue);

#[async_trait]
impl FifoQueue for Refuses {
    async fn send_in_group(&self, message: &str, group: &str, id: &str) -> Result<(), QueueError> {
        match message.contains(self.0) {
            true => Err(QueueError::new("access denied")),
            false => self.1.send_in_group(message, group, id).await,
        }
    }
}

#[apply(on_each_store)]
async fn a_delivery_that_could_not_be_asked_for_comes_again(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, MemoryQueue::new());
    let refuses = Refuses("t#pay#a", queue.clone());
    let deliverer = Deliverer::new(guarded.store(), refuses, topics()).world(guarded.clock.clone());
    let batch = [new(3, "t#pay#b"), new(4, "t#pay#a"), new(5, "t#pay#a")];
    // From the first message of that operation.
    let (failed, counts) = counting(deliverer.stream(&batch, MINUTE)).await;
    assert_eq!(failed, [Some("4".to_owned())]);
    assert_eq!((asked(&queue), counts.get(OUTBOX_BATCH)), (vec![deliver("t#pay#b")], None));
    let (failed, counts) = counting(deliverer.stream(&batch[..1], MINUTE)).await;
    assert_eq!((failed, asked(&queue), counts[OUTBOX_BATCH]), (vec![], vec![deliver("t#pay#b")], 1));
    assert_eq!(deliverer.stream(&batch, Duration::ZERO).await.len(), 2, "the time is up");
}

// T63: the stream lost it, or its deliveries failed until its wake was dead.
#[apply(on_each_store)]
async fn a_sweep_asks_for_what_should_have_been_delivered(endpoint: &str) {
    let (guarded, queue, request) = (Guarded::on(endpoint).await, MemoryQueue::new(), request());
    let ours = owned(guarded.executor().reserve(&request).await);
    for n in 0..3 {
        ours.execution().publish(&topic(), &n).expect("it is a message");
    }
    written(guarded.executor().finish(ours, completed("done")).await);
    let queues = [(); 3].map(|()| MemoryQueue::new());
    let [checks, sweeps, dead_letters] = queues;
    let stale = Stale::new(guarded.undisturbed_store(), checks, sweeps, dead_letters)
        .outbox(queue.clone())
        .sweep_units_per_second(1e9)
        .world(guarded.clock.clone());
    stale.sweep(MINUTE).await.expect("the store answers");
    assert_eq!(asked(&queue), [json!(null); 0], "it is young");
    guarded.clock.advance(DELIVERY_GRACE + Duration::from_millis(1));
    for _ in 0..2 {
        let (swept, recorded) = recording(stale.sweep(MINUTE)).await;
        swept.expect("the store answers");
        assert_eq!(asked(&queue), [deliver(&request.key.partition_key())]);
        assert_eq!(recorded[OUTBOX_UNDELIVERED], [3.0], "its alarm looks at that");
    }
}

/// A queue of wakes that takes half a second for each.
struct Slow(MemoryQueue, WatchedClock);

#[async_trait]
impl FifoQueue for Slow {
    async fn send_in_group(&self, message: &str, group: &str, id: &str) -> Result<(), QueueError> {
        self.1.advance(Duration::from_millis(500));
        self.0.send_in_group(message, group, id).await
    }
}

// T50, T63: a target was down for a day, and much is undelivered.
#[apply(on_each_store)]
async fn a_sweep_that_has_too_little_time_for_wakes_goes_on(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, MemoryQueue::new());
    for _ in 0..40 {
        let ours = owned(guarded.executor().reserve(&request()).await);
        ours.execution().publish(&topic(), &1).expect("it is a message");
        written(guarded.executor().finish(ours, completed("done")).await);
    }
    guarded.clock.advance(DELIVERY_GRACE + Duration::from_millis(1));
    let sweeps = MemoryQueue::new();
    let stale = || {
        let stale =
            Stale::new(guarded.undisturbed_store(), MemoryQueue::new(), sweeps.clone(), MemoryQueue::new());
        stale.sweep_units_per_second(1e9).world(guarded.clock.clone())
    };
    let slow = stale().outbox(Slow(queue.clone(), guarded.clock.clone()));
    slow.sweep(Duration::from_secs(10)).await.expect("the store answers");
    let mut sent = asked(&queue);
    assert!((20..40).contains(&sent.len()), "{} in ten seconds", sent.len());
    assert_eq!(sweeps.take().len(), 1, "it is continued");
    stale().outbox(queue.clone()).sweep(MINUTE).await.expect("the store answers");
    sent.extend(asked(&queue));
    sent.sort_by_key(|message| message["key"].to_string());
    sent.dedup();
    assert_eq!(sent.len(), 40, "all of them, and some twice");
}
