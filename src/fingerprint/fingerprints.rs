//! The fingerprints of one request: by the current rule, and by former ones.

use super::{Content, FingerprintRule, Fingerprints, body::Unpacked};

impl Content<'_> {
    /// The fingerprints of this request by `rule`, and by each of the `former` rules (T36).
    pub fn fingerprints(
        &self,
        operation: &str,
        rule: &FingerprintRule,
        former: &[FingerprintRule],
    ) -> Fingerprints {
        let body = Unpacked::of(self);
        let by = |rule: &FingerprintRule| rule.fingerprint(operation, self, &body);
        Fingerprints::new(by(rule), former.iter().map(by).collect())
    }
}
