//! The answer of a function that names what failed.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The places of the failed items. An empty answer, no list and an empty one are success. Any other answer, and an id from outside the batch,
/// fail the whole batch. `pollers/src/batch.rs` decides the same.
pub fn failed_items(answer: &[u8], ids: &[&str]) -> Result<BTreeSet<usize>, String> {
    if answer.is_empty() {
        return Ok(BTreeSet::new());
    }
    let answer: Option<Map<String, Value>> = serde_json::from_slice(answer)
        .map_err(|error| format!("the answer is no object with batchItemFailures: {error}"))?;
    let items = match answer.unwrap_or_default().remove("batchItemFailures") {
        None | Some(Value::Null) => return Ok(BTreeSet::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err("batchItemFailures is no list".to_owned()),
    };
    let place = |item: Value| {
        let id = &item["itemIdentifier"];
        ids.iter()
            .position(|known| id == known)
            .ok_or_else(|| format!("the answer names an item that is not in the batch: {id}"))
    };
    items.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_what_failed_or_fails_the_whole_batch() {
        let failed = |answer: &str| failed_items(answer.as_bytes(), &["a", "b"]).ok();
        // As in pollers/tests/batch.rs.
        for success in ["", "null", "{}", r#"{"batchItemFailures":null}"#, r#"{"batchItemFailures":[]}"#] {
            assert_eq!(failed(success), Some(BTreeSet::new()), "{success}");
        }
        for wrong in [r#""done""#, "[]", "1", "done", "{", r#"{"batchItemFailures":{}}"#] {
            assert_eq!(failed(wrong), None, "{wrong}");
        }
        for (item, place) in [(r#""b""#, Some(1)), (r#""c""#, None), (r#""""#, None), ("null", None)] {
            let answer = format!(r#"{{"batchItemFailures":[{{"itemIdentifier":{item}}}]}}"#);
            assert_eq!(failed(&answer), place.map(|place| BTreeSet::from([place])), "{item}");
        }
    }
}
