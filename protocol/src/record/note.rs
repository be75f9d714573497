//! Short lines for operators, kept in the record.

use std::{fmt, sync::Arc};

/// The length of the longest note, in bytes: a record with all its notes can still hold a body within one write unit.
const MAX_BYTES: usize = 120;

/// One short line for operators: at most 120 bytes, without control characters and without characters that change the
/// direction of text. Longer text is cut.
///
/// ```
/// # extern crate idempotency_protocol as lambda_idempotency;
/// use lambda_idempotency::record::Note;
///
/// assert_eq!(Note::new("POST\r\n /payments").as_str(), "POST /payments");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Note(Arc<str>);

impl Note {
    /// Makes a line of `text`.
    pub fn new(text: &str) -> Self {
        if text.len() <= MAX_BYTES && !text.contains(is_hidden) {
            return Self(text.into());
        }
        let mut line: String = text.chars().filter(|char| !is_hidden(*char)).collect();
        line.truncate(line.floor_char_boundary(MAX_BYTES));
        Self(line.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether this is a control character, or one that changes the direction of the text around it
/// ([UAX #9](https://www.unicode.org/reports/tr9/#Directional_Formatting_Characters)) or ends a line.
pub fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_one_short_line_for_any_text() {
        for (text, line) in [
            ("POST /payments", "POST /payments"),
            ("a\u{202e}b\u{2066}c\u{200f}", "abc"),
            ("\u{1b}[31mred\u{1b}[0m\r\n\u{2028}", "[31mred[0m"),
            ("\u{9b}31m", "31m"),
            ("", ""),
        ] {
            assert_eq!(Note::new(text).as_str(), line);
        }
        let long = Note::new(&"ä".repeat(MAX_BYTES));
        assert_eq!(long.as_str(), "ä".repeat(MAX_BYTES / 2));
        assert_eq!(Note::new(&format!("x{}", "ä".repeat(MAX_BYTES))).as_str().len(), MAX_BYTES - 1);
    }
}
