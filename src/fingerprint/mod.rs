//! The fingerprint of a request: it tells a retry from another request under the same key.
//!
//! 1. A fingerprint covers the operation, the method, the path and query, the media type with its parameters, the conditional
//!    headers, the headers that the rule declares, and the body: see [`Content`]. A [custom rule](FingerprintRule::custom)
//!    replaces all but the operation.
//! 2. A body that is strictly valid in its type is hashed by its meaning: JSON in its canonical form, a form by its fields, multipart
//!    without its boundary, gzip by its unpacked body. Every other body is hashed by its bytes and content coding. A parameter that the
//!    body's form makes redundant does not count: the `charset` of JSON, and the `boundary` of multipart.
//! 3. A record keeps the number of the rule that made its fingerprint. A retry is compared by that rule, be it the current
//!    one or a former one.
//! 4. If no known rule has that number, the two cannot be compared: that is an error, not a mismatch.
//!
//! It does not look at other headers, `Authorization` among them: the tenant is part of the key.

mod body;
mod canonical;
mod content;
mod fingerprints;
mod form;
mod media_type;
mod multipart;
mod rule;

#[cfg(any(feature = "http", feature = "lambda"))]
pub(crate) use canonical::JsonPointer;
pub(crate) use canonical::canonical_json;
pub use content::Content;
pub(crate) use content::is_header_name;
#[cfg(feature = "http")]
pub(crate) use form::in_any_order;
pub use protocol::fingerprint::{Fingerprint, Fingerprints};
pub use rule::FingerprintRule;

#[cfg(test)]
mod tests;
