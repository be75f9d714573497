//! Escapes untrusted text: characters that would steer a terminal, or reverse the order of its text.

/// Escaped as in Rust.
pub fn harmless(text: &str) -> String {
    escaped(text, |c| c.escape_unicode().to_string())
}

/// A line of JSON, escaped without a change of its meaning: such characters occur only within strings.
pub fn json(line: &str) -> String {
    escaped(line, |c| format!("\\u{:04x}", u32::from(c)))
}

fn escaped(text: &str, escape: impl Fn(char) -> String) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match steers(c) {
            true => shown.push_str(&escape(c)),
            false => shown.push(c),
        }
    }
    shown
}

/// Control characters, marks and brackets of bidirectional text, line separators. All are below U+10000, so that `\u` takes
/// four digits.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEERING: &str = "a\u{1b}[31m\r\n\t\u{7f}\u{9b}\u{61c}\u{200f}\u{202e}\u{2066}\u{2029}ä";

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        let shown = harmless(STEERING);
        assert!(!shown.chars().any(steers), "{shown}");
        assert_eq!(harmless("\u{1b}ä\u{202e}"), "\\u{1b}ä\\u{202e}");
    }

    #[test]
    fn json_stays_the_same_json() {
        let line = serde_json::json!({ "a": STEERING }).to_string();
        let shown = json(&line);
        assert!(!shown.chars().any(steers), "{shown}");
        let (before, after): (serde_json::Value, serde_json::Value) =
            (serde_json::from_str(&line).unwrap(), serde_json::from_str(&shown).unwrap());
        assert_eq!(before, after);
    }
}
