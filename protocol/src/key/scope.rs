//! Keys that count for one path only.

use sha2::{Digest, Sha256};

use super::digest::shortened;

/// The path that was called, as a hash of 32 hex digits. It is part of a record's identity if the contract counts keys by
/// path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, derive_more::Display)]
#[display("{:032x}", u128::from_be_bytes(*_0))]
pub struct Scope([u8; 16]);

impl Scope {
    /// The scope of requests to `path`, without API Gateway's stage and percent-decoded.
    pub fn of(path: &[u8]) -> Self {
        Self(shortened(Sha256::new_with_prefix(path)))
    }

    /// Reads a scope in its displayed form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut scope = [0; 16];
        hex::decode_to_slice(text, &mut scope).ok()?;
        let scope = Self(scope);
        (scope.to_string() == text).then_some(scope)
    }
}
