//! What the table's stream shows: a batch of the flood's changes, and then the other tenant's one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_idempotency::{
    async_trait,
    outbox::{Deliverer, Topics},
    queue::{FairQueue, FifoQueue, MemoryQueue, QueueError},
    stale::Stale,
    store::memory::MemoryStore,
};
use serde_json::{Value, json, value::RawValue};

use super::{FLOOD, Log, OTHER, assert_waits};

const MINUTE: Duration = Duration::from_secs(60);

/// The batches of the outbox function's stream.
const BATCH: usize = 500;

const TEMPLATE: &str = include_str!("../../../infra/idempotency.yaml");

/// A queue that notes whom each message is about, and its group.
#[derive(Clone, Default)]
struct Sent {
    log: Log,
    groups: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Sent {
    fn add(&self, message: &str, group: &str) {
        self.log.add(if message.contains(FLOOD) { FLOOD } else { OTHER });
        *self.groups.lock().unwrap().entry(group.to_owned()).or_default() += 1;
    }

    /// How many messages each group has, the smallest group first.
    fn groups(&self) -> Vec<usize> {
        let mut groups: Vec<_> = self.groups.lock().unwrap().values().copied().collect();
        groups.sort_unstable();
        groups
    }
}

#[async_trait]
impl FairQueue for Sent {
    async fn send_fairly(&self, message: &str, group: &str, _: Duration) -> Result<(), QueueError> {
        self.add(message, group);
        Ok(())
    }
}

#[async_trait]
impl FifoQueue for Sent {
    async fn send_in_group(&self, message: &str, group: &str, _: &str) -> Result<(), QueueError> {
        self.add(message, group);
        Ok(())
    }
}

/// The changes of a batch: of a new item with this sort key, of each of so many records.
fn changes(number: usize, sk: &str, image: &Value) -> Vec<Box<RawValue>> {
    let tenants = std::iter::repeat_n(FLOOD, number - 1).chain([OTHER]);
    let change = |(place, tenant): (usize, &str)| {
        let change = json!({
            "eventName": "INSERT",
            "eventSource": "aws:dynamodb",
            "dynamodb": {
                "Keys": { "pk": { "S": format!("{tenant}#pay#{place}") }, "sk": { "S": sk } },
                "SequenceNumber": place.to_string(),
                "NewImage": image,
            },
        });
        serde_json::value::to_raw_value(&change).expect("JSON")
    };
    tenants.enumerate().map(change).collect()
}

// T63, T81: a record's wakes are in one group, so that one poison message blocks no other record.
#[tokio::test]
async fn a_wake_waits_for_those_of_one_batch_of_the_stream() {
    assert!(TEMPLATE.contains(&format!("BatchSize: {BATCH}\n")), "the outbox function's stream");
    let wakes = Sent::default();
    let deliverer = Deliverer::new(MemoryStore::new(), wakes.clone(), Topics::default());
    let batch = changes(BATCH, "message#1800000000123#0000000000", &json!({ "anything": { "BOOL": true } }));
    assert_eq!(deliverer.stream(&batch, MINUTE).await, []);
    assert_eq!(wakes.groups(), [1; BATCH]);
    assert_waits("a batch of the outbox's stream", wakes.log.before_the_other());
}

// T81: so that the queue can pass over the flood.
#[tokio::test]
async fn work_and_checks_of_a_flood_are_in_one_group() {
    let (work, checks) = (Sent::default(), Sent::default());
    let deliverer = Deliverer::new(MemoryStore::new(), MemoryQueue::new(), Topics::default());
    let pending = json!({
        "state": { "S": "pending" }, "request_id": { "B": "AAAA" }, "tries": { "N": "0" }, "max_attempts": { "N": "3" },
    });
    assert_eq!(deliverer.work_to(work.clone()).stream(&changes(BATCH, "record", &pending), MINUTE).await, []);
    let stale = Stale::new(MemoryStore::new(), checks.clone(), MemoryQueue::new(), MemoryQueue::new());
    let began = json!({
        "state": { "S": "in_progress" }, "attempt": { "B": "QQ==" },
        "created_at": { "N": "0" }, "lease_until": { "N": "0" },
    });
    assert_eq!(stale.stream(&changes(BATCH, "record", &began), MINUTE).await, []);
    for queue in [work, checks] {
        assert_eq!(queue.groups(), [1, BATCH - 1]);
        assert!(
            queue.groups.lock().unwrap().keys().all(|group| !group.contains(OTHER)),
            "no tenant in clear"
        );
    }
}
