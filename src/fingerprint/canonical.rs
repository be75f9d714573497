//! The canonical form of a JSON body: the one rule for what counts as the same JSON (R3, T25).
//!
//! 1. The form is that of RFC 8785 (JCS): members sorted by the UTF-16 code units of their names, no white space,
//!    strings escaped in one way.
//! 2. Numbers are the same exactly when their decimal values are. JCS reads numbers as doubles, so that
//!    9007199254740993 and 9007199254740992 become one; here a number keeps the form that JCS gives it only where that
//!    form has its exact value (`1`, `1.0` and `10e-1` are `1`). Any other is written exactly: digits without leading
//!    or trailing zeros, `e`, exponent. Read as a decimal, either form has the number's own value, so no two numbers
//!    that differ share one.
//! 3. What is not I-JSON (RFC 7493) has no canonical form, and counts as the bytes it is: bad syntax, duplicate member
//!    names, lone surrogates, nesting deeper than [`DEEPEST`], a byte order mark, an exponent beyond 64 bits.
//! 4. What a left-out pointer points to does not count. Pointers speak of the document as it came; one that leads
//!    nowhere leaves nothing out.

use json_event_parser::{JsonEvent, SliceJsonParser};

/// How deep a body may nest: what `serde_json`, and so most handlers, read.
const DEEPEST: usize = 128;

/// An RFC 6901 JSON Pointer to what does not count for the fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer {
    text: String,
    tokens: Vec<String>,
}

/// Why a text is no pointer that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonPointerError {
    /// The empty pointer is the whole document.
    #[error("the empty pointer would leave out the whole body")]
    Whole,
    /// Pointers begin with a slash.
    #[error("a JSON Pointer begins with `/`")]
    NoSlash,
    /// A tilde stands for itself as `~0` only.
    #[error("in a JSON Pointer `~` is followed by 0 or 1")]
    Tilde,
}

impl JsonPointer {
    /// Parses a pointer such as `/meta/traceId`.
    pub fn parse(text: &str) -> Result<Self, JsonPointerError> {
        if text.is_empty() {
            return Err(JsonPointerError::Whole);
        }
        let tokens = text.strip_prefix('/').ok_or(JsonPointerError::NoSlash)?.split('/');
        let tokens: Option<Vec<_>> = tokens.map(unescape).collect();
        Ok(Self { text: text.to_owned(), tokens: tokens.ok_or(JsonPointerError::Tilde)? })
    }

    /// The pointer as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn unescape(token: &str) -> Option<String> {
    let mut parts = token.split('~');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push(match part.chars().next()? {
            '0' => '~',
            '1' => '/',
            _ => return None,
        });
        text.push_str(&part[1..]);
    }
    Some(text)
}

/// The canonical form of a JSON body; `None` where it is not I-JSON.
pub(super) fn canonical_json(body: &[u8], left_out: &[JsonPointer]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok().filter(|text| !text.starts_with('\u{feff}'))?;
    let mut document = parse(text)?;
    for pointer in left_out {
        if let Some(node) = find(&mut document, &pointer.tokens) {
            *node = Node::LeftOut;
        }
    }
    let mut canonical = Vec::with_capacity(body.len());
    write(&document, &mut canonical)?;
    Some(canonical)
}

enum Node {
    /// A string, number, boolean or null in its canonical form.
    Scalar(String),
    Array(Vec<Node>),
    /// Sorted, names unescaped.
    Object(Vec<(String, Node)>),
    /// Keeps its place, so that pointers to later elements of an array still mean them.
    LeftOut,
}

/// An array or object that is still open.
enum Open {
    Array(Vec<Node>),
    Object { members: Vec<(String, Node)>, name: Option<String> },
}

/// Builds the tree with a stack of its own, because how deep it goes is for the sender to say.
fn parse(text: &str) -> Option<Node> {
    let mut parser = SliceJsonParser::new(text.as_bytes());
    let mut open: Vec<Open> = Vec::new();
    let mut document = None;
    loop {
        let node = match parser.parse_next().ok()? {
            JsonEvent::Eof => return document,
            JsonEvent::StartArray | JsonEvent::StartObject if open.len() == DEEPEST => return None,
            JsonEvent::StartArray => {
                open.push(Open::Array(Vec::new()));
                continue;
            }
            JsonEvent::StartObject => {
                open.push(Open::Object { members: Vec::new(), name: None });
                continue;
            }
            JsonEvent::ObjectKey(key) => {
                let Some(Open::Object { name, .. }) = open.last_mut() else { return None };
                *name = Some(key.into_owned());
                continue;
            }
            JsonEvent::EndArray | JsonEvent::EndObject => match open.pop()? {
                Open::Array(elements) => Node::Array(elements),
                Open::Object { members, .. } => Node::Object(sorted(members)?),
            },
            JsonEvent::String(text) => Node::Scalar(string(&text)?),
            JsonEvent::Number(literal) => Node::Scalar(number(&literal)?),
            JsonEvent::Boolean(value) => Node::Scalar(value.to_string()),
            JsonEvent::Null => Node::Scalar("null".to_owned()),
        };
        match open.last_mut() {
            None => document = Some(node),
            Some(Open::Array(elements)) => elements.push(node),
            Some(Open::Object { members, name }) => members.push((name.take()?, node)),
        }
    }
}

/// The members in JCS's order; `None` where two have one name.
fn sorted(mut members: Vec<(String, Node)>) -> Option<Vec<(String, Node)>> {
    members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    let unique = members.windows(2).all(|pair| pair[0].0 != pair[1].0);
    unique.then_some(members)
}

fn find<'a>(mut node: &'a mut Node, tokens: &[String]) -> Option<&'a mut Node> {
    for token in tokens {
        node = match node {
            Node::Object(members) => &mut members.iter_mut().find(|(name, _)| name == token)?.1,
            Node::Array(elements) => {
                // RFC 6901: no leading zeros, and no sign.
                let plain = token == "0" || token.starts_with(|c: char| matches!(c, '1'..='9'));
                elements.get_mut(token.parse::<usize>().ok().filter(|_| plain)?)?
            }
            Node::Scalar(_) | Node::LeftOut => return None,
        };
    }
    Some(node)
}

/// Recursion is bounded by [`DEEPEST`].
fn write(node: &Node, to: &mut Vec<u8>) -> Option<()> {
    match node {
        Node::LeftOut => {}
        Node::Scalar(text) => to.extend_from_slice(text.as_bytes()),
        Node::Array(elements) => {
            to.push(b'[');
            for (index, element) in elements.iter().filter(|node| !matches!(node, Node::LeftOut)).enumerate()
            {
                if index > 0 {
                    to.push(b',');
                }
                write(element, to)?;
            }
            to.push(b']');
        }
        Node::Object(members) => {
            to.push(b'{');
            let members = members.iter().filter(|(_, node)| !matches!(node, Node::LeftOut));
            for (index, (name, member)) in members.enumerate() {
                if index > 0 {
                    to.push(b',');
                }
                to.extend_from_slice(string(name)?.as_bytes());
                to.push(b':');
                write(member, to)?;
            }
            to.push(b'}');
        }
    }
    Some(())
}

/// `serde_json` escapes as JCS does (RFC 8785, section 3.2.2.2): the short escapes, `\u00xx` in lower case for the other
/// control characters, and everything else as it is.
fn string(text: &str) -> Option<String> {
    serde_json::to_string(text).ok()
}

fn number(literal: &str) -> Option<String> {
    let exact = Decimal::of(literal)?;
    let nearest: f64 = literal.parse().ok()?;
    if nearest.is_finite() {
        let mut buffer = ryu_js::Buffer::new();
        let shortest = buffer.format_finite(nearest);
        if Decimal::of(shortest)? == exact {
            return Some(shortest.to_owned());
        }
    }
    Some(exact.to_string())
}

/// A number in its one normal form: no zeros at either end of its digits; zero has none at all.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// The value of a literal that is well-formed JSON; `None` where the exponent does not fit.
    fn of(literal: &str) -> Option<Self> {
        let (negative, unsigned) = match literal.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, literal),
        };
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let without_end = all.trim_end_matches('0');
        let digits = without_end.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self { negative: false, digits, exponent: 0 });
        }
        let dropped = i64::try_from(all.len() - without_end.len()).ok()?;
        let exponent = exponent.parse::<i64>().ok()?;
        let exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?.checked_add(dropped)?;
        Some(Self { negative, digits, exponent })
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        write!(f, "{sign}{}e{}", self.digits, self.exponent)
    }
}

#[cfg(test)]
mod tests;
