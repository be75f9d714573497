//! The canonical form of a form body (`application/x-www-form-urlencoded`): its names and values decoded, sorted by name as
//! [`URLSearchParams.sort`](https://url.spec.whatwg.org/#dom-urlsearchparams-sort) sorts them. Values of one name keep their order.
//!
//! 1. Only what a serializer writes has fields: pairs `name=value`, joined by `&`, in the bytes of [`is_written`]. All else is compared by
//!    its bytes: JSON, base64 and prose under a form's type, and what parsers read differently (a name without `=`, an empty pair, a
//!    `%` without two hex digits).
//! 2. A form is compared by its bytes too if it does not decode to UTF-8, if it holds U+FFFD (different bytes decode to it), if a reader
//!    may use the order of its names ([`in_any_order`]), or if it has more than [`MAX_FIELDS`] fields.

use std::{borrow::Cow, collections::BTreeSet};

/// How many fields a form may have to be compared by its fields. A body of 6 MB can hold three million, and each takes 48 bytes
/// while they are sorted. Servers commonly accept 1,000.
const MAX_FIELDS: usize = 10_000;

/// A name and a value.
pub(super) type Field<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Whether bodies of this media type are forms.
pub(super) fn is_form(media_type: &str) -> bool {
    media_type == "application/x-www-form-urlencoded"
}

/// The fields of a form in canonical order; `None` if it is compared by its bytes.
pub(super) fn fields(body: &[u8]) -> Option<Vec<Field<'_>>> {
    if memchr::memchr_iter(b'&', body).count() >= MAX_FIELDS
        || !body.split(|byte| *byte == b'&').all(is_written)
    {
        return None;
    }
    let mut fields: Vec<Field<'_>> = form_urlencoded::parse(body).collect();
    let lossy = fields.iter().any(|(name, value)| name.contains('\u{FFFD}') || value.contains('\u{FFFD}'));
    if lossy || !in_any_order(fields.iter().map(|(name, _)| &**name)) {
        return None;
    }
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    Some(fields)
}

/// Whether a serializer writes this pair. Serializers escape all bytes but letters, digits and some of `*-._~!'()`, which differ
/// between the URL Standard, RFC 3986 and `encodeURIComponent`.
fn is_written(mut pair: &[u8]) -> bool {
    let mut equals = 0;
    while let [byte, after @ ..] = pair {
        pair = match (byte, after) {
            (b'%', [a, b, after @ ..]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => after,
            (b'=', _) => {
                equals += 1;
                after
            }
            (byte, _) if byte.is_ascii_alphanumeric() || b"+*-._~!'()".contains(byte) => after,
            _ => return false,
        };
    }
    equals == 1
}

/// Whether the order of differently named fields means nothing to a reader. That holds for names of letters, digits, `-` and `_`: a
/// reader looks such fields up. Of other names, some readers make lists and objects in the order of all fields (`a[][x]`, `a.b`), and
/// some take two for one (`a.b` and `a_b`, or `A` and `a`).
pub(crate) fn in_any_order<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let names: BTreeSet<_> = names.collect();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let folded: BTreeSet<_> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    names.len() < 2
        || (folded.len() == names.len()
            && names.iter().all(|name| !name.is_empty() && name.bytes().all(is_plain)))
}
