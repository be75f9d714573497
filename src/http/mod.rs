//! The guard for HTTP: a `tower` layer for `lambda_http` services and `axum` routes.
//!
//! Each request is decided in this order:
//! 1. GET, HEAD, OPTIONS, TRACE, PUT and DELETE pass unguarded. So does a request without a key, if the profile makes keys optional.
//! 2. Without a verified tenant: 401. Without a key, or with a malformed one: 400.
//! 3. The key is reserved. A duplicate gets the replay, or a problem document: a mismatch, in flight, unknown, store unavailable.
//! 4. The handler runs to its end, even if the client has gone.
//! 5. Its response is kept and replayed, or its failure is recorded for what it is, as [`Outcome`] says.
//!
//! It does not authenticate callers: the tenant comes from what verified the caller, never from what a client can set.

// The path of a request: `layer` → `service`, in one `way` → `request` → `guard`, `single_transaction` or `accept`, which `run`
// the handler, `classify` its response and `replay` kept answers. `respond` makes all other answers, and `deliver` makes each what its front takes.
mod accept;
mod classify;
mod deliver;
mod front;
mod guard;
mod guarded;
mod layer;
mod replay;
mod request;
mod respond;
mod run;
mod service;
mod settings;
mod single_transaction;
#[cfg(test)]
mod tests;
mod way;

// Reading a request.
mod body;
mod claim;
mod key_fault;
mod key_header;
mod origin;
mod request_key;
mod target;
mod tenant;
#[cfg(feature = "lambda-http")]
mod verified;
mod webhook;

// For handlers: arguments and responses.
#[cfg(feature = "axum")]
mod extract;

// For clients: a problem's type, its document in each contract, the response with it, and the status of an operation.
mod look_ups;
mod problem;
mod problem_document;
mod problem_response;
mod problem_type;
mod profile;
mod status;

pub use crate::record::SAFE_HEADERS;
use body::GuardedBody;
#[cfg(feature = "lambda")]
pub(crate) use claim::read as read_accepted;
pub use classify::Outcome;
#[cfg(feature = "lambda")]
pub(crate) use deliver::clean;
pub use deliver::deliverable;
#[cfg(feature = "axum")]
pub use extract::{NotBegun, OrNotBegun};
#[cfg(feature = "lambda")]
pub(crate) use front::Front;
#[cfg(feature = "lambda")]
pub(crate) use guarded::By;
pub use guarded::Guarded;
pub use key_header::KeySyntax;
pub use layer::Idempotency;
pub use look_ups::LookUps;
pub use problem::Problem;
pub use problem_type::ProblemType;
pub use profile::Profile;
#[cfg(feature = "lambda")]
pub(crate) use request_key::GivenKey;
pub use service::Service;
pub use status::{operation_key, operation_status};
pub use tenant::{SingleTenant, TenantResolver};
#[cfg(feature = "lambda-http")]
pub use verified::{IamAccount, IamCaller, JwtClaim, LambdaAuthorizer, PerHost, PerStage, context_tenant};
pub use webhook::Webhook;

/// The argument and the result of a [`TenantResolver`].
#[doc(no_inline)]
pub use {crate::key::Tenant, http::request::Parts};

/// The `lambda_http` whose requests the guard understands. In requests of another major version it would not find the
/// verified caller, and would refuse them all.
#[cfg(feature = "lambda-http")]
pub use lambda_http;

use http::HeaderName;

use crate::headers;

/// The longest request body that is read: the most that a Lambda invocation can carry (6 MiB).
pub(crate) const MAX_BODY: usize = 6 * 1024 * 1024;

/// The longest response body that is read (16 MiB): more than any front delivers, so that its operation is completed all the same.
pub(crate) const MAX_RESPONSE: usize = 16 * 1024 * 1024;

/// The request header with the client's key, which Stripe's and ACP's answers echo
/// ([draft-ietf-httpapi-idempotency-key-header](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/)).
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static(headers::IDEMPOTENCY_KEY);

/// The request header with the key's signed creation time, if the operation asks for it
/// ([`KeyTime::Signed`](crate::key::age::KeyTime::Signed)).
pub const IDEMPOTENCY_TIMESTAMP: HeaderName = HeaderName::from_static("idempotency-timestamp");

/// The response header that marks a replay: `true`.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static(headers::IDEMPOTENT_REPLAYED);

/// The response header of an answer without its body: `omitted`. It was too large to be kept, or for the front to deliver, or its operation
/// keeps none ([`Operation::keep_body`](crate::Operation::keep_body)).
pub const IDEMPOTENT_REPLAYED_BODY: HeaderName = HeaderName::from_static(headers::IDEMPOTENT_REPLAYED_BODY);

/// The response header that says how long an answer is replayed once its operation is over, in whole seconds: of every answer of a guard, its
/// refusals included, and of the answers to `OPTIONS` that pass it. So a client knows it before it sends its first key.
pub const IDEMPOTENCY_RETENTION: HeaderName = HeaderName::from_static(headers::IDEMPOTENCY_RETENTION);

/// The response header that says until when the answer is replayed: an HTTP date.
pub const IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static(headers::IDEMPOTENCY_EXPIRES);
