//! The time from a worker's death to `unknown`: stream, queue and check in virtual time.

use std::time::Duration;

use lambda_http::Context;
use lambda_idempotency::{
    engine::{Executor, Request},
    lambda::stale_event,
    operation::Operation,
    queue::MemoryQueue,
    record::{Record, State},
    stale::Stale,
    store::{Item, Store, memory::MemoryStore},
    time::Timestamp,
    time_budget::MAX_DELAY,
    world::World,
};
use serde_json::{Value, json};

use crate::support::{
    guarded::{OPERATION, owned, record_key, request},
    seeded_world::SeededWorld,
};

const START: Timestamp = Timestamp::from_secs(2_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

/// How long a batch or a message takes to arrive.
const TRANSIT: Duration = Duration::from_millis(500);

/// The longest delay on top of grace and window.
const MAX: Duration = Duration::from_secs(2);

/// A worker that dies as soon as it has reserved.
struct Death {
    /// From the reservation to the deadline, or the operation's own lease.
    lease: Duration,
    has_deadline: bool,
    grace: Duration,
    /// How long the stream gathers records into a batch.
    window: Duration,
    /// How long the window had been open at the reservation.
    into_window: Duration,
}

impl Death {
    /// How long after the end of its lease it is expired, and how many messages that takes.
    async fn expired_after(&self) -> (Duration, usize) {
        let world = SeededWorld::new(1, START);
        let (store, checks, dead_letters) = (MemoryStore::new(), MemoryQueue::new(), MemoryQueue::new());
        let stale = Stale::new(store.clone(), checks.clone(), MemoryQueue::new(), dead_letters.clone());
        let stale = stale.world(world.clone());
        let operation = Operation::new(OPERATION).lease(self.lease).grace(self.grace);
        let executor = Executor::new(store.clone(), operation).world(world.clone());
        let key = record_key("acme", "order-1");
        let deadline = self.has_deadline.then(|| world.now().plus(self.lease));
        let request = Request { key: key.clone(), deadline, ..request() };
        drop(owned(executor.reserve(&request).await));
        world.crash();
        let over = world.now().plus(self.lease);

        world.sleep(self.window.saturating_sub(self.into_window) + TRANSIT).await;
        deliver(&stale, json!([change(&store.load(&key).await.unwrap().unwrap())])).await;
        for messages in 1..100 {
            let record = store.load(&key).await.unwrap().unwrap();
            if let State::Unknown { since, .. } = record.state {
                assert_eq!((checks.take(), dead_letters.take()), (vec![], vec![]));
                assert!(since >= over.plus(self.grace), "it may still have been alive");
                return (since.since(over), messages - 1);
            }
            let [(check, delay)] = &checks.take()[..] else { panic!("not one message") };
            // As SQS delays messages: by whole seconds, and 15 minutes at most.
            let seconds = (*delay).min(MAX_DELAY).as_millis().div_ceil(1000);
            world.sleep(SECOND * u32::try_from(seconds).unwrap() + TRANSIT).await;
            let message = json!({ "eventSource": "aws:sqs", "messageId": "1", "body": check });
            deliver(&stale, json!([message])).await;
        }
        panic!("its lease was never expired");
    }
}

async fn deliver(stale: &Stale, records: Value) {
    let event = serde_json::from_value(json!({ "Records": records })).expect("an event");
    let failures = stale_event(stale, event, &Context::default()).await.expect("an answer");
    assert_eq!(failures.identifiers(), [""; 0]);
}

/// The stream record of this image.
fn change(record: &Record) -> Value {
    let image: serde_dynamo::Item = serde_dynamo::to_item(Item::from(record)).expect("an item");
    let image = serde_json::to_value(image).expect("attributes are JSON");
    json!({
        "eventName": "INSERT",
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "Keys": { "pk": image["pk"], "sk": image["sk"] },
            "NewImage": image,
            "SequenceNumber": "1",
        },
    })
}

// T7
#[tokio::test(start_paused = true)]
async fn a_dead_workers_lease_expires_within_grace_window_and_two_seconds() {
    let (minute, quarter) = (60 * SECOND, 900 * SECOND);
    let mut longest_chain = 0;
    for lease in [Duration::from_millis(1_500), 20 * SECOND, minute, quarter, 40 * minute] {
        for grace in [Duration::ZERO, Duration::from_millis(10_001)] {
            for window in [Duration::ZERO, minute, 300 * SECOND] {
                for into_window in [Duration::ZERO, window / 3] {
                    for has_deadline in [false, lease <= quarter] {
                        let death = Death { lease, has_deadline, grace, window, into_window };
                        let (after, messages) = death.expired_after().await;
                        let most = grace + window + MAX;
                        assert!(after <= most, "{lease:?} {grace:?} {window:?}: {after:?} > {most:?}");
                        if lease > window {
                            // The window ends before the lease does, so it adds no delay.
                            assert!(after <= grace + MAX, "{lease:?} {grace:?} {window:?}: {after:?}");
                        }
                        longest_chain = longest_chain.max(messages);
                    }
                }
            }
        }
    }
    assert_eq!(longest_chain, 3, "forty minutes are three delays");
}
