//! Prints results: tables for an operator, JSON for programs.

use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use comfy_table::{Cell, Color, ContentArrangement, Table};
use lambda_idempotency::time::Timestamp;
use serde::Serialize;

use crate::{args::Output, failure::Failure};

/// Standard output.
pub struct Screen {
    output: Output,
    colours: bool,
    terminal: bool,
}

impl Screen {
    pub fn new(output: Output) -> Self {
        let terminal = io::stdout().is_terminal();
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { output, colours: terminal && !set("NO_COLOR") && !dumb, terminal }
    }

    pub fn is_json(&self) -> bool {
        self.output == Output::Json
    }

    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// A table without lines, so that its cells can be copied. Nothing is wrapped: half a key is useless.
    pub fn table<const N: usize>(&self, header: [&str; N]) -> Table {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if self.colours {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        if !header.iter().all(|name| name.is_empty()) {
            table.set_header(header);
        }
        table
    }

    /// One line for each field.
    pub fn fields(&self, fields: Vec<(&str, Cell)>) -> Table {
        let mut table = self.table(["", ""]);
        for (name, value) in fields {
            table.add_row([cell(name), value]);
        }
        table
    }

    pub fn print_table(&self, table: &Table) -> Result<(), Failure> {
        self.print(&table.trim_fmt())
    }

    /// Prints a line of JSON if it is one of many, else a document that operators can read too.
    pub fn print_json(&self, value: &impl Serialize, one_of_many: bool) -> Result<(), Failure> {
        let text = match one_of_many {
            true => serde_json::to_string(value),
            false => serde_json::to_string_pretty(value),
        };
        self.print(&harmless_json(&text.map_err(|error| Failure::from_error(&error))?))
    }

    /// Prints text that is already harmless: untrusted text goes through [`harmless`] or [`cell`] first.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        self.write(format!("{text}\n").as_bytes())
    }

    /// Writes bytes as they are. A reader that has seen enough (`head`) is not a failure.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
            written => written.map_err(|error| Failure::from_error(&error)),
        }
    }

    /// Clears the screen for the next picture.
    pub fn clear(&self) -> Result<(), Failure> {
        if self.terminal { self.write(b"\x1b[2J\x1b[H") } else { Ok(()) }
    }
}

/// A state, in a colour that shows how much attention it needs.
pub fn state_cell(state: &str) -> Cell {
    let colour = match state {
        "completed" => Color::Green,
        "failed_retryable" => Color::Yellow,
        "unknown" => Color::Red,
        _ => Color::Cyan,
    };
    cell(state).fg(colour)
}

/// A table cell of untrusted text.
#[expect(clippy::disallowed_methods, reason = "the one way to a cell")]
pub fn cell(text: impl Display) -> Cell {
    Cell::new(harmless(&text.to_string()))
}

/// A cell of several lines.
#[expect(clippy::disallowed_methods, reason = "each line is harmless")]
pub fn cell_of_lines(lines: impl IntoIterator<Item = String>) -> Cell {
    Cell::new(lines.into_iter().map(|line| harmless(&line)).collect::<Vec<_>>().join("\n"))
}

/// The instant in ISO 8601, UTC; `None` for the end of time.
pub fn iso(at: Timestamp) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(at.as_millis()).ok()?).ok()?;
    // Always with milliseconds, so that times line up.
    Some(format!("{at:.3}"))
}

/// The instant, and its distance from now.
pub fn when(at: Timestamp, now: Timestamp) -> String {
    match iso(at) {
        Some(text) if at <= now => format!("{text} ({} ago)", span(now.since(at))),
        Some(text) => format!("{text} (in {})", span(at.since(now))),
        None => "never".to_owned(),
    }
}

/// A span in its two largest units.
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, ..) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

/// Untrusted text in one line. Characters that would steer a terminal or hide what they are (control characters, line ends,
/// changes of direction, invisible characters) are escaped, as in `\u{202e}`.
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

/// Whether a character shows as what it is. Rust's own tables decide, except for quotes and for marks on the dead letter before them.
fn is_shown(c: char) -> bool {
    let mut text = *b"a....";
    let after_a_dead_letter = c.encode_utf8(&mut text[1..]).len() + 1;
    let text = std::str::from_utf8(&text[..after_a_dead_letter]).unwrap_or_default();
    matches!(c, '"' | '\'' | '\\') || text.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_in_iso_8601_with_their_distance() {
        let at = Timestamp::from_millis(1_795_264_015_123);
        assert_eq!(iso(at).as_deref(), Some("2026-11-21T12:26:55.123Z"));
        assert_eq!(when(at, at.plus(Duration::from_secs(190))), "2026-11-21T12:26:55.123Z (3m 10s ago)");
        assert_eq!(when(at, at.minus(Duration::from_secs(90_000))), "2026-11-21T12:26:55.123Z (in 1d 1h)");
        assert_eq!(
            iso(Timestamp::from_millis(1_795_264_015_000)).as_deref(),
            Some("2026-11-21T12:26:55.000Z")
        );
        assert_eq!(
            iso(Timestamp::from_millis(1_795_264_015_120)).as_deref(),
            Some("2026-11-21T12:26:55.120Z")
        );
        assert_eq!(when(Timestamp::MAX, at), "never");
    }

    // A key or a header of a client must not write on an operator's screen.
    #[test]
    fn what_would_steer_a_terminal_is_shown_as_what_it_is() {
        assert_eq!(harmless("a\u{1b}[31m\n\t\u{fc}"), "a\\u{1b}[31m\\u{a}\\u{9}\u{fc}");
        assert_eq!(harmless_text("a\u{1b}\r\n\t\u{fc}"), "a\\u{1b}\\u{d}\n\t\u{fc}");
        let plain = "plain \"text\" 'with' \\ \u{fc} e\u{301} \u{65e5} \u{1F600} # %";
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
}
