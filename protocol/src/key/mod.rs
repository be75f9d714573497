//! The identity of a record: tenant, operation and idempotency key, and everything derived from the three.
//!
//! 1. Each part is parsed once, within its limits; a [`RecordKey`] holds valid parts only.
//! 2. A scope, if the contract asks for one, also tells keys apart by the path that was called.
//! 3. No two record keys share a [partition key](RecordKey::partition_key), whatever characters the parts hold. It begins
//!    with the tenant.
//! 4. A [downstream key](RecordKey::downstream_key) is the same in every execution. It differs for each phase, and for
//!    another request under the same key.
//! 5. Logs and metrics show a [hash](RecordKey::hash), never the key or the tenant.
//!
//! It does not verify a tenant: the guard passes on a verified one.

mod digest;
mod scope;

use std::{borrow::Cow, fmt, sync::Arc};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use uuid::Uuid;

pub use scope::Scope;

use crate::{fingerprint::Fingerprint, time::Timestamp};
use digest::shortened;

/// The longest idempotency key, in characters (the limit that Stripe's API documents).
pub const MAX_KEY_CHARS: usize = 255;

/// The longest tenant, in bytes. Escaped, and with the other parts, it fits DynamoDB's 2,048 bytes of partition key.
pub const MAX_TENANT_BYTES: usize = 255;

/// The longest name of an operation, in bytes.
pub const MAX_OPERATION_BYTES: usize = 128;

/// How a key begins that is a hash.
const HASHED: &str = "sha256:";

/// How many digits of base64 follow.
const HASH_DIGITS: usize = 43;

/// Why a text is not a valid tenant, operation or idempotency key. `Debug` prints the same text: Rust prints what `main` returns by it.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// It is longer than the limit.
    #[error("it is longer than {limit} {unit}")]
    TooLong {
        /// The limit.
        limit: usize,
        /// The unit of the limit.
        unit: &'static str,
    },
    /// It holds a character that is not allowed.
    #[error("it holds a character that is not allowed")]
    Character,
}

impl fmt::Debug for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text, if it has 1 to `limit` units and allowed characters only.
fn checked(
    text: &str,
    length: usize,
    limit: usize,
    unit: &'static str,
    is_allowed: impl Fn(char) -> bool,
) -> Result<Arc<str>, KeyError> {
    match length {
        0 => Err(KeyError::Empty),
        _ if length > limit => Err(KeyError::TooLong { limit, unit }),
        _ if !text.chars().all(is_allowed) => Err(KeyError::Character),
        _ => Ok(text.into()),
    }
}

/// The client's name for one intended effect. Opaque; made by the client, never by the server.
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Debug)]
// Keys and tenants do not belong in logs.
#[debug("IdempotencyKey({})", KeyHash::of(_0))]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// Takes 1 to 255 characters without control characters.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        // Characters are counted only if there may be too many.
        let length = if text.len() > MAX_KEY_CHARS { text.chars().count() } else { text.len() };
        checked(text, length, MAX_KEY_CHARS, "characters", |c| !c.is_control()).map(Self)
    }

    /// The key of these parts, such as a source and its own id: one for each list of parts. One part that is a valid key is the key, as it
    /// is. Longer parts, several, and one that looks like a hash, are hashed: `sha256:` and 43 digits of base64.
    ///
    /// # Errors
    /// If there are no parts, or one is empty.
    ///
    /// ```
    /// # extern crate idempotency_protocol as lambda_idempotency;
    /// use lambda_idempotency::key::IdempotencyKey;
    ///
    /// assert_eq!(IdempotencyKey::of(&["order-1"]).unwrap().as_str(), "order-1");
    /// assert_ne!(IdempotencyKey::of(&["shop", "1"]), IdempotencyKey::of(&["sho", "p1"]));
    /// ```
    pub fn of(parts: &[&str]) -> Result<Self, KeyError> {
        if parts.is_empty() || parts.contains(&"") {
            return Err(KeyError::Empty);
        }
        if let [only] = parts
            && !is_hash(only)
            && let Ok(key) = Self::parse(only)
        {
            return Ok(key);
        }
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Ok(Self(format!("{HASHED}{}", BASE64_URL_SAFE_NO_PAD.encode(hash.finalize())).into()))
    }

    /// The key as the client sent it. Not for logs: see [`RecordKey::hash`].
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a text has the form of a hash, which only [`IdempotencyKey::of`] makes.
pub fn is_hash(text: &str) -> bool {
    text.strip_prefix(HASHED).is_some_and(|digits| digits.len() == HASH_DIGITS)
}

/// The verified caller.
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("Tenant({})", KeyHash::of(_0))]
pub struct Tenant(Arc<str>);

impl Tenant {
    /// Takes 1 to 255 bytes without control characters.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        checked(text, text.len(), MAX_TENANT_BYTES, "bytes", |c| !c.is_control()).map(Self)
    }

    /// The tenant as the caller's credentials name it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hash that logs, and queues that serve tenants in turns, have in its place.
    pub fn hash(&self) -> impl fmt::Display + fmt::Debug + Copy + Eq + use<> {
        KeyHash::of(self.as_str())
    }

    /// The tenant without a `#`, which separates the parts of a partition key.
    fn escaped(&self) -> Cow<'_, str> {
        match self.0.bytes().any(|byte| matches!(byte, b'#' | b'%')) {
            true => self.0.replace('%', "%25").replace('#', "%23").into(),
            false => self.as_str().into(),
        }
    }
}

/// The name of an operation. The same key of two operations names two records.
#[derive(Clone, Debug, PartialEq, Eq, Hash, derive_more::Display)]
pub struct OperationName(Arc<str>);

impl OperationName {
    /// Takes 1 to 128 letters, digits, `-`, `_` and `.`: metrics and URLs show it unescaped.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        checked(text, text.len(), MAX_OPERATION_BYTES, "bytes", is_plain).map(Self)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The shared name, for a metric's label without a copy.
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

/// The identity of a record: one for each (tenant, operation, idempotency key), and scope, if there are scopes.
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("RecordKey({operation}, {})", self.hash())]
pub struct RecordKey {
    tenant: Tenant,
    operation: OperationName,
    scope: Option<Scope>,
    key: IdempotencyKey,
}

impl RecordKey {
    /// The record of this tenant, operation and key.
    pub fn new(tenant: Tenant, operation: OperationName, key: IdempotencyKey) -> Self {
        Self { tenant, operation, scope: None, key }
    }

    /// The same key within a scope. The same key in two scopes names two records.
    #[must_use]
    pub fn within(self, scope: Scope) -> Self {
        Self { scope: Some(scope), ..self }
    }

    /// The tenant.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The operation.
    pub fn operation(&self) -> &OperationName {
        &self.operation
    }

    /// The scope, if there are scopes.
    pub fn scope(&self) -> Option<Scope> {
        self.scope
    }

    /// The client's key.
    pub fn idempotency_key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// The partition key: `tenant#operation#key`, or `tenant#operation@scope#key`, with `#` and `%` of the tenant written as
    /// `%23` and `%25`.
    ///
    /// No two different records share one. Neither the escaped tenant nor the operation can hold a `#`, so the first
    /// two `#` are the separators, whatever the key holds; no operation holds an `@`. It starts with the tenant, so that an
    /// IAM policy can bind a caller to `tenant#*` by `dynamodb:LeadingKeys`.
    pub fn partition_key(&self) -> String {
        let (tenant, operation, key) = (self.tenant.escaped(), self.operation.as_str(), self.key.as_str());
        match self.scope {
            Some(scope) => [&*tenant, "#", operation, "@", &scope.to_string(), "#", key].concat(),
            None => [&*tenant, "#", operation, "#", key].concat(),
        }
    }

    /// The prefix of this tenant's partition keys, and of no other tenant's.
    pub fn partition_key_prefix(tenant: &Tenant) -> String {
        format!("{}#", tenant.escaped())
    }

    /// Reads a [`partition_key`](Self::partition_key) back; `None` if the text is not one.
    pub fn from_partition_key(text: &str) -> Option<Self> {
        let (tenant, rest) = text.split_once('#')?;
        let (operation, key) = rest.split_once('#')?;
        let (operation, scope) = match operation.split_once('@') {
            Some((operation, scope)) => (operation, Some(Scope::parse(scope)?)),
            None => (operation, None),
        };
        let tenant = tenant.replace("%23", "#").replace("%25", "%");
        let parsed = Self {
            tenant: Tenant::parse(&tenant).ok()?,
            operation: OperationName::parse(operation).ok()?,
            scope,
            key: IdempotencyKey::parse(key).ok()?,
        };
        // `partition_key` never writes some texts, such as `%2` and `%41`.
        (parsed.partition_key() == text).then_some(parsed)
    }

    /// The hash that logs and metrics show instead of the key.
    pub fn hash(&self) -> impl fmt::Display + fmt::Debug + Copy + Eq + use<> {
        KeyHash::of(&self.partition_key())
    }

    /// The idempotency key for the downstream service that `phase` calls.
    ///
    /// It is the same in every execution, so that a provider that honours idempotency keys acts once, even after this record
    /// has expired or the table was restored to an earlier time. That holds as long as the operation's fingerprint rule, and
    /// this crate's form of it, stay the same. Another phase, or another request under the same key, gets a different one.
    pub fn downstream_key(&self, fingerprint: &Fingerprint, phase: &str) -> String {
        let mut hash = Sha256::new_with_prefix(b"lambda-idempotency downstream key\0");
        for part in [self.partition_key().as_bytes(), fingerprint.digest(), phase.as_bytes()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Uuid::new_v8(shortened(hash)).to_string()
    }

    /// The id of a message that this operation published: of this number, while the key was first seen at `created_at`.
    pub fn message_id(&self, created_at: Timestamp, sequence: u32) -> String {
        let mut hash = Sha256::new_with_prefix(b"lambda-idempotency message\0");
        hash.update(created_at.as_millis().to_be_bytes());
        hash.update(sequence.to_be_bytes());
        hash.update(self.partition_key());
        Uuid::new_v8(shortened(hash)).to_string()
    }
}

/// A short hash that replaces a key in logs and metrics: 16 hex digits of SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{:016x}", u64::from_be_bytes(*_0))]
pub struct KeyHash([u8; 8]);

impl KeyHash {
    /// The hash of a partition key, or of a text in its place.
    pub fn of(text: &str) -> Self {
        Self(shortened(Sha256::new_with_prefix(text)))
    }

    /// A byte that spreads keys evenly.
    pub const fn first_byte(self) -> u8 {
        self.0[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record_key(tenant: &str, operation: &str, key: &str) -> RecordKey {
        RecordKey::new(
            Tenant::parse(tenant).unwrap(),
            OperationName::parse(operation).unwrap(),
            IdempotencyKey::parse(key).unwrap(),
        )
    }

    // T15
    #[test]
    fn no_two_different_triples_share_a_partition_key() {
        let parts = ["a", "a#b", "b", "b#c", "c", "a%23b", "%", "%23", "%25", "#", "a#", "#a"];
        let operations = ["a", "b", "c"];
        let mut seen = std::collections::HashMap::new();
        for tenant in parts {
            for operation in operations {
                for key in parts {
                    let triple = record_key(tenant, operation, key);
                    assert_eq!(RecordKey::from_partition_key(&triple.partition_key()), Some(triple.clone()));
                    if let Some(other) = seen.insert(triple.partition_key(), triple.clone()) {
                        panic!("{other:?} and {triple:?} share a partition key");
                    }
                }
            }
        }
    }

    #[test]
    fn a_scope_tells_keys_apart_and_is_read_back_as_it_was() {
        let plain = record_key("t", "pay", "k");
        let (one, other) = (plain.clone().within(Scope::of(b"/1")), plain.clone().within(Scope::of(b"/2")));
        assert!(one != other && one != plain && one.partition_key().starts_with("t#pay@"));
        for key in [&plain, &one, &other, &record_key("t", "pay", "@#k").within(Scope::of(b""))] {
            assert_eq!(RecordKey::from_partition_key(&key.partition_key()).as_ref(), Some(key));
        }
        let (shown, charge) = (Scope::of(b"/1").to_string(), |key: &RecordKey| {
            key.downstream_key(&Fingerprint::new(0, [0; 32]), "charge")
        });
        assert_ne!(charge(&one), charge(&other), "two paths have two effects");
        assert_eq!(Scope::parse(&shown), one.scope());
        let upper = shown.to_uppercase();
        for invalid in ["", "0", &shown[1..], &format!("{shown}0"), "zz", &upper] {
            assert_eq!(Scope::parse(invalid), None, "{invalid}");
            assert_eq!(RecordKey::from_partition_key(&format!("t#pay@{invalid}#k")), None);
        }
    }

    #[test]
    fn a_malformed_partition_key_is_not_read() {
        for text in ["", "a", "a#b", "a#b#", "#b#c", "a%41#b#c", "a%2#b#c", "a#b c#d"] {
            assert_eq!(RecordKey::from_partition_key(text), None, "{text}");
        }
    }

    #[test]
    fn the_longest_parts_fit_a_dynamodb_partition_key() {
        let key = record_key(&"#".repeat(255), &"o".repeat(128), &"\u{1F600}".repeat(255));
        assert!(key.partition_key().len() <= 2048, "{}", key.partition_key().len());
    }

    #[test]
    fn a_key_has_one_to_255_characters_and_no_control_characters() {
        assert_eq!(IdempotencyKey::parse(""), Err(KeyError::Empty));
        assert!(IdempotencyKey::parse(&"é".repeat(255)).is_ok());
        assert!(matches!(IdempotencyKey::parse(&"é".repeat(256)), Err(KeyError::TooLong { .. })));
        assert_eq!(IdempotencyKey::parse("a\nb"), Err(KeyError::Character));
    }

    #[test]
    fn a_tenant_has_one_to_255_bytes_and_no_control_characters() {
        assert_eq!(Tenant::parse(""), Err(KeyError::Empty));
        assert!(Tenant::parse(&"t".repeat(255)).is_ok());
        assert!(matches!(Tenant::parse(&"t".repeat(256)), Err(KeyError::TooLong { limit: 255, .. })));
        assert!(Tenant::parse(&"é".repeat(128)).is_err(), "bytes count, and not characters");
        assert_eq!(Tenant::parse("a\nb"), Err(KeyError::Character));
    }

    #[test]
    fn an_operation_has_one_to_128_plain_characters() {
        assert!(OperationName::parse(&"o".repeat(128)).is_ok());
        for bad in ["", "a b", "a#b", "a/b", "ä", &"o".repeat(129)] {
            assert!(OperationName::parse(bad).is_err(), "{bad}");
        }
        assert!(OperationName::parse("aZ09-_.").is_ok());
    }

    // T15
    #[test]
    fn only_a_tenants_own_keys_begin_with_its_prefix() {
        let tenants = ["a", "a#b", "a%23b", "ab", "%", "#"];
        for owner in tenants {
            let prefix = RecordKey::partition_key_prefix(&Tenant::parse(owner).unwrap());
            for tenant in tenants {
                let key = record_key(tenant, "pay", "k").partition_key();
                assert_eq!(key.starts_with(&prefix), tenant == owner, "{owner} {tenant}");
            }
        }
    }

    #[test]
    fn unknown_outcomes_are_spread_over_all_partitions_of_the_index() {
        let first = |number: u32| {
            KeyHash::of(&record_key("a", "pay", &number.to_string()).partition_key()).first_byte() % 8
        };
        let found: std::collections::HashSet<_> = (0..256).map(first).collect();
        assert_eq!(found.len(), 8);
    }

    #[test]
    fn logs_identify_a_key_by_hash_and_an_operation_by_name() {
        let key = record_key("acme", "pay", "order-1");
        let hash = key.hash().to_string();
        assert!(!hash.is_empty() && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
        assert_ne!(hash, record_key("acme", "pay", "order-2").hash().to_string());
        assert!(format!("{key:?}").contains(&hash));
        assert_eq!(key.operation().to_string(), "pay");
    }

    #[test]
    fn debug_output_never_shows_a_key_or_a_tenant() {
        let shown = format!("{:?}", record_key("tenant-in-clear", "pay", "key-in-clear"));
        let parts = format!("{:?} {:?}", Tenant::parse("in-clear"), IdempotencyKey::parse("in-clear"));
        assert!(!shown.contains("clear") && !parts.contains("clear"), "{shown} {parts}");
    }

    // T33
    #[test]
    fn a_downstream_key_is_stable_and_differs_by_record_fingerprint_and_phase() {
        let (key, other) = (record_key("t", "pay", "k"), record_key("t", "pay", "l"));
        let (print, another) = (Fingerprint::new(1, [1; 32]), Fingerprint::new(1, [2; 32]));
        let charge = key.downstream_key(&print, "charge");
        assert_eq!(charge, key.downstream_key(&print, "charge"));
        for different in [
            key.downstream_key(&print, "notify"),
            key.downstream_key(&another, "charge"),
            other.downstream_key(&print, "charge"),
        ] {
            assert_ne!(charge, different);
        }
    }
}
