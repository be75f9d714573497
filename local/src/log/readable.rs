//! Readable lines, one per event: time, source, level, message, fields.

use super::Level;
use idempotency_cli::terminal::harmless;
use serde_json::{Map, Value};

/// Fields that come before others.
const FIRST: [&str; 5] = ["key", "operation", "state", "outcome", "attempts"];
const SHORT_ID: usize = 8;
/// The length of the longest name of a source, so that messages line up.
const SOURCE: usize = 11;

const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const GREEN: &str = "\x1b[32m";
const FAINT: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// A line without its time and source.
#[derive(Debug, PartialEq)]
pub struct Line {
    level: String,
    message: String,
    fields: Vec<(String, String)>,
}

impl Line {
    /// An event of the local cloud.
    pub fn own(level: Level, message: &str, fields: &[(&str, &str)]) -> Self {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { level: level.name().to_owned(), message: message.to_owned(), fields }
    }

    /// A function's output: a line of its log, or any other text. `None` if it is blank.
    pub fn logged(text: &str) -> Option<Self> {
        let plain = || Self { level: String::new(), message: text.to_owned(), fields: Vec::new() };
        let Ok(Value::Object(mut line)) = serde_json::from_str(text) else {
            return (!text.trim().is_empty()).then(plain);
        };
        let (Some(Value::String(level)), Some(Value::Object(mut own))) =
            (line.remove("level"), line.remove("fields"))
        else {
            return Some(plain());
        };
        let message = own.remove("message").map(|message| shown(&message)).unwrap_or_default();
        let mut fields: Vec<_> = own.iter().map(|(name, value)| (name.clone(), shown(value))).collect();
        for span in line.remove("spans").iter().filter_map(Value::as_array).flatten() {
            fields.extend(of_span(span, &own));
        }
        // The sort is stable, so other fields keep their order.
        fields.sort_by_key(|(name, _)| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()));
        Some(Self { level, message, fields })
    }

    /// The line for the terminal, which nothing but our own colours can steer.
    pub fn shown(&self, time: &str, source: &str, colours: bool) -> String {
        let paint = |colour: &str, text: &str| match colours && !colour.is_empty() && !text.is_empty() {
            true => format!("{colour}{text}{PLAIN}"),
            false => text.to_owned(),
        };
        let clock = time.get(11..23).unwrap_or(time);
        let colour = match &*self.level {
            "ERROR" => RED,
            "WARN" => YELLOW,
            "INFO" => GREEN,
            _ => FAINT,
        };
        let fields: Vec<_> = self.fields.iter().map(|(name, value)| field(name, value)).collect();
        let text = [
            paint(FAINT, clock),
            format!("{:SOURCE$}", harmless(source)),
            paint(colour, &format!("{:6}", harmless(&self.level))),
            harmless(&self.message),
            paint(FAINT, &harmless(&fields.join(" "))),
        ];
        text.join(" ").trim_end().to_owned()
    }
}

/// A field, with its value in quotes if it has spaces.
pub fn field(name: &str, value: &str) -> String {
    if value.contains(' ') { format!("{name}={value:?}") } else { format!("{name}={value}") }
}

/// The span's fields that the line lacks: the request by a short id, and no ids of traces.
fn of_span(span: &Value, own: &Map<String, Value>) -> Vec<(String, String)> {
    let fields = span.as_object().into_iter().flatten().filter(|(name, _)| !own.contains_key(*name));
    let fields = fields.filter_map(|(name, value)| match name.as_str() {
        "name" | "xrayTraceId" => None,
        "requestId" => Some(("request".to_owned(), short(&shown(value)))),
        _ => Some((name.clone(), shown(value))),
    });
    fields.collect()
}

/// Enough of an id to distinguish it from its neighbours.
fn short(id: &str) -> String {
    id.chars().take(SHORT_ID).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "2026-11-21T13:44:14.162Z";

    fn logged(text: &str) -> String {
        Line::logged(text).unwrap().shown(TIME, "payments#1", false)
    }

    #[test]
    fn a_log_line_is_time_source_level_message_and_fields() {
        let line = r#"{"level":"ERROR","fields":{"message":"the handler panicked","attempts":2,"cause":"time out","key":"05f5"},
            "target":"lambda_idempotency::http::guard","spans":[{"requestId":"f610e3f7-25c9-46ec","name":"Lambda",
            "xrayTraceId":"Root=1"},{"operation":"create-payment","key":"05f5","name":"idempotency"}]}"#;
        let shown = "13:44:14.162 payments#1  ERROR  the handler panicked key=05f5 operation=create-payment \
                     attempts=2 cause=\"time out\" request=f610e3f7";
        assert_eq!(logged(line), shown);
    }

    #[test]
    fn other_text_stays_as_it_is_and_empty_lines_go() {
        assert_eq!(logged("  at src/main.rs:1"), "13:44:14.162 payments#1           at src/main.rs:1");
        assert_eq!(logged(r#"{"a":1}"#), r#"13:44:14.162 payments#1         {"a":1}"#);
        assert_eq!(Line::logged(" "), None);
    }

    #[test]
    fn nothing_of_a_line_steers_the_terminal() {
        let line = r#"{"level":"\u001b[8m","fields":{"message":"a\r\u009b2J","\u202ek":"v\u2066\n"}}"#;
        for (line, source) in [(line, "payments#1"), ("\u{1b}]0;x\u{7}", "\u{202e}#1")] {
            let shown = Line::logged(line).unwrap().shown(TIME, source, true);
            let text = [RED, YELLOW, GREEN, FAINT, PLAIN]
                .iter()
                .fold(shown, |text, colour| text.replace(colour, ""));
            assert_eq!(harmless(&text), text);
        }
    }

    #[test]
    fn a_level_has_its_colour() {
        let line = Line::own(Level::Warn, "killed", &[("request", "r")]);
        let shown =
            "\x1b[2m13:44:14.162\x1b[0m payments#1  \x1b[33mWARN  \x1b[0m killed \x1b[2mrequest=r\x1b[0m";
        assert_eq!(line.shown(TIME, "payments#1", true), shown);
    }
}
