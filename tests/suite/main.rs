//! What the library promises, shown on real stores. One test crate, a module a subject: linking the SDK many times costs
//! minutes.

mod conformance;
mod main_job;
mod readme;
mod support;
mod support_works;
