//! The fingerprint of a request: what tells a retry from another request under the same key.

mod canonical;

use std::fmt;

use sha2::{Digest, Sha256};

use canonical::JsonPointer;

/// The version of the canonical form below. A change to it, or to `canonical`, needs a new number here, and the old
/// one kept for as long as records of it can live.
const FORM: u8 = 1;

/// SHA-256 over operation and request, with the rule that made it.
#[doc(hidden)]
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

/// How requests become fingerprints: which members of a JSON body are not the caller's intent.
///
/// JSON bodies count by what they say (RFC 8785, with numbers compared by their exact decimal value), everything else
/// by its bytes. Members like client timestamps and trace ids can be left out.
///
/// ```
/// use lambda_idempotency::fingerprint::FingerprintRule;
///
/// let rule = FingerprintRule::new().leave_out("/clientTime").leave_out("/meta/traceId");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FingerprintRule {
    left_out: Vec<JsonPointer>,
}

impl FingerprintRule {
    /// Everything in the body counts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves out what stands at `pointer`, an RFC 6901 JSON Pointer.
    ///
    /// # Panics
    /// If `pointer` is invalid: a mistake in the program, found at start-up.
    #[must_use]
    pub fn leave_out(mut self, pointer: &str) -> Self {
        match JsonPointer::parse(pointer) {
            Ok(pointer) => self.left_out.push(pointer),
            Err(error) => panic!("leave_out({pointer:?}): {error}"),
        }
        self
    }

    /// The rule's own number, kept in each record: derived from what the rule says, so that it cannot be forgotten
    /// when the rule changes.
    pub fn id(&self) -> u32 {
        let mut hash = Sha256::new_with_prefix([FORM]);
        let mut pointers: Vec<_> = self.left_out.iter().map(JsonPointer::as_str).collect();
        pointers.sort_unstable();
        for pointer in pointers {
            hash.update((pointer.len() as u64).to_be_bytes());
            hash.update(pointer);
        }
        let digest = hash.finalize();
        u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
    }

    /// The fingerprint of `content` sent to `operation`.
    pub fn fingerprint(&self, operation: &str, content: &Content<'_>) -> Fingerprint {
        let canonical = match content.json {
            true => canonical::canonical_json(content.body, &self.left_out),
            false => None,
        };
        let (form, body) = match &canonical {
            Some(canonical) => (b'j', canonical.as_slice()),
            None => (b'b', content.body),
        };
        let mut hash = Sha256::new_with_prefix([FORM, form]);
        for part in [operation.as_bytes(), content.target.as_bytes(), body] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Fingerprint { rule: self.id(), digest: hash.finalize().into() }
    }
}

/// What a request asks, as far as it counts for the fingerprint.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Content<'a> {
    /// What is addressed beside the body: for HTTP method, path and query.
    pub target: &'a str,
    /// Whether the body says that it is JSON. One that says so and is not counts by its bytes.
    pub json: bool,
    /// The body as it came.
    pub body: &'a [u8],
}

/// A request's fingerprint by the rule of today, and by the rules that older records may have.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprints {
    current: Fingerprint,
    former: Vec<Fingerprint>,
}

impl Fingerprints {
    /// Takes the fingerprints of `content` by `rule` and by each of the `former` rules.
    pub fn of(
        operation: &str,
        content: &Content<'_>,
        rule: &FingerprintRule,
        former: &[FingerprintRule],
    ) -> Self {
        Self {
            current: rule.fingerprint(operation, content),
            former: former.iter().map(|rule| rule.fingerprint(operation, content)).collect(),
        }
    }

    /// The fingerprint for a new record.
    pub fn current(&self) -> Fingerprint {
        self.current
    }

    /// Whether this request is the one of `kept`, compared by the rule that made `kept`; `None` where that rule is not
    /// known here, as while a deployment with a new rule rolls out.
    pub fn matches(&self, kept: &Fingerprint) -> Option<bool> {
        std::iter::once(&self.current)
            .chain(&self.former)
            .find(|print| print.rule == kept.rule)
            .map(|print| print == kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(rule: &FingerprintRule, json: bool, body: &str) -> Fingerprint {
        rule.fingerprint("pay", &Content { target: "POST /payments", json, body: body.as_bytes() })
    }

    // R3
    #[test]
    fn json_counts_by_what_it_says_and_the_rest_by_its_bytes() {
        let rule = FingerprintRule::new();
        assert_eq!(print(&rule, true, r#"{"a":1,"b":2}"#), print(&rule, true, r#"{ "b": 2.0, "a": 1 }"#));
        assert_ne!(print(&rule, false, r#"{"a":1,"b":2}"#), print(&rule, false, r#"{ "b": 2, "a": 1 }"#));
    }

    // R3, T25
    #[test]
    fn a_body_that_claims_json_and_is_not_counts_by_its_bytes() {
        let rule = FingerprintRule::new();
        assert_eq!(print(&rule, true, "{nonsense"), print(&rule, true, "{nonsense"));
        assert_ne!(print(&rule, true, "{nonsense"), print(&rule, true, "{nonsense "));
    }

    // T25
    #[test]
    fn a_text_that_equals_the_canonical_form_of_a_json_body_does_not_match_it() {
        let rule = FingerprintRule::new();
        assert_ne!(print(&rule, true, "{}"), print(&rule, false, "{}"));
    }

    // R3
    #[test]
    fn operation_and_target_count() {
        let rule = FingerprintRule::new();
        let content = Content { target: "POST /payments/1/capture", json: true, body: b"{}" };
        let other = Content { target: "POST /payments/2/capture", ..content };
        assert_ne!(rule.fingerprint("capture", &content), rule.fingerprint("capture", &other));
        assert_ne!(rule.fingerprint("capture", &content), rule.fingerprint("refund", &content));
    }

    // R3
    #[test]
    fn members_that_are_left_out_do_not_count() {
        let rule = FingerprintRule::new().leave_out("/sentAt");
        assert_eq!(print(&rule, true, r#"{"a":1,"sentAt":1}"#), print(&rule, true, r#"{"a":1,"sentAt":2}"#));
        assert_ne!(print(&rule, true, r#"{"a":1}"#), print(&rule, true, r#"{"a":2}"#));
    }

    // T36
    #[test]
    fn a_request_is_compared_by_the_rule_that_the_record_has() {
        let old = FingerprintRule::new();
        let new = FingerprintRule::new().leave_out("/sentAt");
        let content = Content { target: "", json: true, body: br#"{"a":1,"sentAt":1}"# };
        let other = Content { body: br#"{"a":1,"sentAt":2}"#, ..content };
        let kept = old.fingerprint("pay", &content);

        let migrating = |content| Fingerprints::of("pay", content, &new, std::slice::from_ref(&old));
        assert_eq!(migrating(&content).matches(&kept), Some(true));
        assert_eq!(migrating(&other).matches(&kept), Some(false));
        assert_eq!(Fingerprints::of("pay", &content, &new, &[]).matches(&kept), None);
    }
}
