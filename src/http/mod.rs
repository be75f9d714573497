//! The guard for HTTP: a `tower` layer for `lambda_http` services and `axum` routes alike.
//!
//! 1. `layer` builds the configuration and `settings` holds it; `service` lets requests in (`unguarded`: which ones pass),
//!    `request` and `target` parse them, `guard` answers them.
//! 2. What a response says of its effect is an `outcome` (or `not_begun`); what is kept and replayed of it is in `replay`; which
//!    words, codes and shapes an API speaks, in `profile`, `problem` and `shape`; what pollers are told, in `status`.
//! 3. A tenant comes from what verified the caller, and from nothing that a client can set.

mod body;
mod date;
#[cfg(feature = "axum")]
mod extract;
mod guard;
mod header;
mod layer;
#[cfg(feature = "axum")]
mod not_begun;
mod origin;
mod outcome;
mod problem;
mod profile;
mod replay;
mod request;
mod service;
mod settings;
mod shape;
mod status;
mod target;
mod tenant;
mod unguarded;

pub use crate::record::SAFE_HEADERS;
pub use body::GuardedBody;
pub use header::KeySyntax;
pub use layer::{Idempotency, KnowsTenants};
#[cfg(feature = "axum")]
pub use not_begun::{NotBegun, OrNotBegun};
pub use outcome::Outcome;
pub use problem::{Problem, ProblemType};
pub use profile::Profile;
pub use service::Service;
pub use status::{operation_key, operation_status};
pub use tenant::{
    IssuerAndClaim, JwtClaim, LambdaAuthorizer, SingleTenant, TenantResolver, context_tenant, iam_account,
    iam_caller,
};

/// What a [`TenantResolver`] of your own takes and returns.
pub use {crate::key::Tenant, http::request::Parts};

/// The `lambda_http` whose requests the guard understands. Of another major version's it would not find the verified caller, and
/// refuse them all.
pub use lambda_http;

use http::HeaderName;

/// The longest body that is read, of a request and of a response: what a Lambda invocation can carry (6 MB).
pub(crate) const LONGEST_BODY: usize = 6 * 1024 * 1024;

/// The request header with the client's key, which ACP's answers echo
/// ([draft-ietf-httpapi-idempotency-key-header](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/)).
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The request header with the time at which the key was made, signed, where the operation asks for it
/// ([`KeyTime::Signed`](crate::key::age::KeyTime::Signed)).
pub const IDEMPOTENCY_TIMESTAMP: HeaderName = HeaderName::from_static("idempotency-timestamp");

/// The response header that tells a replay from a first answer: `true`.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The response header of a replay whose body was too large to be kept: `omitted`.
pub const IDEMPOTENT_REPLAYED_BODY: HeaderName = HeaderName::from_static("idempotent-replayed-body");

/// The response header that tells until when the answer is replayed: an HTTP date.
pub const IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
