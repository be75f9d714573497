//! A key that was found in a request or a message, or that a caller has named.

#[cfg(any(feature = "http", feature = "lambda", test))]
use protocol::{key::is_hash, record::is_hidden};
#[cfg(any(feature = "http", feature = "lambda", test))]
use serde_json::json;

use super::{IdempotencyKey, KeyError};

/// A key that was found.
#[derive(Clone, derive_more::Debug)]
pub(crate) struct FoundKey {
    pub(crate) key: IdempotencyKey,
    /// The characters of its shortest part.
    pub(crate) shortest: usize,
    /// What it is made of, as a JSON array, if it is a hash, which tells operators nothing.
    #[debug(skip)]
    #[cfg_attr(not(feature = "lambda"), allow(dead_code))]
    pub(crate) parts: Option<String>,
}

impl FoundKey {
    /// The key of these parts.
    #[cfg(any(feature = "http", feature = "lambda", test))]
    pub(crate) fn of(parts: &[&str]) -> Result<Self, KeyError> {
        let found = Self::unnamed(parts)?;
        let parts = is_hash(found.key.as_str()).then(|| escaped(&json!(parts).to_string()));
        Ok(Self { parts, ..found })
    }

    /// The same without what it is made of.
    pub(crate) fn unnamed(parts: &[&str]) -> Result<Self, KeyError> {
        let shortest = parts.iter().map(|part| part.chars().count()).min().unwrap_or_default();
        Ok(Self { key: IdempotencyKey::of(parts)?, shortest, parts: None })
    }
}

/// JSON with escapes in place of what a note of the record leaves out, because a terminal hides it: another key would look like this one.
#[cfg(any(feature = "http", feature = "lambda", test))]
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for char in json.chars() {
        match is_hidden(char) {
            true => escaped += &format!("\\u{:04x}", u32::from(char)),
            false => escaped.push(char),
        }
    }
    escaped
}
