//! The identity of a record: tenant, operation and idempotency key; how old a key may be; signatures of keys.
//!
//! It does not verify a tenant: the guard passes on a verified one.

pub mod age;
mod found;
#[cfg(any(feature = "http", feature = "lambda"))]
mod from;
pub(crate) mod refusal;
pub mod signature;

pub(crate) use found::FoundKey;
#[cfg(any(feature = "http", feature = "lambda"))]
pub use from::KeyFrom;
#[cfg(any(feature = "http", feature = "lambda"))]
pub(crate) use from::Place;
pub use protocol::key::{
    IdempotencyKey, KeyError, MAX_KEY_CHARS, MAX_OPERATION_BYTES, MAX_TENANT_BYTES, OperationName, RecordKey,
    Scope, Tenant,
};
pub(crate) use protocol::key::{KeyHash, is_hash};
