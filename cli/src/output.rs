//! Prints results: tables for an operator, JSON for programs.

use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use crate::terminal::{harmless, harmless_json};
use comfy_table::{Cell, Color, ContentArrangement, Table};
use lambda_idempotency::{record::StateName, time::Timestamp};
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

    /// Shows an operator what is about to change, before the question. JSON on standard output is for a program, so the text goes to standard
    /// error then, and nowhere if the answer is `yes` already. Returns whether it was shown.
    pub fn print_plan(&self, plan: &str, yes: bool) -> Result<bool, Failure> {
        match (self.is_json(), yes) {
            (false, _) => self.print(plan)?,
            (true, false) => eprintln!("{plan}"),
            (true, true) => return Ok(false),
        }
        Ok(true)
    }

    /// Prints a line of JSON if it is one of many, and otherwise an indented document, which operators can read too.
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

    /// Clears the screen before it is printed again.
    pub fn clear(&self) -> Result<(), Failure> {
        if self.terminal { self.write(b"\x1b[2J\x1b[H") } else { Ok(()) }
    }
}

/// A state, in a colour that shows how much attention it needs.
pub fn state_cell(state: &str) -> Cell {
    let colour = match StateName::parse(state) {
        Some(StateName::Completed) => Color::Green,
        Some(StateName::FailedRetryable | StateName::BetweenWorkers) => Color::Yellow,
        Some(StateName::Unknown) => Color::Red,
        Some(StateName::Pending | StateName::InProgress) | None => Color::Cyan,
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
}
