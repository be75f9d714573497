//! Splits multipart bodies ([RFC 2046, section 5.1.1](https://www.rfc-editor.org/rfc/rfc2046#section-5.1.1)) at their
//! boundaries, because clients make a new boundary for every retry.

use memchr::memmem;

/// The parts of a body, in order; `None` if it is compared by its bytes, because parsers may split it differently: it is cut off, the
/// boundary occurs elsewhere than between parts, or there is text before the first part, behind the last one, or behind a boundary.
///
/// Two bodies with the same parts differ only in their boundary, and in line breaks around all of it, which some clients write.
pub(super) fn parts<'a>(body: &'a [u8], boundary: &str) -> Option<Vec<&'a [u8]>> {
    let delimiter = format!("--{boundary}");
    let next = memmem::Finder::new(&delimiter);
    let mut parts = Vec::new();
    let body = body.strip_prefix(b"\r\n").unwrap_or(body);
    let mut rest = body.strip_prefix(delimiter.as_bytes())?;
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            return end.chunks(2).all(|line| line == b"\r\n").then_some(parts);
        }
        rest = rest.strip_prefix(b"\r\n")?;
        let at = next.find(rest)?;
        parts.push(rest[..at].strip_suffix(b"\r\n")?);
        rest = &rest[at + delimiter.len()..];
    }
}

/// Whether this is a boundary that all parsers read alike: as RFC 2046 has it, and without the space that it permits.
pub(super) fn is_boundary(text: &str) -> bool {
    let is_boundary = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(&byte);
    (1..=70).contains(&text.len()) && text.bytes().all(is_boundary)
}
