//! The sweep, which reads the whole table once.

use std::time::Duration;

use lambda_idempotency::{
    async_trait,
    queue::{FairQueue, MemoryQueue, QueueError},
    stale::Stale,
    store::{Companion, Store, conformance::samples, memory::MemoryStore},
    time::Timestamp,
    time_budget::DELIVERY_GRACE,
    world::ManualWorld,
};

use super::{FLOOD, Log, OTHER, assert_waits};
use crate::support::guarded::{fingerprints, record_key};

const START: Timestamp = Timestamp::from_secs(2_000_000_000);

/// How much accepted work of the flood waits for a worker, because its messages were lost.
const MANY: usize = 3000;

/// Half a second for each message.
#[derive(Clone)]
struct Slow(Log, ManualWorld);

#[async_trait]
impl FairQueue for Slow {
    async fn send_fairly(&self, message: &str, _: &str, _: Duration) -> Result<(), QueueError> {
        self.1.advance(Duration::from_millis(500));
        self.0.add(if message.contains(FLOOD) { FLOOD } else { OTHER });
        Ok(())
    }
}

// T50, T81: a table has no order by tenant. What a sweep finds is what the stream has missed.
#[tokio::test]
async fn a_sweep_comes_to_all_records_once_whatever_a_flood_has() {
    let (store, world) = (MemoryStore::new(), ManualWorld::at(START.plus(DELIVERY_GRACE)));
    // The other tenant's is the last one of the table.
    for (tenant, number) in (0..MANY).map(|number| (FLOOD, number)).chain([(OTHER, 0)]) {
        let record = samples::pending(record_key(tenant, &number.to_string()), fingerprints("{}"), START);
        let request = record.accepted.expect("it is accepted").request;
        let kept = Companion::KeepBody(request, "{}".into(), START);
        store.put(None, &record, &[kept]).await.unwrap();
    }
    let log = Log::default();
    let stale = Stale::new(store, MemoryQueue::new(), MemoryQueue::new(), MemoryQueue::new())
        .work_to(Slow(log.clone(), world.clone()))
        .world(world);
    stale.sweep(Duration::from_secs(3600)).await.expect("the store answers");
    assert_eq!(log.0.lock().unwrap().len(), MANY + 1, "once each");
    assert_waits("what a sweep finds", log.before_the_other());
}
