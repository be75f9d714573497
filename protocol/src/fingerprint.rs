//! What tells a retry from another request. The library makes fingerprints; here they are compared.

use std::iter;

/// SHA-256 over operation and request, with the rule that made it.
#[derive(Clone, Copy, PartialEq, Eq, derive_more::Debug)]
#[debug("Fingerprint({rule:08x}, {:02x}{:02x}…)", digest[0], digest[1])]
pub struct Fingerprint {
    rule: u32,
    digest: [u8; 32],
}

impl Fingerprint {
    /// The fingerprint that a store has kept.
    pub const fn new(rule: u32, digest: [u8; 32]) -> Self {
        Self { rule, digest }
    }

    /// The id of the rule that made it. Digests of different rules do not compare.
    pub const fn rule(&self) -> u32 {
        self.rule
    }

    /// The digest.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

/// A request's fingerprint by the current rule, and by the rules that older records may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprints {
    current: Fingerprint,
    former: Vec<Fingerprint>,
}

impl Fingerprints {
    /// The fingerprints of one request, by the current rule and by `former` ones.
    pub const fn new(current: Fingerprint, former: Vec<Fingerprint>) -> Self {
        Self { current, former }
    }

    /// Those of a worker's claim, which is known by the id of its request: no record has them.
    pub const fn of_claim() -> Self {
        Self::new(Fingerprint::new(0, [0; 32]), Vec::new())
    }

    /// The fingerprint for a new record.
    pub const fn current(&self) -> Fingerprint {
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
