//! What IAM knows of a request besides its action and resource.

use std::collections::BTreeMap;

/// A condition key. A policy that uses another one cannot be evaluated here, and fails the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The partition keys of the items that a call names. It has several values, also if there is only one.
    LeadingKeys,
    /// The tag of the session.
    PrincipalTenant,
    /// The tag that a call of `sts:AssumeRole` sets.
    RequestTenant,
}

impl Key {
    pub fn named(name: &str) -> Self {
        match name {
            "dynamodb:LeadingKeys" => Self::LeadingKeys,
            "aws:PrincipalTag/tenant" => Self::PrincipalTenant,
            "aws:RequestTag/tenant" => Self::RequestTenant,
            other => panic!("the condition key {other} is not evaluated here"),
        }
    }

    pub fn has_several_values(self) -> bool {
        self == Self::LeadingKeys
    }
}

/// The values of the keys that a request has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context(BTreeMap<Key, Vec<String>>);

impl Context {
    #[must_use]
    pub fn with(mut self, key: Key, values: impl IntoIterator<Item: Into<String>>) -> Self {
        self.0.insert(key, values.into_iter().map(Into::into).collect());
        self
    }

    /// Empty if the request has no such key.
    pub fn values(&self, key: Key) -> &[String] {
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }
}
