//! The canonical form of a form body (`application/x-www-form-urlencoded`).
//!
//! 1. A form is compared as a query is: names and values decoded, sorted by name. Values of one name keep their order.
//! 2. A form is compared by its bytes if it has a `%` without two hex digits after it, if it does not decode to UTF-8, if it
//!    holds U+FFFD, or if it has more than [`MAX_FIELDS`] fields. Parsers do not agree on such a form, or do not take it.

use std::borrow::Cow;

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
    let is_escape =
        |after: &[u8]| matches!(after, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    if memchr::memchr_iter(b'&', body).count() >= MAX_FIELDS
        || !memchr::memchr_iter(b'%', body).all(|at| is_escape(&body[at + 1..]))
    {
        return None;
    }
    let mut fields: Vec<Field<'_>> = form_urlencoded::parse(body).collect();
    // Some parsers read `a[][x]` and `a[][y]` as one list, in the order of all fields.
    if fields.iter().any(|(name, _)| name.contains('[')) {
        return None;
    }
    // Different bytes that are not UTF-8 decode to the same U+FFFD.
    if fields.iter().any(|(name, value)| name.contains('\u{FFFD}') || value.contains('\u{FFFD}')) {
        return None;
    }
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &str, b: &str) -> bool {
        let (a, b) = (fields(a.as_bytes()), fields(b.as_bytes()));
        a.is_some() && a == b
    }

    #[test]
    fn fields_count_decoded_and_in_any_order() {
        for (a, b) in [
            ("a=1&b=2", "b=2&a=1"),
            ("a=x+y", "a=x%20y"),
            ("a=%c3%a9", "a=é"),
            ("%61=1", "a=1"),
            ("a=1&a=2&b=3", "a=1&b=3&a=2"),
            ("", "&"),
            ("a", "a="),
            ("a=b=c", "a=b%3Dc"),
        ] {
            assert!(same(a, b), "{a} {b}");
        }
    }

    #[test]
    fn different_fields_are_different_forms() {
        for (a, b) in [
            ("a=1", "a=2"),
            ("a=1&a=2", "a=2&a=1"),
            ("a=1", "a=1&a=1"),
            ("a=1&b=2", "a=1%26b=2"),
            ("a=1&b=2", "a=2&b=1"),
            ("a=+", "a=%2B"),
            ("", "a"),
            ("A=1", "a=1"),
        ] {
            assert!(!same(a, b), "{a} {b}");
        }
    }

    #[test]
    fn a_form_that_parsers_may_read_differently_has_no_fields() {
        for form in [
            &b"a=%"[..],
            b"a=%4",
            b"a=%zz",
            b"a=%%34",
            b"%=1",
            b"a=%ff",
            b"a=\xff",
            b"a=%EF%BF%BD",
            b"\xc3",
            b"a[]=1",
            b"a%5B%5D=1",
        ] {
            assert_eq!(fields(form), None, "{}", form.escape_ascii());
        }
        let many = |count: usize| vec!["a=1"; count].join("&");
        assert_eq!(fields(many(MAX_FIELDS).as_bytes()).map(|fields| fields.len()), Some(MAX_FIELDS));
        assert_eq!(fields(many(MAX_FIELDS + 1).as_bytes()), None);
        assert_eq!(fields(&vec![b'&'; 6 * 1024 * 1024]), None);
    }
}
