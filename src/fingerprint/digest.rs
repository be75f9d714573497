//! Fingerprints: the one that a record keeps, and those of a request that is compared with it.

use std::{fmt, iter};

use super::{Content, FingerprintRule, body::Unpacked};

/// SHA-256 over operation and request, with the rule that made it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    rule: u32,
    digest: [u8; 32],
}

impl Fingerprint {
    /// The fingerprint that a store has kept.
    pub const fn new(rule: u32, digest: [u8; 32]) -> Self {
        Self { rule, digest }
    }

    /// The [`FingerprintRule::id`] that made it. Digests of different rules do not compare.
    pub const fn rule(&self) -> u32 {
        self.rule
    }

    /// The digest.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:08x}, {:02x}{:02x}…)", self.rule, self.digest[0], self.digest[1])
    }
}

/// A request's fingerprint by the current rule, and by the rules that older records may have.
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
        iter::once(&self.current)
            .chain(&self.former)
            .find(|print| print.rule == kept.rule)
            .map(|print| print == kept)
    }
}
