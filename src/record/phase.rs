//! Results of phases, as JSON.

use super::{Phase, PhaseResult};
use crate::{fingerprint::canonical_json, time::Timestamp};

/// The result of a phase, which is JSON, or a digest that a settled record has left of it. The members of an object have no order, and
/// numbers count by their exact value.
pub(crate) fn phase_result(text: String) -> PhaseResult {
    if text.starts_with(PhaseResult::DIGEST) {
        return PhaseResult::digested(text);
    }
    let canonical = canonical_json(text.as_bytes(), &[]);
    let canonical = canonical.as_deref().map_or(text.as_str().into(), String::from_utf8_lossy).into_owned();
    PhaseResult::new(text, &canonical)
}

/// A phase of this result. A result that is too long is left out when the record takes it.
pub(crate) fn phase_of(name: String, result: Option<String>, at: Timestamp) -> Phase {
    Phase::new(name, result.map(phase_result), at)
}

#[cfg(test)]
mod tests {
    use super::*;

    // T46, T71: whatever a parser makes of numbers, or of the order of members.
    #[test]
    fn results_differ_by_their_exact_value() {
        let digest = |json: &str| {
            phase_of("charge".to_owned(), Some(json.to_owned()), Timestamp::MAX).digest().map(str::to_owned)
        };
        for (same, as_this) in
            [(r#"{"a":1,"b":[0.5]}"#, r#"{ "b": [5e-1], "a": 1.0 }"#), ("not JSON", "not JSON")]
        {
            assert_eq!(digest(same), digest(as_this), "{same}");
        }
        for (one, other) in [
            ("36893488147419103233", "36893488147419103234"),
            ("0.1", "0.10000000000000000001"),
            ("[1,2]", "[2,1]"),
            ("null", "\"null\""),
        ] {
            assert_ne!(digest(one), digest(other), "{one}");
        }
        // What is left of a settled record's is compared with it.
        let left = digest("7").unwrap();
        assert_eq!(digest(&left), digest("7.0"));
    }
}
