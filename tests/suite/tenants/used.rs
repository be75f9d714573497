//! How much of its bounds a tenant uses.

use lambda_idempotency::{
    MemoryStore,
    bounds::{Level, Rate},
    key::{OperationName, Tenant},
    store::{Bucket, Fill, Fullness},
    time::Timestamp,
};
use macro_rules_attribute::apply;

use super::*;
use crate::support::{
    http::{pay, send},
    on_each_store,
};

fn operation(name: &str) -> OperationName {
    OperationName::parse(name).expect("a name")
}

fn fill(bucket: &str, by: u64) -> Fill {
    let expires_at = fresh_time().plus(MINUTE);
    Fill { bucket: bucket.to_owned(), by: Level(by), from: Level(100), expires_at }
}

async fn each_tenants_buckets_are_its_own(store: &impl Tenants) {
    let all = ["acme", "acme#", "acme#use", "acme%23use", "#", "<script>", "use", "\u{202e}é/"];
    for (place, name) in all.into_iter().enumerate() {
        let by = u64::try_from(place).expect("a number");
        for of in ["ship", "create-payment", "use"] {
            let fills = [fill("new_keys:1/s+2", by), fill("accepted_bytes:1/s+2", 1)];
            store.fill(&tenant(name), &operation(of), &fills).await.expect("it is filled");
        }
    }
    for (place, name) in all.into_iter().enumerate() {
        let used = store.used(&tenant(name)).await.expect("it is read");
        let level = Level(100 + u64::try_from(place).expect("a number"));
        let bucket =
            |of: &str, name: &str, level| Bucket { operation: operation(of), name: name.to_owned(), level };
        let expected: Vec<_> = ["create-payment", "ship", "use"]
            .into_iter()
            .flat_map(|of| {
                [bucket(of, "accepted_bytes:1/s+2", Level(101)), bucket(of, "new_keys:1/s+2", level)]
            })
            .collect();
        assert_eq!(used, expected, "{name}");
    }
    assert_eq!(store.used(&tenant("acm")).await.expect("it is read"), []);
}

#[apply(on_each_store)]
async fn a_tenants_use_is_listed_by_operation(endpoint: &str) {
    each_tenants_buckets_are_its_own(&Guarded::on(endpoint).await.undisturbed_store()).await;
}

#[tokio::test]
async fn a_tenants_use_is_listed_in_memory() {
    each_tenants_buckets_are_its_own(&MemoryStore::new()).await;
}

/// More than a page of a query has: 1 MB.
#[apply(on_each_store)]
async fn a_tenants_use_is_listed_to_its_last_page(endpoint: &str) {
    let store = Guarded::on(endpoint).await.undisturbed_store();
    let long: Vec<_> = (0..5).map(|number| fill(&format!("{number}:{}", "x".repeat(30_000)), 1)).collect();
    for number in 0..10 {
        store.fill(&tenant("acme"), &operation(&format!("o-{number}")), &long).await.expect("it is filled");
    }
    assert_eq!(store.used(&tenant("acme")).await.expect("it is read").len(), 50);
}

#[apply(on_each_store)]
async fn what_a_guard_counts_is_seen_as_use(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let rate = Rate::per_minute(1).burst(4);
    let app = app(&guarded, Bounds::of(guarded.store()).new_keys(rate), &runs);
    let store = guarded.undisturbed_store();
    let mut seen = Vec::new();
    for number in 0..6 {
        send(&app, pay(&format!("k-{number}"))).await;
        let used = store.used(&tenant(TENANT)).await.expect("it is read");
        assert_eq!((used.len(), used[0].bound()), (1, Some(("new_keys", rate))));
        seen.push(used[0].fullness(guarded.now()).expect("a known bound"));
    }
    let percent = |of| Fullness::Percent(of);
    assert_eq!(seen[..5], [percent(25), percent(50), percent(75), percent(100), Fullness::Over(MINUTE)]);
    guarded.clock.advance(5 * MINUTE);
    let used = store.used(&tenant(TENANT)).await.expect("it is read");
    assert_eq!(used[0].fullness(guarded.now()), Some(percent(0)));
    assert_eq!(
        used[0].fullness(Timestamp::from_millis(0)).map(|full| matches!(full, Fullness::Over(_))),
        Some(true)
    );
}

#[test]
fn a_bucket_of_an_unknown_bound_has_no_fullness() {
    for name in ["", "new_keys", "new_keys:", "new_keys:often", "new_keys:1/day+2"] {
        let bucket = Bucket { operation: operation("pay"), name: name.to_owned(), level: Level(7) };
        assert_eq!(bucket.fullness(fresh_time()), None, "{name}");
    }
}

/// The parts of a key that could lead to another tenant's use.
#[test]
fn no_record_has_the_partition_of_a_tenants_use() {
    for name in ["acme", "acme#use", "use"] {
        let name: Tenant = tenant(name);
        let of_use = lambda_idempotency::key::RecordKey::partition_key_prefix(&name) + "use";
        assert_eq!(lambda_idempotency::key::RecordKey::from_partition_key(&of_use), None);
    }
}
