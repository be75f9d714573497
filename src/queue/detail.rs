//! The key in an event of EventBridge.

use serde::Serialize;

use super::{ProducerKey, acceptable};
use crate::{fingerprint::JsonPointer, json};

/// Why a value is not the `detail` of an event with a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetailError {
    /// JSON cannot carry it.
    #[error("JSON cannot carry the detail")]
    Json(#[from] json::JsonError),
    /// It is no object.
    #[error("the detail is not a JSON object")]
    NoObject,
    /// Its consumer could not tell which key counts.
    #[error("the detail has a member {} already", ProducerKey::NAME)]
    HasKey,
}

impl ProducerKey {
    /// The `detail` of an event with this key, as JSON: the members of `detail`, and [`NAME`](Self::NAME). EventBridge's own id is
    /// another one for each publication, so it is no key.
    ///
    /// ```
    /// use lambda_idempotency::queue::ProducerKey;
    /// use serde_json::json;
    ///
    /// let key = ProducerKey::parse("order-1").unwrap();
    /// let detail = key.detail(&json!({ "sku": "tea" })).unwrap();
    /// assert_eq!(detail, r#"{"idempotency-key":"order-1","sku":"tea"}"#);
    /// ```
    ///
    /// # Errors
    /// If it is not an object, has such a member already, or JSON cannot carry it.
    pub fn detail(&self, detail: &impl Serialize) -> Result<String, DetailError> {
        let json = json::to_string(detail)?;
        let members = json.trim_start().strip_prefix('{').ok_or(DetailError::NoObject)?.trim_start();
        let key = JsonPointer::parse(&format!("/{}", Self::NAME)).expect("it is a pointer");
        if !matches!(key.find(&json), Ok(None)) {
            return Err(DetailError::HasKey);
        }
        let key = serde_json::json!(self.as_str());
        let comma = if members.starts_with('}') { "" } else { "," };
        // Not read and written again, which would change numbers. A rule may send it to a queue of SQS.
        Ok(acceptable(&format!("{{\"{}\":{key}{comma}{members}", Self::NAME)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, value::RawValue};

    use super::*;

    #[test]
    fn a_detail_gets_its_key_and_stays_as_it_was() {
        let key = ProducerKey::parse("a\"\\b").unwrap();
        assert_eq!(key.detail(&json!({})).unwrap(), r#"{"idempotency-key":"a\"\\b"}"#);
        let raw =
            RawValue::from_string("{ \"n\" : 1.10, \"big\": 123456789012345678901 }".to_owned()).unwrap();
        let kept = r#"{"idempotency-key":"a\"\\b","n" : 1.10, "big": 123456789012345678901 }"#;
        assert_eq!(key.detail(&raw).unwrap(), kept);
        let sent = key.detail(&json!({ "text": "\u{FFFF}" })).unwrap();
        assert!(sent.ends_with("\"text\":\"\\uffff\"}"), "{sent}");
    }

    #[test]
    fn a_detail_that_cannot_have_a_key_is_refused() {
        let key = ProducerKey::parse("order-1").unwrap();
        for detail in [json!(null), json!([]), json!("{"), json!(1)] {
            assert!(matches!(key.detail(&detail), Err(DetailError::NoObject)), "{detail}");
        }
        let other = json!({ "idempotency-key": null });
        assert!(matches!(key.detail(&other), Err(DetailError::HasKey)));
        let twice =
            RawValue::from_string(r#"{"idempotency-key":"a","idempotency-key":"b"}"#.to_owned()).unwrap();
        assert!(matches!(key.detail(&twice), Err(DetailError::HasKey)));
        let nan = std::collections::BTreeMap::from([("rate", f64::NAN)]);
        assert!(matches!(key.detail(&nan), Err(DetailError::Json(_))));
    }
}
