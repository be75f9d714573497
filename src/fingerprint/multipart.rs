//! Splits multipart bodies ([RFC 2046, section 5.1.1](https://www.rfc-editor.org/rfc/rfc2046#section-5.1.1)) at their
//! boundaries, because clients make a new boundary for every retry.

use memchr::memmem;

/// The pieces before, between and after the delimiters, in order; `None` if no delimiter closes the body.
///
/// Two bodies with the same pieces differ only in their boundary, and in the white space after it.
pub(super) fn pieces<'a>(body: &'a [u8], boundary: &str) -> Option<Vec<&'a [u8]>> {
    let delimiter = format!("--{boundary}");
    let mut pieces = Vec::new();
    let mut start = 0;
    for at in memmem::find_iter(body, &delimiter) {
        // A delimiter begins a line, and the line break before it belongs to it.
        let end = match at {
            0 => 0,
            _ if at >= start + 2 && body[..at].ends_with(b"\r\n") => at - 2,
            _ => continue,
        };
        let behind = &body[at + delimiter.len()..];
        let (closes, behind) = behind.strip_prefix(b"--").map_or((false, behind), |behind| (true, behind));
        let padding = behind.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let behind = &behind[padding..];
        let rest = match behind.strip_prefix(b"\r\n") {
            Some(rest) => rest,
            None if closes && behind.is_empty() => behind,
            None => continue,
        };
        pieces.push(&body[start..end]);
        start = body.len() - rest.len();
        if closes {
            pieces.push(rest);
            return Some(pieces);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(body: &str, boundary: &str) -> Option<Vec<String>> {
        let pieces = pieces(body.as_bytes(), boundary)?;
        Some(pieces.into_iter().map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect())
    }

    #[test]
    fn a_body_comes_apart_at_its_delimiters_and_nowhere_else() {
        let expected = vec!["", "A: 1\r\n\r\none --b not a line", "\r\n--bc\r\n--b c\r\ntwo\r\n", ""];
        let body = format!("--b\r\n{}\r\n--b \t\r\n{}\r\n--b--\r\n", expected[1], expected[2]);
        assert_eq!(texts(&body, "b").unwrap(), expected);
        assert_eq!(texts("before\r\n--b\r\n\r\n--b--behind", "b"), None);
        assert_eq!(texts("before\r\n--b\r\n\r\n--b--\r\nbehind", "b").unwrap(), ["before", "", "behind"]);
        assert_eq!(texts("--b\r\n\r\n--b--", "b").unwrap(), ["", "", ""]);
        for open in
            ["", "--b\r\n--b--", "--b", "--b\r\none", "--b\r\none\r\n--b\r\n", "one\r\n--b--x", "x--b--"]
        {
            assert_eq!(texts(open, "b"), None, "{open:?}");
        }
    }
}
