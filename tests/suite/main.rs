//! What the library promises, shown on real stores. One test crate, a module a subject: linking the SDK many times costs
//! minutes.

mod addressing;
mod bodies;
mod conformance;
mod costs;
mod expiry;
mod heartbeats;
mod large_bodies;
mod late_workers;
mod layers;
mod leases;
mod lost_answers;
mod main_job;
mod readme;
mod start_up;
mod store_faults;
mod support;
mod support_works;
mod unreadable;
