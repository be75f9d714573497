//! The guard for HTTP: a `tower` layer for `lambda_http` services and `axum` routes alike.

mod body;
mod header;
mod layer;
mod problem;
mod profile;
mod replay;
mod request;
mod service;
mod status;
mod tenant;

pub use body::{BodyError, GuardedBody};
pub use header::{KeyHeaderError, KeySyntax};
pub use layer::{Idempotency, NoTenant};
pub use problem::{Problem, ProblemType};
pub use profile::Profile;
pub use replay::SAFE_HEADERS;
pub use service::{Outcome, Service};
pub use status::operation_status;
pub use tenant::{
    ContextTenant, IamAccount, IamCaller, JwtClaim, LambdaAuthorizer, SingleTenant, TenantResolver,
};

use http::HeaderName;

/// The longest body that is read, of a request and of a response: what a Lambda invocation can carry (6 MB).
const LONGEST_BODY: usize = 6 * 1024 * 1024;

/// The request header with the client's key
/// ([draft-ietf-httpapi-idempotency-key-header](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/)).
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The request header with the time at which the key was made, signed, where the operation asks for it
/// ([`KeyTime::Signed`](crate::key_age::KeyTime::Signed)).
pub const IDEMPOTENCY_TIMESTAMP: HeaderName = HeaderName::from_static("idempotency-timestamp");

/// The response header that tells a replay from a first answer: `true`.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The response header of a replay whose body was too large to be kept: `omitted`.
pub const IDEMPOTENT_REPLAYED_BODY: HeaderName = HeaderName::from_static("idempotent-replayed-body");

/// The response header that tells until when the answer is replayed: an HTTP date.
pub const IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
