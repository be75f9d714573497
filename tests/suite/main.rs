//! What the library promises, shown on real stores. One test program with a folder for each subject: linking the SDK many times would
//! take minutes.

mod cloud;
mod contract;
mod crashes;
mod guard;
mod house;
mod operator;
mod reconcile;
mod stale;
mod store;
mod support;
mod telemetry;
mod transactions;
