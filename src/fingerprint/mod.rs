//! The fingerprint of a request: it tells a retry from another request under the same key.
//!
//! 1. A fingerprint covers the operation, the method, the path and query, the media type with its parameters, the conditional
//!    headers, the headers that the rule declares, and the body: see [`Content`]. A [custom rule](FingerprintRule::custom)
//!    replaces all but the operation.
//! 2. A body is hashed by its meaning: JSON in its canonical form, a form by its fields, multipart without its boundary, gzip
//!    by its unpacked body. Every other body is hashed by its bytes and content coding. A parameter that the body's form makes
//!    redundant does not count: the `charset` of JSON, and the `boundary` of multipart.
//! 3. A record keeps the number of the rule that made its fingerprint. A retry is compared by that rule, be it the current
//!    one or a former one.
//! 4. If no known rule has that number, the two cannot be compared: that is an error, not a mismatch.
//!
//! It does not look at other headers, `Authorization` among them: the tenant is part of the key.

mod body;
mod canonical;
mod content;
mod digest;
mod form;
mod media_type;
mod multipart;
mod rule;

pub use content::Content;
pub(crate) use content::is_header_name;
#[doc(hidden)]
pub use digest::Fingerprint;
pub use rule::FingerprintRule;

use body::Unpacked;

/// A request's fingerprint by the current rule, and by the rules that older records may have.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprints {
    current: Fingerprint,
    former: Vec<Fingerprint>,
}

impl Fingerprints {
    /// Takes the fingerprints of `content` by `rule` and by each of the `former` rules (T36).
    pub fn of(
        operation: &str,
        content: &Content<'_>,
        rule: &FingerprintRule,
        former: &[FingerprintRule],
    ) -> Self {
        let body = Unpacked::of(content);
        let by = |rule: &FingerprintRule| rule.fingerprint(operation, content, &body);
        Self { current: by(rule), former: former.iter().map(by).collect() }
    }

    /// The fingerprint for a new record.
    pub fn current(&self) -> Fingerprint {
        self.current
    }

    /// Whether this request is the one of `kept`, compared by the rule that made `kept`. `None` if that rule is not known
    /// here, for example while a deployment with a new rule rolls out.
    pub fn matches(&self, kept: &Fingerprint) -> Option<bool> {
        std::iter::once(&self.current)
            .chain(&self.former)
            .find(|print| print.rule == kept.rule)
            .map(|print| print == kept)
    }
}

#[cfg(test)]
mod tests;
