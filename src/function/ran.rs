//! What a call of a guarded function returned.

use crate::{operation::How, time::Timestamp};

/// What [`Guard::run`](super::Guard::run) returned, and how it came by that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ran<T> {
    /// What the function returned, as it is read from its kept JSON.
    pub value: T,
    /// Whether the function ran for this call.
    pub how: How,
    /// Until when each call with this key returns the same; `None` if the result is not in its record yet, such as when it is deferred.
    pub expires_at: Option<Timestamp>,
}

impl<T> Ran<T> {
    /// The same about another value, such as what a caller is sent.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Ran<U> {
        Ran { value: f(self.value), how: self.how, expires_at: self.expires_at }
    }
}
