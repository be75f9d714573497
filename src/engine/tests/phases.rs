//! What becomes of an operation with phases, whatever interrupts it.

mod declared;
mod deferred;
mod ended;
mod kept;
mod reported;

use std::future::pending;

use super::*;
use crate::{
    message::Message,
    record::{Next, Phase, Phases, State, phase_of},
    time_budget::DEFAULT_NOT_FOUND_GRACE,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const WITHIN: Duration = Duration::from_secs(3 * 24 * 3600);

fn resuming() -> Operation {
    let names = ["check-fraud", "outer", "small", "report", "next", "charge", "ship", "stock", "refund"];
    operation().resumes(names, WITHIN)
}

/// A provider that honours keys for ever, and counts effects.
#[derive(Clone, Default)]
struct Provider {
    effects: Arc<Mutex<Vec<String>>>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    async fn makes(&self, key: String) -> std::result::Result<String, CallError> {
        self.calls.lock().unwrap().push(key.clone());
        let mut effects = self.effects.lock().unwrap();
        if !effects.contains(&key) {
            effects.push(key.clone());
        }
        Ok(format!("id of {key}"))
    }

    fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    fn effects(&self) -> usize {
        self.effects.lock().unwrap().len()
    }
}

async fn call(
    execution: &Execution,
    name: &str,
    provider: &Provider,
) -> std::result::Result<String, PhaseError> {
    execution.phase(name).keys_live(DAY).call(async |key| provider.makes(key).await).await
}

fn stock() -> Table {
    Table::new("stock", "sku")
}

fn take() -> crate::domain::DomainWrite {
    stock()
        .update(json!({ "sku": "tea" }), "SET available = available - :n")
        .condition("available >= :n")
        .value(":n", 1)
}

fn available(store: &Faulty) -> u64 {
    let row: Option<serde_json::Value> = store.inner.item(&stock(), json!({ "sku": "tea" })).unwrap();
    row.unwrap()["available"].as_u64().unwrap()
}

fn stocked(available: u64) -> Faulty {
    let store = Faulty::new();
    store.inner.put_item(&stock(), json!({ "sku": "tea", "available": available }));
    store
}

async fn phases(store: &Faulty) -> Phases {
    store.record().await.unwrap().phases().unwrap().clone()
}

async fn names(store: &Faulty) -> Vec<String> {
    phases(store).await.kept.into_iter().map(|phase| phase.name).collect()
}

async fn begin(executor: &Executor) -> Ownership {
    owned(executor.reserve(&request()).await)
}

/// The next execution, with its charge made or kept.
async fn charging(executor: &Executor, provider: &Provider) -> Ownership {
    let ours = begin(executor).await;
    call(ours.execution(), "charge", provider).await.unwrap();
    ours
}

/// Fails unless the execution left its operation to the next retry.
async fn assert_interrupted(store: &Faulty, ended: Says<Replay>) {
    assert!(matches!(ended, Says::Interrupted), "{ended:?}");
    assert_eq!(store.state().await, "between_workers");
}

fn phase(name: &str, result: Option<&str>) -> Phase {
    phase_of(name.to_owned(), result.map(str::to_owned), NOW)
}

/// Others report this result of a phase.
async fn note(store: &Faulty, name: &str, result: Option<&str>) {
    let record = store.record().await.unwrap();
    let noted = record.note(&phase(name, result), Revision::mint(), NOW).unwrap();
    store.inner.put(Some(record.revision), &noted, &[]).await.unwrap();
}

fn deferred(message: &str) -> DeferredReport {
    let Message::DeferredReport(report) = Message::read(message).unwrap() else { panic!("{message}") };
    *report
}
