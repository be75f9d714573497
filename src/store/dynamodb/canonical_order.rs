//! Makes a request the same bytes each time it is sent.

use std::{borrow::Cow, collections::BTreeMap};

use aws_sdk_dynamodb::config::http::HttpRequest;
use serde::Deserialize;
use serde_json::value::RawValue;

const CONTENT_LENGTH: &str = "content-length";

/// Sorts the members of the request's objects before the request is signed. The SDK writes them in a different order each time,
/// and DynamoDB refuses a token that is reused with other parameters (T10).
pub(super) fn canonical_order(request: &mut HttpRequest) {
    if let Some(sorted) = request.body().bytes().and_then(sorted) {
        request.headers_mut().insert(CONTENT_LENGTH, sorted.len().to_string());
        *request.body_mut() = sorted.into();
    }
}

/// A JSON document with the members of its objects in order; `None` if it is not JSON.
fn sorted(document: &[u8]) -> Option<Vec<u8>> {
    let mut sorted = Vec::with_capacity(document.len());
    write_sorted(serde_json::from_slice(document).ok()?, &mut sorted).ok()?;
    Some(sorted)
}

/// Strings and numbers are copied unparsed: a tree of values would take most of a transaction's processor time.
fn write_sorted(value: &RawValue, to: &mut Vec<u8>) -> serde_json::Result<()> {
    let text = value.get();
    if text.starts_with('{') {
        let members: BTreeMap<Name<'_>, &RawValue> = serde_json::from_str(text)?;
        to.push(b'{');
        for (place, (Name(name), member)) in members.iter().enumerate() {
            to.extend((place > 0).then_some(b','));
            serde_json::to_writer(&mut *to, name)?;
            to.push(b':');
            write_sorted(member, to)?;
        }
        to.push(b'}');
    } else if text.starts_with('[') {
        let elements: Vec<&RawValue> = serde_json::from_str(text)?;
        to.push(b'[');
        for (place, element) in elements.iter().enumerate() {
            to.extend((place > 0).then_some(b','));
            write_sorted(element, to)?;
        }
        to.push(b']');
    } else {
        to.extend_from_slice(text.as_bytes());
    }
    Ok(())
}

/// The name of a member, borrowed unless it contains escapes.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    // T10
    #[test]
    fn a_transactions_members_are_in_order_and_nothing_else_changes() {
        let document = r#"{"b":[{"z":{"N":"1.50"},"a":{"S":"\u00e9\n{"}},[],{}],"a\"":null,"a":{"M":{"y":{"BOOL":true},"x":{"L":[{"B":"//8="}]}}}}"#;
        let expected = r#"{"a":{"M":{"x":{"L":[{"B":"//8="}]},"y":{"BOOL":true}}},"a\"":null,"b":[{"a":{"S":"\u00e9\n{"},"z":{"N":"1.50"}},[],{}]}"#;
        assert_eq!(sorted(document.as_bytes()).unwrap(), expected.as_bytes());
        assert_eq!(sorted(b"{\"a\":"), None);
        let value: serde_json::Value = serde_json::from_str(document).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(expected).unwrap(), value);
    }
}
