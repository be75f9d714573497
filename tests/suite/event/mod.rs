//! The guard of messages: what is run, and what the queue sees.

mod batches;
mod direct;
mod envelopes;
mod invocations;
mod kafka;
mod key_edges;
mod keys;
mod outcomes;
mod panics;
mod payloads;
mod pipes;
mod route_ends;
mod route_layers;
mod routes;
mod streams;

use lambda_idempotency::{
    Execution, Failure, Guard, Operation,
    event::{Consumer, KeyFrom, MemorySource},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
};
use serde_json::{Value, json};

use crate::support::{
    guarded::Guarded,
    http::Counter,
    messages::{FIFO, QUEUE},
};

const SHIP: &str = "ship";

fn tenant() -> Tenant {
    Tenant::parse("acme").expect("a tenant")
}

fn guard(guarded: &Guarded) -> Guard {
    Guard::new(guarded.store(), Operation::new(SHIP), tenant()).world(guarded.clock.clone())
}

fn record_key(key: &[&str]) -> RecordKey {
    let operation = OperationName::parse(SHIP).expect("a name");
    RecordKey::new(tenant(), operation, IdempotencyKey::of(key).expect("a key"))
}

/// A consumer of parcels, whose key is the parcel's id.
fn consumer(guarded: &Guarded, source: &MemorySource) -> Consumer {
    Consumer::new(source.clone(), KeyFrom::body("/id")).world(guarded.clock.clone())
}

pub(crate) fn queue() -> MemorySource {
    MemorySource::new(QUEUE)
}

fn fifo() -> MemorySource {
    MemorySource::new(FIFO)
}

fn parcel(id: &str) -> Value {
    json!({ "id": id, "does": "ships" })
}

/// A parcel whose function does this.
fn parcel_that(id: &str, does: &str) -> Value {
    json!({ "id": id, "does": does })
}

/// Ships parcels as they say, and counts its runs.
fn ships(
    runs: &Counter,
) -> impl Fn(Execution, Value) -> futures_util::future::BoxFuture<'static, Result<String, Failure>>
+ Clone
+ Send
+ Sync
+ 'static {
    let runs = runs.clone();
    move |execution, parcel| {
        let runs = runs.clone();
        Box::pin(async move {
            runs.add();
            match parcel["does"].as_str() {
                Some("ships") => Ok(execution.downstream_key("carrier")),
                Some("nothing") => Err(Failure::not_executed("no connection")),
                Some("fails") => Err(std::io::Error::other("no answer").into()),
                Some("refuses") => Err(Failure::permanent("no such address")),
                _ => panic!("in the function"),
            }
        })
    }
}
