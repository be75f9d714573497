//! Retry-safe AWS Lambda functions in Rust, on DynamoDB.
//!
//! A client, a gateway or a queue may send the same request twice: at once, after a crash, after a time-out. The effect
//! happens once, and each retry gets the same answer. If the outcome cannot be known, the record becomes `unknown`, and
//! reconciliation finds it out.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::post};
//! use lambda_idempotency::{Execution, Idempotency, MemoryStore, Operation, SingleTenant};
//! use tower::ServiceExt;
//!
//! async fn create(execution: Execution) -> String {
//!     execution.downstream_key("charge") // the provider's idempotency key
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // In a function: `DynamoDbStore::from_env()`, and a verified tenant, such as `JwtClaim("sub")`.
//! let guard = Idempotency::new(MemoryStore::new(), Operation::new("create-order")).tenant(SingleTenant::new("shop"));
//! let app: Router = Router::new().route("/orders", post(create).route_layer(guard));
//!
//! let order = || Request::post("/orders").header("idempotency-key", "order-1").body(Body::empty()).unwrap();
//! let first = app.clone().oneshot(order()).await.unwrap();
//! let retry = app.oneshot(order()).await.unwrap();
//! assert_eq!((first.status(), retry.status()), (200.try_into().unwrap(), 200.try_into().unwrap()));
//! assert_eq!(retry.headers()["idempotent-replayed"], "true");
//! # }
//! ```
//!
//! # Names
//!
//! | for | names |
//! | --- | --- |
//! | a guarded route | [`DynamoDbStore`], [`Operation`], [`Idempotency`], [`JwtClaim`], [`Execution`], [`Outcome`], [`NotBegun`] |
//! | a guarded function | [`Guard`], [`Failure`], [`RunError`], [`Ran`] |
//! | a row | [`domain::Table`], [`Execution::write`], [`SingleTransaction`] |
//! | a message, an asynchronous operation | `outbox::Topics`, `outbox::Topic`, [`Execution::publish`], [`Operation::asynchronous`] |
//! | a reconciler | [`Reconciler`], [`Question`], [`Finding`], [`Answer`], `async_trait` |
//! | a test, a router for any store | [`MemoryStore`], [`SingleTenant`], [`Store`], [`World`] |
//!
//! # Layout
//!
//! | module | what |
//! | --- | --- |
//! | [`http`] | the guard for HTTP: a `tower` layer, profiles, tenants, problem documents |
//! | [`function`] | the guard for any async function |
//! | [`event`] | the guard for messages of queues |
//! | [`operation`] | per-operation settings |
//! | [`domain`] | writes to your own tables, in the transaction that completes an operation |
//! | [`engine`] | reserve, execute, finish: all that does not depend on HTTP |
//! | [`record`] | the record, its states, and the transitions between them, as pure functions |
//! | [`store`] | where records live: DynamoDB, memory, S3 for large bodies; and the conformance suite |
//! | [`outbox`] | delivers the messages that operations publish |
//! | [`reconcile`] | finds out what is unknown, and settles it |
//! | [`stale`] | finds records whose worker is dead, even if nobody retries |
//! | [`operator`] | corrections by operators, as the command line makes them |
//! | [`lambda`] | the shell of Lambda functions: triggers, log, metrics, variables; the functions `stale`, `reconcile` and `webhook` |
//! | [`config`] | configuration errors |
//! | [`queue`] | queues for work that is done later: SQS, memory; the key of a producer |
//! | [`key`], [`fingerprint`] | the identity of a record; how old a key may be; signatures; whether two requests are the same |
//! | [`time`], [`time_budget`] | instants and durations; how an invocation's time is divided, in one drawing |
//! | [`world`] | clocks, randomness and tasks, which tests replace |
//! | [`telemetry`] | metrics |
//!
//! [Architecture] says which file does what.
//!
//! # Features
//!
//! - `dynamodb` (default): keeps records in DynamoDB.
//! - `http`: guards HTTP services.
//! - `lambda-http` (default): guards those of `lambda_http` too, and takes the tenant from what API Gateway verified.
//! - `axum` (default): guards axum routes too, and gives handlers their [`Execution`] as an argument.
//! - `lambda`: triggers, log, metrics and environment variables of functions, and the functions `stale`, `reconcile` and
//!   `webhook`.
//! - `s3`: keeps response bodies over 400 KB in S3; loads payloads of messages from there.
//! - `sqs`: queues in SQS.
//! - `eventbridge`: EventBridge buses as targets of the outbox.
//! - `conformance`: the suite that every store must pass, for a custom store.
//!
//! A first build without optimisation, on two cores: 90 crates in 26 s with `axum` alone, 174 in 64 s with `dynamodb` alone, 207 in 79 s with the
//! defaults, 211 in 87 s with `lambda`. The SDK and its cryptography in C take most of it: `aws-sdk-sqs`, in `lambda` too, takes 4 s of one
//! core, that of `eventbridge` 10 s, and that of `s3` 22 s.
//!
//! # Chapters
//!
//! | chapter | for the question |
//! | --- | --- |
//! | [guide] | How do I guard, reconcile and test handlers of my own? |
//! | [contract] | What can clients rely on, and what can an API choose? |
//! | [deploy] | How do I deploy and upgrade it? |
//! | [versions] | What is supported, and what does no version change? |
//! | [all others][chapters] | |
//!
// Of this version, in the repository that Cargo.toml names: a page of the documentation cannot link to files beside it.
#![doc = concat!("[architecture]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/v", env!("CARGO_PKG_VERSION"), "/docs/architecture.md")]
#![doc = concat!("[guide]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/v", env!("CARGO_PKG_VERSION"), "/docs/guide.md")]
#![doc = concat!("[contract]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/v", env!("CARGO_PKG_VERSION"), "/docs/contract.md")]
#![doc = concat!("[deploy]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/v", env!("CARGO_PKG_VERSION"), "/docs/deploy.md")]
#![doc = concat!("[versions]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/v", env!("CARGO_PKG_VERSION"), "/docs/versions.md")]
#![doc = concat!("[chapters]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/v", env!("CARGO_PKG_VERSION"), "/README.md#read-on")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]
// On docs.rs each item says which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Clocks, randomness and tasks come from the world: see `clippy.toml`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

/// The examples of README and chapters, compiled.
#[cfg(all(doctest, feature = "axum", feature = "dynamodb", feature = "lambda"))]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;

    #[doc = include_str!("../docs/guide.md")]
    struct Guide;

    #[doc = include_str!("../docs/rows.md")]
    struct Rows;

    #[doc = include_str!("../docs/queues.md")]
    struct Queues;

    #[doc = include_str!("../docs/outbox.md")]
    struct Outbox;

    #[doc = include_str!("../docs/recipes.md")]
    struct Recipes;
}

mod backoff;
pub mod bounds;
#[cfg(any(feature = "dynamodb", feature = "sqs"))]
pub mod config;
mod decimal;
pub mod domain;
pub mod engine;
mod error_chain;
#[cfg(feature = "lambda")]
pub mod event;
pub mod fingerprint;
pub mod function;
mod headers;
#[cfg(feature = "http")]
pub mod http;
mod json;
pub mod key;
#[cfg(feature = "lambda")]
pub mod lambda;
mod message;
pub mod operation;
pub mod operator;
pub mod outbox;
pub mod queue;
pub mod reconcile;
pub mod record;
pub mod stale;
pub mod store;
pub mod telemetry;
pub mod time;
pub mod time_budget;
pub mod world;

// The names that most users need.
pub use engine::{Execution, SingleTransaction};
pub use function::{Failure, Guard, Ran, RunError};
#[cfg(feature = "lambda-http")]
pub use http::JwtClaim;
#[cfg(feature = "axum")]
pub use http::NotBegun;
#[cfg(feature = "http")]
pub use http::{Idempotency, Outcome, SingleTenant};
pub use json::JsonError;
#[cfg(any(feature = "http", feature = "lambda"))]
pub use key::KeyFrom;
pub use operation::{How, Operation};
pub use reconcile::{Finding, Question, Reconciler};
pub use record::Answer;
#[cfg(feature = "dynamodb")]
pub use store::dynamodb::DynamoDbStore;
pub use store::{Store, memory::MemoryStore};
pub use world::World;

/// For implementations of [`Store`], [`Queue`](queue::Queue) and [`Reconciler`].
pub use async_trait::async_trait;
