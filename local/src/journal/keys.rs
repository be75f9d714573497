//! The records that an event names.

use lambda_idempotency::key::RecordKey;
use serde_json::Value;
use std::collections::BTreeSet;

/// The members with partition keys: of items, and of messages.
const NAMES: [&str; 2] = ["pk", "key"];
/// How deep JSON may be in the text of other JSON.
const MAX_DEPTH: u8 = 16;

/// The partition keys of records in this event: in a stream's images, and in the bodies of this project's messages.
pub fn records(event: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    find(event, 0, &mut found);
    found
}

fn find(value: &Value, depth: u8, found: &mut BTreeSet<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(members) => {
            for name in NAMES {
                let named = members.get(name).and_then(|pk| pk.as_str().or_else(|| pk.get("S")?.as_str()));
                found.extend(
                    named.filter(|pk| RecordKey::from_partition_key(pk).is_some()).map(str::to_owned),
                );
            }
            members.values().for_each(|value| find(value, depth + 1, found));
        }
        Value::Array(values) => values.iter().for_each(|value| find(value, depth + 1, found)),
        Value::String(text) if text.starts_with('{') => {
            if let Ok(inner) = serde_json::from_str(text) {
                find(&inner, depth + 1, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_names_the_records_of_its_images_and_messages() {
        let body = json!({ "version": 1, "kind": "check", "key": "acme#pay#k-2" }).to_string();
        let event = json!({ "Records": [
            { "dynamodb": { "Keys": { "pk": { "S": "acme#pay#k-1" }, "sk": { "S": "record" } } } },
            { "body": body },
            { "body": "{\"pk\":" },
            { "pk": "not a record's", "key": 1 },
        ] });
        assert_eq!(records(&event), BTreeSet::from(["acme#pay#k-1".to_owned(), "acme#pay#k-2".to_owned()]));
    }
}
