//! Parses the `Idempotency-Key` header into a key or the reason why it is invalid, and reads the timestamp beside it.

use std::borrow::Cow;

use http::HeaderMap;
use sfv::{BareItem, Item, List, Parser};

use super::{IDEMPOTENCY_KEY, IDEMPOTENCY_TIMESTAMP};
use crate::key::{IdempotencyKey, KeyError};

/// How the key may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySyntax {
    /// A String item of RFC 9651, in quotes, as in the IETF draft.
    Item,
    /// The bare value, without quotes, as Stripe and most APIs take it.
    Bare,
    /// A String item if the value begins with `"`, else the bare value: clients send both.
    #[default]
    Either,
}

/// Why a request has no usable key, in words for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyHeaderError {
    /// The header is missing.
    #[error("The request has no Idempotency-Key header")]
    Missing,
    /// The header appears more than once.
    #[error("The request has more than one Idempotency-Key header")]
    Repeated,
    /// The value is a list, or several lines that a gateway joined.
    #[error("The Idempotency-Key is a list")]
    List,
    /// The item has parameters.
    #[error("The Idempotency-Key has parameters")]
    Parameters,
    /// The value is an item, but not a String.
    #[error("The Idempotency-Key must be a string in double quotes")]
    NotAString,
    /// The value begins like a String, but is malformed.
    #[error("The Idempotency-Key begins with a double quote and is not a well-formed string")]
    Malformed,
    /// It contains a byte that is not allowed.
    #[error("The Idempotency-Key contains a byte outside visible ASCII")]
    Character,
    /// It is empty.
    #[error("The Idempotency-Key is empty")]
    Empty,
    /// It is too long.
    #[error("The Idempotency-Key is longer than {0} characters")]
    TooLong(usize),
    /// It is shorter than the operation's minimum.
    #[error("The Idempotency-Key is shorter than {0} characters")]
    TooShort(usize),
}

impl KeyHeaderError {
    /// The reason in one stable word, for the problem document.
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Repeated => "repeated",
            Self::List => "list",
            Self::Parameters => "parameters",
            Self::NotAString => "not-a-string",
            Self::Malformed => "malformed",
            Self::Character => "character",
            Self::Empty => "empty",
            Self::TooLong(_) => "too-long",
            Self::TooShort(_) => "too-short",
        }
    }
}

impl KeySyntax {
    /// The one key of a request.
    pub(super) fn key(self, headers: &HeaderMap) -> Result<IdempotencyKey, KeyHeaderError> {
        let mut lines = headers.get_all(IDEMPOTENCY_KEY).iter();
        let line = lines.next().ok_or(KeyHeaderError::Missing)?;
        if lines.next().is_some() {
            return Err(KeyHeaderError::Repeated);
        }
        let value = line.as_bytes().trim_ascii();
        let text = match (self, value.first()) {
            (_, None) => return Err(KeyHeaderError::Empty),
            (Self::Item, _) | (Self::Either, Some(b'"')) => Cow::Owned(item(value)?),
            (Self::Bare | Self::Either, _) => Cow::Borrowed(bare(value)?),
        };
        IdempotencyKey::parse(&text).map_err(|error| match error {
            KeyError::Empty => KeyHeaderError::Empty,
            KeyError::TooLong { limit, .. } => KeyHeaderError::TooLong(limit),
            _ => KeyHeaderError::Character,
        })
    }
}

/// The error if a key is shorter than its operation's minimum.
pub(super) fn too_short(key: &IdempotencyKey, shortest: usize) -> Option<KeyHeaderError> {
    (key.as_str().chars().count() < shortest).then_some(KeyHeaderError::TooShort(shortest))
}

/// Parses a String item. It may contain spaces (RFC 9651, section 3.3.3); everything else must be visible ASCII.
fn item(value: &[u8]) -> Result<String, KeyHeaderError> {
    if value.iter().any(|byte| !matches!(byte, b' '..=b'~')) {
        return Err(KeyHeaderError::Character);
    }
    match Parser::new(value).parse::<Item>() {
        Ok(item) if !item.params.is_empty() => Err(KeyHeaderError::Parameters),
        Ok(Item { bare_item: BareItem::String(text), .. }) => Ok(text.into()),
        Ok(_) => Err(KeyHeaderError::NotAString),
        Err(_) if Parser::new(value).parse::<List>().is_ok() => Err(KeyHeaderError::List),
        Err(_) if value.first() == Some(&b'"') => Err(KeyHeaderError::Malformed),
        Err(_) => Err(KeyHeaderError::NotAString),
    }
}

/// Parses an opaque string. A comma is refused: API Gateway joins repeated header lines with one, so a key with a comma
/// would look like two keys.
fn bare(value: &[u8]) -> Result<&str, KeyHeaderError> {
    if value.contains(&b',') {
        return Err(KeyHeaderError::List);
    }
    match std::str::from_utf8(value) {
        Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(text),
        _ => Err(KeyHeaderError::Character),
    }
}

/// The one `Idempotency-Timestamp`. If there are several, or it is not text, returns an empty one, whose signature is never
/// valid.
pub(super) fn timestamp(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(IDEMPOTENCY_TIMESTAMP).iter();
    let line = lines.next()?;
    Some(line.to_str().ok().filter(|_| lines.next().is_none()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn parse(syntax: KeySyntax, lines: &[&[u8]]) -> Result<String, KeyHeaderError> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(line).unwrap());
        }
        syntax.key(&headers).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn each_syntax_takes_its_own_form_and_either_takes_both() {
        use KeySyntax::{Bare, Either, Item};
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(parse(Item, &[br#""abc-1""#]), ok("abc-1"));
        assert_eq!(parse(Item, &[br#""a \"b\" \\c""#]), ok(r#"a "b" \c"#));
        assert_eq!(parse(Item, &[b"abc-1"]), Err(KeyHeaderError::NotAString));
        assert_eq!(parse(Bare, &[b"abc-1"]), ok("abc-1"));
        assert_eq!(parse(Bare, &[br#""abc""#]), ok(r#""abc""#));
        assert_eq!(parse(Either, &[b"abc-1"]), parse(Either, &[br#""abc-1""#]));
    }

    // T34
    #[test]
    fn every_bad_key_is_refused_with_a_reason_of_its_own() {
        use KeyHeaderError as Error;
        let long = format!("\"{}\"", "k".repeat(256));
        let cases: &[(&[&[u8]], Error)] = &[
            (&[], Error::Missing),
            (&[b"abc", b"def"], Error::Repeated),
            (&[br#""abc", "def""#], Error::List),
            (&[b"abc, def"], Error::List),
            (&[br#""abc";a=1"#], Error::Parameters),
            (&[br#""abc"#], Error::Malformed),
            (&[br#""abc\d""#], Error::Malformed),
            (&["schlüssel".as_bytes()], Error::Character),
            (&[b"\"a\xffbc\""], Error::Character),
            (&[b"a bc"], Error::Character),
            (&[b"a\tbc"], Error::Character),
            (&[b""], Error::Empty),
            (&[br#""""#], Error::Empty),
            (&[long.as_bytes()], Error::TooLong(255)),
            (&[&long.as_bytes()[1..257]], Error::TooLong(255)),
        ];
        let mut reasons = std::collections::HashSet::new();
        for (lines, error) in cases {
            assert_eq!(parse(KeySyntax::Either, lines), Err(*error), "{lines:?}");
            reasons.insert(error.reason());
        }
        assert_eq!(reasons.len(), 8);
    }

    #[test]
    fn a_key_shorter_than_the_operations_minimum_is_refused() {
        let key = |text| IdempotencyKey::parse(text).unwrap();
        assert_eq!(too_short(&key("ab"), 3), Some(KeyHeaderError::TooShort(3)));
        assert_eq!(KeyHeaderError::TooShort(3).reason(), "too-short");
        assert_eq!((too_short(&key("abc"), 3), too_short(&key("a"), 1)), (None, None));
    }
}
