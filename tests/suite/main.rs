//! What the library promises, shown on real stores. All tests are one program with a folder per subject, because linking the SDK many times
//! would take minutes.

mod asynchronous;
mod cloud;
mod contract;
mod crashes;
mod event;
mod flood;
mod function;
mod guard;
mod house;
mod operator;
mod orders;
mod outbox;
mod queues;
mod reconcile;
mod rights;
mod shards;
mod stale;
mod store;
mod support;
mod telemetry;
mod tenants;
mod transactions;
