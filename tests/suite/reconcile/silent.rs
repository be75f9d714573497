//! A store whose index never answers a poll.

use std::time::Duration;

use lambda_idempotency::{queue::MemoryQueue, reconcile::Reconciliation, store::StoreErrorKind};
use macro_rules_attribute::apply;

use crate::support::{clock::STORE_TIMEOUT, faults::Fault, guarded::Guarded, on_each_store};

/// How many partitions list the questions that are due.
const PARTITIONS: usize = 8;

// T60: a poll that is killed reports nothing, and the alarm on missing polls says only that.
#[apply(on_each_store)]
async fn a_poll_fails_in_time_though_its_index_never_answers(endpoint: &str) {
    // As it reads what is due, and as it counts what is left.
    for passes in [0, PARTITIONS] {
        let guarded = Guarded::on(endpoint).await;
        guarded.faults.script("Query", vec![Fault::Pass; passes]);
        guarded.faults.for_all("Query", Fault::BlackHole);
        let reconciliation =
            Reconciliation::new(guarded.store(), MemoryQueue::new()).world(guarded.clock.clone());
        let time_passes = async {
            // The first sleep is that of the read of the checkpoint.
            guarded.clock.slept(STORE_TIMEOUT, if passes == 0 { 2 } else { 3 }).await;
            guarded.clock.advance(STORE_TIMEOUT);
        };
        let poll = reconciliation.poll(Duration::from_secs(60));
        let (polled, ()) = tokio::join!(poll, time_passes);
        assert_eq!(polled.expect_err("it is away").kind(), StoreErrorKind::Unavailable, "{passes}");
    }
}
