//! Escapes untrusted text for a terminal.
//!
//! Escaped are the characters that would control a terminal, or that mislead a reader: control characters, line ends, changes of
//! direction, invisible characters.

/// Text in one line, escaped as in Rust: `\u{202e}`.
pub fn harmless(text: &str) -> String {
    escaped(text, |_| false, |c| c.escape_unicode().collect())
}

/// The same for text of several lines.
pub fn harmless_text(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t'), |c| c.escape_unicode().collect())
}

/// The same for JSON, which keeps its meaning: such characters occur only within its strings.
pub fn harmless_json(json: &str) -> String {
    let escape = |c: char| {
        let mut units = [0; 2];
        c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    };
    escaped(json, |c| c == '\n', escape)
}

fn escaped(text: &str, keeps: impl Fn(char) -> bool, escape: impl Fn(char) -> String) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match keeps(c) || is_shown(c) {
            true => shown.push(c),
            false => shown.push_str(&escape(c)),
        }
    }
    shown
}

/// Whether a character is shown as itself. Rust's tables decide. A combining mark is tested after a letter, to which it belongs.
fn is_shown(c: char) -> bool {
    let mut text = *b"a....";
    let length = c.encode_utf8(&mut text[1..]).len() + 1;
    let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
    // Rust escapes quotes and backslashes too.
    matches!(c, ' '..='~') || text.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    // A client's key or header must not control an operator's screen.
    #[test]
    fn characters_that_would_control_a_terminal_are_escaped() {
        assert_eq!(harmless("a\u{1b}[31m\n\t\u{fc}"), "a\\u{1b}[31m\\u{a}\\u{9}\u{fc}");
        assert_eq!(harmless_text("a\u{1b}\r\n\t\u{fc}"), "a\\u{1b}\\u{d}\n\t\u{fc}");
        let plain = "plain \"text\" 'with' \\ \u{fc} e\u{301} \u{65e5} \u{1F600} # % ~";
        assert_eq!(harmless(plain), plain);
        let hidden = [0x00, 0x7f, 0x9b, 0x061c, 0x200b, 0x200e, 0x200f, 0x2028, 0x2029, 0xfeff, 0xe0041];
        for code in hidden.into_iter().chain(0x202a..=0x202e).chain(0x2066..=0x2069) {
            let text = char::from_u32(code).expect("a character").to_string();
            assert_eq!(harmless(&text), format!("\\u{{{code:x}}}"));
            let json = serde_json::to_string(&text).expect("JSON");
            let escaped = harmless_json(&json);
            assert!(escaped.is_ascii() && !escaped.contains('\u{7f}'), "{escaped}");
            assert_eq!(serde_json::from_str::<String>(&escaped).expect("JSON"), text);
        }
    }

    #[test]
    fn a_document_of_json_keeps_its_meaning() {
        let steering = "a\u{1b}[31m\r\n\t\u{7f}\u{9b}\u{61c}\u{200f}\u{202e}\u{2066}\u{2029}\u{fc}";
        let line = serde_json::json!({ "a": steering }).to_string();
        let shown = harmless_json(&line);
        assert_eq!(harmless(&shown), shown);
        let (before, after): (serde_json::Value, serde_json::Value) =
            (serde_json::from_str(&line).unwrap(), serde_json::from_str(&shown).unwrap());
        assert_eq!(before, after);
    }
}
