//! The fingerprint that a record keeps.

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

    /// The [`FingerprintRule::id`](super::FingerprintRule::id) that made it. Digests of different rules do not compare.
    pub const fn rule(&self) -> u32 {
        self.rule
    }

    /// The digest.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}
