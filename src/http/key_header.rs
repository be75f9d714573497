//! Reads a header with a key, and the timestamp of the key.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Item, List, Parser};

use super::{IDEMPOTENCY_TIMESTAMP, key_fault::Fault};

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
    /// The text of the one header of this name; `None` if there is none.
    pub(super) fn text<'a>(
        self,
        headers: &'a HeaderMap,
        name: &HeaderName,
    ) -> Result<Option<Cow<'a, str>>, Fault> {
        let mut lines = headers.get_all(name).iter();
        let Some(line) = lines.next() else { return Ok(None) };
        if lines.next().is_some() {
            return Err(Fault::REPEATED);
        }
        let value = line.as_bytes().trim_ascii();
        Ok(Some(match (self, value.first()) {
            (_, None) => return Err(Fault::EMPTY),
            (Self::Bare, Some(b'"')) => return Err(Fault::QUOTED),
            (Self::Item, _) | (Self::Either, Some(b'"')) => Cow::Owned(item(value)?),
            (Self::Bare | Self::Either, _) => Cow::Borrowed(bare(value)?),
        }))
    }
}

/// Parses a String item. It may contain spaces (RFC 9651, section 3.3.3); everything else must be visible ASCII.
fn item(value: &[u8]) -> Result<String, Fault> {
    if value.iter().any(|byte| !matches!(byte, b' '..=b'~')) {
        return Err(Fault::CHARACTER);
    }
    match Parser::new(value).parse::<Item>() {
        Ok(item) if !item.params.is_empty() => Err(Fault::PARAMETERS),
        Ok(Item { bare_item: BareItem::String(text), .. }) => Ok(text.into()),
        Ok(_) => Err(Fault::NOT_A_STRING),
        Err(_) if Parser::new(value).parse::<List>().is_ok() => Err(Fault::LIST),
        Err(_) if value.first() == Some(&b'"') => Err(Fault::MALFORMED),
        Err(_) => Err(Fault::NOT_A_STRING),
    }
}

/// Parses an opaque string. A comma is refused: API Gateway joins repeated header lines with one, so a key with a comma
/// would look like two keys.
fn bare(value: &[u8]) -> Result<&str, Fault> {
    if value.contains(&b',') {
        return Err(Fault::LIST);
    }
    match std::str::from_utf8(value) {
        Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(text),
        _ => Err(Fault::CHARACTER),
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
    use crate::{
        http::{IDEMPOTENCY_KEY, key_fault::valid},
        key::IdempotencyKey,
    };

    fn parse(syntax: KeySyntax, lines: &[&[u8]]) -> Result<String, Fault> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(line).unwrap());
        }
        let text = syntax.text(&headers, &IDEMPOTENCY_KEY)?.ok_or(Fault::MISSING)?;
        valid(&text).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn each_syntax_takes_its_own_form_and_either_takes_both() {
        use KeySyntax::{Bare, Either, Item};
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(parse(Item, &[br#""abc-1""#]), ok("abc-1"));
        assert_eq!(parse(Item, &[br#""a \"b\" \\c""#]), ok(r#"a "b" \c"#));
        assert_eq!(parse(Item, &[b"abc-1"]), Err(Fault::NOT_A_STRING));
        assert_eq!(parse(Bare, &[b"abc-1"]), ok("abc-1"));
        // Otherwise one key would be two records, before and after a change of the syntax.
        assert_eq!(parse(Bare, &[br#""abc""#]), Err(Fault::QUOTED));
        assert_eq!(parse(Bare, &[br#"ab"c"#]), ok(r#"ab"c"#));
        assert_eq!(parse(Either, &[b"abc-1"]), parse(Either, &[br#""abc-1""#]));
    }

    // T34
    #[test]
    fn every_bad_key_is_refused_with_a_reason_of_its_own() {
        let long = format!("\"{}\"", "k".repeat(256));
        let hash = IdempotencyKey::of(&["a", "b"]).unwrap().as_str().to_owned();
        let quoted = format!("\"{hash}\"");
        let cases: &[(&[&[u8]], Fault)] = &[
            (&[], Fault::MISSING),
            (&[b"abc", b"def"], Fault::REPEATED),
            (&[br#""abc", "def""#], Fault::LIST),
            (&[b"abc, def"], Fault::LIST),
            (&[br#""abc";a=1"#], Fault::PARAMETERS),
            (&[br#""abc"#], Fault::MALFORMED),
            (&[br#""abc\d""#], Fault::MALFORMED),
            (&["schlüssel".as_bytes()], Fault::CHARACTER),
            (&[b"\"a\xffbc\""], Fault::CHARACTER),
            (&[b"a bc"], Fault::CHARACTER),
            (&[b"a\tbc"], Fault::CHARACTER),
            (&[b""], Fault::EMPTY),
            (&[br#""""#], Fault::EMPTY),
            (&[long.as_bytes()], Fault::TOO_LONG),
            (&[&long.as_bytes()[1..257]], Fault::TOO_LONG),
            (&[hash.as_bytes()], Fault::RESERVED),
            (&[quoted.as_bytes()], Fault::RESERVED),
        ];
        let mut reasons = std::collections::HashSet::new();
        for (lines, error) in cases {
            assert_eq!(parse(KeySyntax::Either, lines), Err(*error), "{lines:?}");
            reasons.insert(error.reason);
        }
        assert_eq!(reasons.len(), 9);
        assert!(
            parse(KeySyntax::Either, &[&hash.as_bytes()[..49]]).is_ok(),
            "only the whole form is reserved"
        );
    }
}
