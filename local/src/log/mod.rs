//! The log of the local cloud and its functions, on standard error, in one of three forms.
//!
//! 1. On a terminal, readable lines ([`readable`]). Untrusted text never steers the terminal ([`terminal`](idempotency_cli::terminal)).
//! 2. With `--json`, one object per line: the local cloud's own events, or a function's line under `line` with its source. A
//!    line of metrics stays as the function wrote it, so that readers of CloudWatch's format can read it here too.
//! 3. Otherwise, lines as functions wrote them, after their source.
//!
//! Without `--json`, lines of metrics are left out, and a drill logs nothing: it shows what it does.

mod level;
mod readable;

pub use level::Level;

use aws_smithy_types::{DateTime, date_time::Format};
use idempotency_cli::terminal::harmless_json;
use readable::{Line, field};
use serde_json::{Map, Value, json, value::RawValue};
use std::{
    env,
    io::{self, IsTerminal, Write},
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

static FORM: OnceLock<Form> = OnceLock::new();

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Readable { colours: bool },
    Json,
    Plain,
    Nothing,
}

/// The process that wrote a line.
#[derive(Clone)]
pub struct Source {
    pub function: &'static str,
    pub environment: usize,
    pub pid: u32,
}

/// Decides on the form, once.
pub fn begin(as_json: bool, is_drill: bool) {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    let form = match (as_json, io::stderr().is_terminal()) {
        (true, _) => Form::Json,
        (false, _) if is_drill => Form::Nothing,
        (false, true) => Form::Readable { colours: !set("NO_COLOR") && !dumb },
        (false, false) => Form::Plain,
    };
    FORM.get_or_init(|| form);
}

/// Writes a function's line. Lines of metrics are for programs: others read the totals at `/metrics`.
pub fn write_line(source: &Source, text: &str, is_metrics: bool) {
    let Source { function, environment, pid } = source;
    match form() {
        Form::Json if is_metrics => write(&harmless_json(text)),
        Form::Json => write(&harmless_json(&wrapped(source, &time(), text))),
        _ if is_metrics => {}
        Form::Nothing => {}
        Form::Plain => write(&format!("[{function}#{environment} {pid}] {text}")),
        Form::Readable { colours } => {
            if let Some(line) = Line::logged(text) {
                write(&line.shown(&time(), &format!("{function}#{environment}"), colours));
            }
        }
    }
}

/// Logs an event of the local cloud in every form.
pub fn say(source: &str, level: Level, message: &str, fields: &[(&str, &str)]) {
    match form() {
        Form::Plain => {
            let fields: String =
                fields.iter().map(|(name, value)| format!(" {}", field(name, value))).collect();
            write(&format!("[{source}] {message}{fields}"));
        }
        Form::Json => write(&harmless_json(&event(&time(), source, level, message, fields))),
        Form::Nothing => {}
        Form::Readable { colours } => {
            write(&Line::own(level, message, fields).shown(&time(), source, colours));
        }
    }
}

/// Logs an event that matters only to a reader who watches: plain lines leave it out.
pub fn note(source: &str, level: Level, message: &str, fields: &[(&str, &str)]) {
    if form() != Form::Plain {
        say(source, level, message, fields);
    }
}

/// Whether standard error gets one JSON object per line.
pub fn is_json() -> bool {
    form() == Form::Json
}

fn form() -> Form {
    *FORM.get().unwrap_or(&Form::Plain)
}

/// Writes a line in one call, so that lines of different processes do not mix. A failure is ignored: there is no reader left.
fn write(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn wrapped(source: &Source, time: &str, text: &str) -> String {
    let line = match serde_json::from_str::<&RawValue>(text) {
        Ok(object) if object.get().starts_with('{') => object.get().to_owned(),
        _ => json!(text).to_string(),
    };
    let Source { function, environment, pid } = source;
    format!(
        r#"{{"time":"{time}","function":"{function}","environment":{environment},"pid":{pid},"line":{line}}}"#
    )
}

fn event(time: &str, source: &str, level: Level, message: &str, fields: &[(&str, &str)]) -> String {
    let mut event = Map::new();
    let own = [("time", time), ("source", source), ("level", level.name()), ("message", message)];
    for (name, value) in own.iter().chain(fields) {
        event.insert((*name).to_owned(), json!(value));
    }
    Value::Object(event).to_string()
}

/// Now, in UTC to the millisecond: `2026-11-21T13:44:14.162Z`.
pub fn time() -> String {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    let seconds = DateTime::from_secs(millis / 1000).fmt(Format::DateTime).unwrap_or_default();
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), millis % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_a_function_is_one_json_object() {
        let source = Source { function: "payments", environment: 1, pid: 7 };
        for (text, line) in [
            (r#"{"b": 1.0, "a":"x"}"#, r#"{"b": 1.0, "a":"x"}"#),
            ("thread 'main' panicked", "\"thread 'main' panicked\""),
            ("[1]", "\"[1]\""),
            ("{\"a\":", r#""{\"a\":""#),
            ("\u{1b}[2J\u{9b}", "\"\\u001b[2J\\u009b\""),
            ("", "\"\""),
        ] {
            let shown = harmless_json(&wrapped(&source, "T", text));
            let head = r#"{"time":"T","function":"payments","environment":1,"pid":7,"line":"#;
            assert_eq!(shown, format!("{head}{line}}}"));
            serde_json::from_str::<Value>(&shown).unwrap();
        }
    }

    #[test]
    fn the_time_has_milliseconds() {
        let time = time();
        assert_eq!((time.len(), &time[10..11], &time[19..20], &time[23..]), (24, "T", ".", "Z"), "{time}");
    }
}
