//! Retry-safe AWS Lambda functions in Rust, on DynamoDB.
//!
//! A client, a gateway or a queue may send the same thing twice, at once, after a crash, after a time-out: the effect
//! happens once, everybody gets the same answer, and where nobody can know what happened, the record says so.
//!
//! # Layout
//!
//! | module | what |
//! | --- | --- |
//! | [`http`] | the guard for HTTP: a `tower` layer, profiles, tenants, problem documents |
//! | [`executor`] | reserve, execute, end: what the fronts have in common |
//! | [`policy`] | an [`Operation`](policy::Operation) and what it chose |
//! | [`record`] | the record, its states, and every way from one to the next, as pure functions |
//! | [`store`] | where records live: DynamoDB, memory, S3 for large bodies; and the suite that stores must pass |
//! | [`key`], [`fingerprint`] | who asks for what |
//! | [`key_age`] | when a key was made, and which are too old |
//! | [`lease`], [`time`] | how long a worker owns a record, by which clock |
//! | [`reconcile`] | finds out what is unknown, and settles it |
//! | [`stale`] | finds records whose worker died: netting of stream records, checks, a sweep |
//! | [`queue`] | where work goes that is to be done later: SQS, memory |
//! | [`signature`] | signatures with a time stamp, for webhooks and keys |
//! | [`metrics`] | what is counted |
//!
//! Data flows one way: `http` → `executor` → `store` and `record`; nothing in `record` knows of the others.
//!
//! # Features
//!
//! - `axum` (default): guards axum routes, and gives handlers their [`Execution`](executor::Execution) as an argument.
//! - `s3`: keeps response bodies beyond 400 KB in S3.
//! - `sqs`: queues in SQS.
//! - `conformance`: the suite that every store must pass, for stores of your own.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

/// The README's examples, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "axum")]
mod axum;
pub mod executor;
pub mod fingerprint;
pub mod http;
pub mod key;
pub mod key_age;
pub mod lease;
pub mod metrics;
pub mod policy;
pub mod queue;
pub mod reconcile;
pub mod record;
pub mod signature;
pub mod stale;
pub mod store;
pub mod time;
