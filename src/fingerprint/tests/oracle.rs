//! Which bodies are equal by the standards of their types. Written from the standards, without the code that it judges.

use std::collections::BTreeMap;

use flate2::{Crc, Decompress, FlushDecompress, Status};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A body with the two headers that say what it is.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) content_type: String,
    pub(super) coding: String,
    pub(super) body: Vec<u8>,
}

/// What a body says. Two that are equal are one by the standards.
#[derive(Debug, PartialEq)]
pub(super) enum Meaning {
    Json(Type, Json),
    Form(Type, Vec<(String, String)>),
    Parts(Type, Vec<Vec<u8>>),
    Bytes {
        content_type: String,
        coding: String,
        body: Vec<u8>,
    },
    /// With a media type, whose parameters have no order.
    Typed(Type, String, Vec<u8>),
}

/// A media type: in lower case, with the values of each parameter.
type Type = (String, BTreeMap<String, Vec<String>>);

impl Meaning {
    pub(super) fn of(sent: &Sent) -> Self {
        let mut coding = padded(&sent.coding).to_lowercase();
        let mut body = sent.body.clone();
        if let ("gzip" | "x-gzip", Some(content)) = (&*coding, gunzip(&body)) {
            (coding, body) = (String::new(), content);
        }
        let Some((essence, parameters)) = media_type(&sent.content_type) else {
            let (essence, rest) = sent.content_type.split_once(';').unwrap_or((&sent.content_type, ""));
            let content_type = format!("{};{}", padded(essence).to_lowercase(), padded(rest));
            return Self::Bytes { content_type, coding, body };
        };
        if coding.is_empty() {
            let without = |name: &str| {
                let mut parameters = parameters.clone();
                parameters.remove(name);
                (essence.clone(), parameters)
            };
            let charsets = parameters.get("charset").map_or(&[][..], |values| values);
            let is_utf_8 = charsets.iter().all(|name| ["utf-8", "utf8"].contains(&&*name.to_lowercase()));
            let boundaries = parameters.get("boundary").map_or(&[][..], |values| values);
            if is_utf_8 && (essence == "application/json" || essence.ends_with("+json")) {
                if let Some(json) = str::from_utf8(&body).ok().and_then(json) {
                    return Self::Json(without("charset"), json);
                }
            } else if is_utf_8 && essence == "application/x-www-form-urlencoded" {
                if let Some(pairs) = str::from_utf8(&body).ok().and_then(form) {
                    return Self::Form((essence, parameters), pairs);
                }
            } else if let ([boundary], true) = (boundaries, essence.starts_with("multipart/"))
                && let Some(parts) = parts(&body, boundary)
            {
                return Self::Parts(without("boundary"), parts);
            }
        }
        Self::Typed((essence, parameters), coding, body)
    }

    pub(super) fn has_a_form(&self) -> bool {
        matches!(self, Self::Json(..) | Self::Form(..) | Self::Parts(..))
    }
}

/// Without the optional white space of RFC 9110, section 5.6.3.
fn padded(text: &str) -> &str {
    text.trim_matches(|char| char == ' ' || char == '\t')
}

/// RFC 9110, sections 5.6.6 and 8.3.1, without the escapes of a quoted string.
fn media_type(text: &str) -> Option<Type> {
    let is_token = |text: &str| {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_".contains(&byte);
        !text.is_empty() && text.bytes().all(is_token)
    };
    let mut pieces = vec![String::new()];
    let mut quoted = false;
    for char in text.chars() {
        match char {
            '\\' => return None,
            ';' if !quoted => pieces.push(String::new()),
            char => {
                quoted ^= char == '"';
                pieces.last_mut()?.push(char);
            }
        }
    }
    let mut pieces = pieces.iter().map(|piece| padded(piece)).peekable();
    let (kind, subtype) = pieces.next()?.split_once('/').filter(|(a, b)| is_token(a) && is_token(b))?;
    let mut parameters = BTreeMap::<String, Vec<String>>::new();
    while let Some(piece) = pieces.next() {
        if piece.is_empty() && pieces.peek().is_none() {
            break;
        }
        let (name, value) = piece.split_once('=').filter(|(name, _)| is_token(name))?;
        let inside = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let value = match inside {
            Some(inside) if !inside.contains('"') => inside,
            _ if is_token(value) => value,
            _ => return None,
        };
        parameters.entry(name.to_lowercase()).or_default().push(value.to_owned());
    }
    Some((format!("{kind}/{subtype}").to_lowercase(), parameters))
}

/// RFC 1952: one member, and nothing behind it.
fn gunzip(body: &[u8]) -> Option<Vec<u8>> {
    let [0x1f, 0x8b, 8, flags, _, _, _, _, _, _, rest @ ..] = body else { return None };
    // The packer of the test writes no optional fields.
    if flags & 0b1_1110 != 0 {
        return None;
    }
    let mut content = Vec::with_capacity(64 * 1024);
    let mut inflate = Decompress::new(false);
    let status = inflate.decompress_vec(rest, &mut content, FlushDecompress::Finish).ok()?;
    let trailer = &rest[usize::try_from(inflate.total_in()).ok()?..];
    let mut crc = Crc::new();
    crc.update(&content);
    let expected = [crc.sum().to_le_bytes(), u32::try_from(content.len()).ok()?.to_le_bytes()].concat();
    (status == Status::StreamEnd && trailer == expected).then_some(content)
}

/// A JSON value (RFC 8259) without two members of one name (RFC 7493).
#[derive(Debug, PartialEq)]
pub(super) enum Json {
    Word(String),
    /// Whether it is negative, its digits without zeros at either end, and the power of ten behind them.
    Number(bool, String, i64),
    Text(String),
    Array(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

fn json(text: &str) -> Option<Json> {
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    let text = raw.get();
    Some(match text.as_bytes()[0] {
        b'{' => {
            let members = serde_json::Deserializer::from_str(text).deserialize_map(Members).ok()?;
            let count = members.len();
            let members = members.into_iter().map(|(name, value)| Some((name, json(value.get())?)));
            Json::Object(members.collect::<Option<BTreeMap<_, _>>>().filter(|unique| unique.len() == count)?)
        }
        b'[' => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            Json::Array(elements.into_iter().map(|element| json(element.get())).collect::<Option<_>>()?)
        }
        b'"' => Json::Text(serde_json::from_str(text).ok()?),
        b'-' | b'0'..=b'9' => number(text)?,
        _ => Json::Word(text.to_owned()),
    })
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

fn number(literal: &str) -> Option<Json> {
    let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{}{fraction}", whole.trim_start_matches('-'));
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(Json::Number(false, String::new(), 0));
    }
    let zeros = digits.len() - significant.len();
    let power =
        exponent.parse::<i64>().ok()? - i64::try_from(fraction.len()).ok()? + i64::try_from(zeros).ok()?;
    Some(Json::Number(whole.starts_with('-'), significant.to_owned(), power))
}

/// The pairs that a serializer of the URL Standard (section 5.2), or of a client, has written: sorted, if they are looked up by plain names.
fn form(body: &str) -> Option<Vec<(String, String)>> {
    let decoded = |text: &str| {
        let mut bytes = Vec::new();
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            match char {
                '+' => bytes.push(b' '),
                '%' => {
                    let (high, low) = (chars.next()?.to_digit(16)?, chars.next()?.to_digit(16)?);
                    bytes.push(u8::try_from(high * 16 + low).ok()?);
                }
                'a'..='z' | 'A'..='Z' | '0'..='9' | '*' | '-' | '.' | '_' | '~' | '!' | '\'' | '(' | ')' => {
                    bytes.push(u8::try_from(char).ok()?);
                }
                _ => return None,
            }
        }
        String::from_utf8(bytes).ok().filter(|text| !text.contains('\u{FFFD}'))
    };
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((decoded(name)?, decoded(value)?))
    };
    let mut pairs = body.split('&').map(pair).collect::<Option<Vec<_>>>()?;
    for (index, (name, _)) in pairs.iter().enumerate() {
        for (other, _) in &pairs[..index] {
            let is_plain = |name: &str| {
                !name.is_empty()
                    && name.chars().all(|char| char.is_ascii_alphanumeric() || "-_".contains(char))
            };
            if name != other
                && (name.to_lowercase() == other.to_lowercase() || !is_plain(name) || !is_plain(other))
            {
                return None;
            }
        }
    }
    pairs.sort_by_key(|(name, _)| name.clone());
    Some(pairs)
}

/// RFC 2046, section 5.1.1, without padding: the lines between delimiter lines. Preamble and epilogue are line breaks, if anything.
fn parts(body: &[u8], boundary: &str) -> Option<Vec<Vec<u8>>> {
    let is_boundary = |char: char| char.is_ascii_alphanumeric() || "'()+_,-./:=?".contains(char);
    if boundary.is_empty() || boundary.len() > 70 || !boundary.chars().all(is_boundary) {
        return None;
    }
    let delimiter = format!("--{boundary}").into_bytes();
    let close = format!("--{boundary}--").into_bytes();
    let mut lines = vec![Vec::new()];
    for byte in body {
        let line = lines.last_mut()?;
        line.push(*byte);
        if line.ends_with(b"\r\n") {
            line.truncate(line.len() - 2);
            lines.push(Vec::new());
        }
    }
    let mut parts: Vec<Vec<Vec<u8>>> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if index == 0 && line.is_empty() {
            continue;
        } else if *line == close {
            let rest = &lines[index + 1..];
            let ends = rest.iter().all(Vec::is_empty);
            let whole = parts.iter().all(|part| !part.is_empty());
            return (ends && whole).then(|| parts.iter().map(|lines| lines.join(&b"\r\n"[..])).collect());
        } else if *line == delimiter {
            parts.push(Vec::new());
        } else if line.windows(delimiter.len()).any(|window| window == delimiter) {
            return None;
        } else {
            parts.last_mut()?.push(line.clone());
        }
    }
    None
}
