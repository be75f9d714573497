//! The identity of a record: tenant, operation and idempotency key; how old a key may be; signatures of keys.
//!
//! It does not verify a tenant: the guard passes on a verified one.

pub mod age;
#[cfg(any(feature = "http", feature = "lambda"))]
mod from;
pub(crate) mod refusal;
pub mod signature;

#[cfg(any(feature = "http", feature = "lambda"))]
pub use from::KeyFrom;
#[cfg(any(feature = "http", feature = "lambda"))]
pub(crate) use from::{FoundKey, Place};
pub(crate) use protocol::key::KeyHash;
#[cfg(any(feature = "http", feature = "lambda"))]
pub(crate) use protocol::key::is_hash;
pub use protocol::key::{
    IdempotencyKey, KeyError, MAX_KEY_CHARS, MAX_OPERATION_BYTES, MAX_TENANT_BYTES, OperationName, RecordKey,
    Scope, Tenant,
};
