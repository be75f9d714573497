//! The fingerprints of one request: by the current rule, and by former ones.

use std::iter;

use super::{Content, FingerprintRule, body::Unpacked, digest::Fingerprint};

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

    /// Those of a worker's claim, which is known by the id of its request: no record has them.
    pub(crate) const fn of_claim() -> Self {
        Self { current: Fingerprint::new(0, [0; 32]), former: Vec::new() }
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
            .find(|print| print.rule() == kept.rule())
            .map(|print| print == kept)
    }
}
