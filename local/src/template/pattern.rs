//! Event patterns: which events a rule sends, and which records of a stream a mapping delivers.
//!
//! Source: AWS, "Amazon EventBridge event patterns", of which templates here use a part.

use serde_json::Value;

/// Whether the event has what the pattern asks for. A list in the pattern means any of it.
pub fn matches(pattern: &Value, event: Option<&Value>) -> bool {
    match pattern {
        Value::Object(members) => {
            members.iter().all(|(name, pattern)| matches(pattern, event.and_then(|event| event.get(name))))
        }
        Value::Array(any) => any.iter().any(|one| is_met(one, event)),
        _ => false,
    }
}

fn is_met(one: &Value, value: Option<&Value>) -> bool {
    if let Some(exists) = one.get("exists") {
        return Some(value.is_some()) == exists.as_bool();
    }
    let Some(value) = value else { return false };
    if let Value::Array(values) = value {
        return values.iter().any(|value| is_met(one, Some(value)));
    }
    if let Some(others) = one.get("anything-but") {
        return match others {
            Value::Array(others) => !others.contains(value),
            other => other != value,
        };
    }
    if let Some(Value::String(prefix)) = one.get("prefix") {
        return value.as_str().is_some_and(|value| value.starts_with(&**prefix));
    }
    one == value
}

/// # Errors
/// If the pattern has a part that [`matches`] does not know.
pub fn check(pattern: &Value) -> Result<(), String> {
    match pattern {
        Value::Object(members) => members.values().try_for_each(check),
        Value::Array(any) => any.iter().try_for_each(|one| match one {
            Value::Object(filter) => {
                let only = filter.iter().next().filter(|_| filter.len() == 1);
                let is_known = only.is_some_and(|(name, argument)| match (name.as_str(), argument) {
                    ("exists", Value::Bool(_)) | ("prefix", Value::String(_)) => true,
                    ("anything-but", Value::Array(others)) => others.iter().all(is_scalar),
                    ("anything-but", other) => is_scalar(other),
                    _ => false,
                });
                let unknown = || format!("the local cloud does not know the filter {one}");
                is_known.then_some(()).ok_or_else(unknown)
            }
            _ => Ok(()),
        }),
        other => Err(format!("a pattern has lists, not {other}")),
    }
}

fn is_scalar(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_matches_if_each_member_of_the_pattern_does() {
        let event = json!({ "source": "shop", "tags": ["a", "b"], "detail": { "state": "open" } });
        for (pattern, expected) in [
            (json!({}), true),
            (json!({ "source": ["other", "shop"] }), true),
            (json!({ "source": ["other"] }), false),
            (json!({ "source": ["shop"], "detail": { "state": ["closed"] } }), false),
            (json!({ "tags": ["b"] }), true),
            (json!({ "detail": { "state": [{ "prefix": "op" }] } }), true),
            (json!({ "detail": { "state": [{ "anything-but": ["open", "closed"] }] } }), false),
            (json!({ "detail": { "state": [{ "anything-but": "closed" }] } }), true),
            (json!({ "detail": { "missing": [{ "anything-but": "closed" }] } }), false),
            (json!({ "detail": { "missing": [{ "exists": false }] } }), true),
            (json!({ "missing": { "state": [{ "exists": false }] } }), true),
            (json!({ "detail": { "state": [{ "exists": true }] } }), true),
        ] {
            assert_eq!(matches(&pattern, Some(&event)), expected, "{pattern}");
            assert_eq!(check(&pattern), Ok(()));
        }
        for unknown in [
            json!({ "a": "b" }),
            json!({ "a": [{ "numeric": [">", 1] }] }),
            json!({ "a": [{ "exists": "true" }] }),
            json!({ "a": [{ "prefix": { "equals-ignore-case": "b" } }] }),
            json!({ "a": [{ "anything-but": { "prefix": "b" } }] }),
            json!({ "a": [{ "prefix": "b", "exists": true }] }),
        ] {
            assert!(check(&unknown).is_err(), "{unknown}");
        }
    }
}
