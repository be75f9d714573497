//! Parses the `Idempotency-Key` header into a key, or a refusal, and reads the timestamp of the key.

use std::borrow::Cow;

use http::{Extensions, HeaderMap};
use sfv::{BareItem, Item, List, Parser};

use super::{IDEMPOTENCY_KEY, IDEMPOTENCY_TIMESTAMP};
use crate::key::{IdempotencyKey, KeyError, is_hash, refusal::KeyRefusal};

/// The key of a request that another front makes: an extension of the request, if it has no header, which cannot hold every key.
#[derive(Clone, derive_more::Debug)]
pub(crate) struct GivenKey {
    pub(crate) key: IdempotencyKey,
    /// What it is made of, for operators, if it is a hash.
    #[debug(skip)]
    pub(crate) parts: Option<String>,
}

/// How the key may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySyntax {
    /// A String item of RFC 9651, in quotes, as in the IETF draft.
    Item,
    /// The bare value, without quotes, as Stripe and most APIs take it. A value in quotes is refused: under [`Either`](Self::Either) it would be
    /// the key without them.
    Bare,
    /// A String item if the value begins with `"`, else the bare value: clients send both.
    #[default]
    Either,
}

impl KeySyntax {
    /// The one key of a request.
    pub(super) fn key(
        self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<IdempotencyKey, KeyRefusal> {
        let mut lines = headers.get_all(IDEMPOTENCY_KEY).iter();
        let Some(line) = lines.next() else {
            // A header that was added on the way is of another request.
            let given: Option<&GivenKey> = extensions.get();
            return given.map(|given| given.key.clone()).ok_or(KeyRefusal::MISSING);
        };
        if lines.next().is_some() {
            return Err(KeyRefusal::REPEATED);
        }
        let value = line.as_bytes().trim_ascii();
        let text = match (self, value.first()) {
            (_, None) => return Err(KeyRefusal::EMPTY),
            (Self::Bare, Some(b'"')) => return Err(KeyRefusal::QUOTED),
            (Self::Item, _) | (Self::Either, Some(b'"')) => Cow::Owned(item(value)?),
            (Self::Bare | Self::Either, _) => Cow::Borrowed(bare(value)?),
        };
        if is_hash(&text) {
            return Err(KeyRefusal::RESERVED);
        }
        IdempotencyKey::parse(&text).map_err(|error| match error {
            KeyError::Empty => KeyRefusal::EMPTY,
            KeyError::TooLong { limit, .. } => KeyRefusal::too_long(limit),
            _ => KeyRefusal::CHARACTER,
        })
    }
}

/// Parses a String item. It may contain spaces (RFC 9651, section 3.3.3); everything else must be visible ASCII.
fn item(value: &[u8]) -> Result<String, KeyRefusal> {
    if value.iter().any(|byte| !matches!(byte, b' '..=b'~')) {
        return Err(KeyRefusal::CHARACTER);
    }
    match Parser::new(value).parse::<Item>() {
        Ok(item) if !item.params.is_empty() => Err(KeyRefusal::PARAMETERS),
        Ok(Item { bare_item: BareItem::String(text), .. }) => Ok(text.into()),
        Ok(_) => Err(KeyRefusal::NOT_A_STRING),
        Err(_) if Parser::new(value).parse::<List>().is_ok() => Err(KeyRefusal::LIST),
        Err(_) if value.first() == Some(&b'"') => Err(KeyRefusal::MALFORMED),
        Err(_) => Err(KeyRefusal::NOT_A_STRING),
    }
}

/// Parses an opaque string. A comma is refused: API Gateway joins repeated header lines with one, so a key with a comma
/// would look like two keys.
fn bare(value: &[u8]) -> Result<&str, KeyRefusal> {
    if value.contains(&b',') {
        return Err(KeyRefusal::LIST);
    }
    match std::str::from_utf8(value) {
        Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(text),
        _ => Err(KeyRefusal::CHARACTER),
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

    fn parse(syntax: KeySyntax, lines: &[&[u8]]) -> Result<String, KeyRefusal> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(line).unwrap());
        }
        syntax.key(&headers, &Extensions::new()).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn each_syntax_takes_its_own_form_and_either_takes_both() {
        use KeySyntax::{Bare, Either, Item};
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(parse(Item, &[br#""abc-1""#]), ok("abc-1"));
        assert_eq!(parse(Item, &[br#""a \"b\" \\c""#]), ok(r#"a "b" \c"#));
        assert_eq!(parse(Item, &[b"abc-1"]), Err(KeyRefusal::NOT_A_STRING));
        assert_eq!(parse(Bare, &[b"abc-1"]), ok("abc-1"));
        // Otherwise one key would be two records, before and after a change of the syntax.
        assert_eq!(parse(Bare, &[br#""abc""#]), Err(KeyRefusal::QUOTED));
        assert_eq!(parse(Bare, &[br#"ab"c"#]), ok(r#"ab"c"#));
        assert_eq!(parse(Either, &[b"abc-1"]), parse(Either, &[br#""abc-1""#]));
    }

    // T34
    #[test]
    fn every_bad_key_is_refused_with_a_reason_of_its_own() {
        let long = format!("\"{}\"", "k".repeat(256));
        let hash = IdempotencyKey::of(&["a", "b"]).unwrap().as_str().to_owned();
        let quoted = format!("\"{hash}\"");
        let cases: &[(&[&[u8]], KeyRefusal)] = &[
            (&[], KeyRefusal::MISSING),
            (&[b"abc", b"def"], KeyRefusal::REPEATED),
            (&[br#""abc", "def""#], KeyRefusal::LIST),
            (&[b"abc, def"], KeyRefusal::LIST),
            (&[br#""abc";a=1"#], KeyRefusal::PARAMETERS),
            (&[br#""abc"#], KeyRefusal::MALFORMED),
            (&[br#""abc\d""#], KeyRefusal::MALFORMED),
            (&["schlüssel".as_bytes()], KeyRefusal::CHARACTER),
            (&[b"\"a\xffbc\""], KeyRefusal::CHARACTER),
            (&[b"a bc"], KeyRefusal::CHARACTER),
            (&[b"a\tbc"], KeyRefusal::CHARACTER),
            (&[b""], KeyRefusal::EMPTY),
            (&[br#""""#], KeyRefusal::EMPTY),
            (&[long.as_bytes()], KeyRefusal::too_long(255)),
            (&[&long.as_bytes()[1..257]], KeyRefusal::too_long(255)),
            (&[hash.as_bytes()], KeyRefusal::RESERVED),
            (&[quoted.as_bytes()], KeyRefusal::RESERVED),
        ];
        let mut reasons = std::collections::HashSet::new();
        for (lines, error) in cases {
            assert_eq!(parse(KeySyntax::Either, lines), Err(error.clone()), "{lines:?}");
            reasons.insert(error.reason);
        }
        assert_eq!(reasons.len(), 9);
        assert!(
            parse(KeySyntax::Either, &[&hash.as_bytes()[..49]]).is_ok(),
            "only the whole form is reserved"
        );
    }
}
