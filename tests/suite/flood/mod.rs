//! A flood of one tenant, and another tenant's one item: behind how many of the flood's it waits, in whole functions and virtual time
//! (T81).
//!
//! `docs/limits.md` states the most for each place. Each test measures it, in the worst order that there is, and prints it.

mod batches;
mod lists;
mod polls;
mod requests;
mod streams;
mod sweeps;

use std::sync::{Arc, Mutex};

use futures_util::{StreamExt, stream};
use lambda_idempotency::{
    key::RecordKey,
    record::{Record, UnknownCause},
    store::{Store, conformance::samples},
    time::Timestamp,
};

use crate::support::guarded::fingerprints;

const LIMITS: &str = include_str!("../../../docs/limits.md");

/// The tenant with many.
const FLOOD: &str = "flood";

/// The tenant with one.
const OTHER: &str = "other";

/// What happened of each tenant, in order.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, tenant: &str) {
        self.0.lock().unwrap().push(tenant.to_owned());
    }

    /// How many of the flood came before the other tenant's one.
    fn before_the_other(&self) -> usize {
        let log = self.0.lock().unwrap();
        assert_eq!(log.iter().filter(|tenant| *tenant == OTHER).count(), 1, "{log:?}");
        log.iter().take_while(|tenant| *tenant != OTHER).count()
    }
}

/// Prints for how many of another tenant's items one has waited here, and fails if the limits state less.
#[track_caller]
fn assert_waits(place: &str, waited: usize) {
    let (_, stated) =
        LIMITS.split_once("## One tenant's many").expect("the limits have a part about a flood");
    let row = stated.lines().find_map(|line| line.strip_prefix(&format!("| {place} | ")));
    let row = row.unwrap_or_else(|| panic!("docs/limits.md does not state it: {place}"));
    let stated = row.split(' ').next().unwrap_or_default();
    println!("| {place:<36} | {waited:>5} | at most {stated:>5} |");
    let most = match stated {
        "all" => usize::MAX,
        number => number.parse().unwrap_or_else(|_| panic!("no number for {place}: {row}")),
    };
    assert!(waited <= most, "{place}: it waits behind {waited}");
}

/// An outcome that is unknown, and about which the provider is asked from this time on.
fn unknown(key: RecordKey, due: Timestamp) -> Record {
    let began = samples::in_progress(key, fingerprints("{}"), due, due);
    samples::unknown(&began, UnknownCause::PerhapsExecuted, due)
}

/// Puts these records into the store.
async fn put(store: &impl Store, records: impl Iterator<Item = Record>) {
    let put = stream::iter(records).map(async |record| store.put(None, &record, &[]).await.unwrap());
    put.buffer_unordered(32).collect::<Vec<_>>().await;
}
