//! Two tables in two Regions, between which the last writer wins, as in an asynchronous global table (T30). The guard holds in one Region.

use lambda_idempotency::{queue::MemoryQueue, record::AlarmKind};
use macro_rules_attribute::apply;

use crate::support::{
    counts::counting,
    guarded::{Guarded, completed, outcome_of, owned, replayed_text, request, written},
    on_each_store,
};

const DOUBLE: &str = "api.idempotency.double_execution.count";

/// Overwrites the record in the other Region, whatever is there.
async fn replicate(from: &Guarded, to: &Guarded, key: &lambda_idempotency::key::RecordKey) {
    to.write_raw(from.item(key).await.expect("it is written")).await;
}

// T30: not prevented. If both end before they are replicated, nothing shows that there were two.
#[apply(on_each_store)]
async fn two_regions_run_one_key_twice_and_one_answer_stays(endpoint: &str) {
    let (east, west) = (Guarded::on(endpoint).await, Guarded::on(endpoint).await);
    let request = request();
    let first = owned(east.executor().reserve(&request).await);
    let second = owned(west.executor().reserve(&request).await);
    // Only a provider that honours keys makes one effect of both: they send it the same key.
    let [ours, theirs] = [&first, &second].map(|owned| owned.execution().downstream_key("charge"));
    assert_eq!(ours, theirs);

    let (_, counted) = counting(async {
        written(east.executor().finish(first, completed("east")).await);
        written(west.executor().finish(second, completed("west")).await);
        replicate(&west, &east, &request.key).await;
    })
    .await;
    // The client in the East was told "east".
    for region in [&east, &west] {
        assert_eq!(replayed_text(region.executor().reserve(&request).await), "west");
    }
    assert_eq!(counted.get(DOUBLE), None);
}

// T30: what is replicated in time fences the other Region's worker, as any other execution does. Its effect is counted and escalated.
#[apply(on_each_store)]
async fn a_worker_whose_record_another_region_overwrote_reports_the_second_effect(endpoint: &str) {
    let (east, west) = (Guarded::on(endpoint).await, Guarded::on(endpoint).await);
    let (request, queue) = (request(), MemoryQueue::new());
    let executor = east.executor().defer_reports_to(queue.clone());
    let first = owned(executor.reserve(&request).await);
    let second = owned(west.executor().reserve(&request).await);
    written(west.executor().finish(second, completed("west")).await);
    replicate(&west, &east, &request.key).await;

    let (_, counted) = counting(executor.finish(first, completed("east"))).await;
    assert_eq!(counted.get(DOUBLE), Some(&1));
    let record = east.record(&request.key).await.expect("a record");
    assert!(record.has_alarm(AlarmKind::SecondExecution));
    // With the answer that its client got.
    assert!(record.alarms.iter().any(|alarm| alarm.report.is_some()));
    assert_eq!(replayed_text(executor.reserve(&request).await), "west");
}

// T30: each key in one Region, and the other one takes over only once it has all records.
#[apply(on_each_store)]
async fn a_key_that_is_pinned_to_one_region_runs_once(endpoint: &str) {
    let (east, west) = (Guarded::on(endpoint).await, Guarded::on(endpoint).await);
    let request = request();
    let first = owned(east.executor().reserve(&request).await);
    assert_eq!(outcome_of(&east.executor().reserve(&request).await), "in flight");
    replicate(&east, &west, &request.key).await;
    assert_eq!(outcome_of(&west.executor().reserve(&request).await), "in flight");
    written(east.executor().finish(first, completed("east")).await);
    replicate(&east, &west, &request.key).await;
    assert_eq!(replayed_text(west.executor().reserve(&request).await), "east");
}
