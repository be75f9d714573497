//! The results of drills: lines to read, or JSON.

use super::{drills::Drill, stage::Stage};
use crate::settings::Output;
use serde::Serialize;
use std::{
    env,
    io::{self, IsTerminal, Write},
};

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const GREY: &str = "\x1b[90m";
const PLAIN: &str = "\x1b[0m";

/// What became of an alarm.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    alarm: String,
    result: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    /// How many minutes after the cause it came, was repaired and ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    came_after_minutes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repaired_after_minutes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_after_minutes: Option<u64>,
    /// Why it has no drill, or what failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Verdict {
    Passed,
    NeverCame,
    NeverEnded,
    Failed,
    NotDrilled,
}

impl Shown {
    /// What became of each alarm of a drill that began and was repaired in these minutes.
    pub fn of(drill: &Drill, stage: &Stage, begun: u64, repaired: u64) -> Vec<Self> {
        let shown = stage.watched.iter().map(|watched| {
            let after = |minute: Option<u64>| minute.map(|minute| minute - begun);
            let result = match (watched.came, watched.ended) {
                (None, _) => Verdict::NeverCame,
                (_, None) => Verdict::NeverEnded,
                _ => Verdict::Passed,
            };
            Self {
                cause: Some(drill.cause.to_string()),
                came_after_minutes: after(watched.came),
                repaired_after_minutes: after(Some(repaired)),
                ended_after_minutes: after(watched.ended),
                ..Self::new(&watched.alarm.name, result)
            }
        });
        shown.collect()
    }

    /// The alarms of a drill that could not be held.
    pub fn failed(drill: &Drill, stage: &Stage, error: &str) -> Vec<Self> {
        let shown = stage.watched.iter().map(|watched| Self {
            cause: Some(drill.cause.to_string()),
            reason: Some(error.to_owned()),
            ..Self::new(&watched.alarm.name, Verdict::Failed)
        });
        shown.collect()
    }

    pub fn not_drilled(alarm: &str, reason: &str) -> Self {
        Self { reason: Some(reason.to_owned()), ..Self::new(alarm, Verdict::NotDrilled) }
    }

    fn new(alarm: &str, result: Verdict) -> Self {
        Self {
            alarm: alarm.to_owned(),
            result,
            cause: None,
            came_after_minutes: None,
            repaired_after_minutes: None,
            ended_after_minutes: None,
            reason: None,
        }
    }

    pub fn passed(&self) -> bool {
        matches!(self.result, Verdict::Passed | Verdict::NotDrilled)
    }

    /// What is shown of it, without its name.
    fn text(&self) -> String {
        let minutes = |minutes: Option<u64>| minutes.map(span).unwrap_or_default();
        let (came, repaired) = (minutes(self.came_after_minutes), minutes(self.repaired_after_minutes));
        let times = match self.result {
            Verdict::Passed => format!("on after {came}, off after {}", minutes(self.ended_after_minutes)),
            Verdict::NeverCame => format!("never came, in {repaired}"),
            Verdict::NeverEnded => format!("on after {came}, never ended; repaired after {repaired}"),
            Verdict::Failed => "failed".to_owned(),
            Verdict::NotDrilled => "no drill".to_owned(),
        };
        let words = [self.reason.as_deref(), self.cause.as_deref()];
        let words: Vec<_> = words.into_iter().flatten().collect();
        format!("{times:<46} {}", words.join(": "))
    }
}

/// A span of minutes: `3 min`, `2 h 10 min`.
fn span(minutes: u64) -> String {
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

/// Standard output.
pub struct Screen {
    output: Output,
    has_colours: bool,
}

impl Screen {
    pub fn new(output: Output) -> Self {
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { output, has_colours: io::stdout().is_terminal() && !set("NO_COLOR") && !dumb }
    }

    pub fn print(&self, shown: &Shown) {
        let line = match self.output {
            Output::Json => serde_json::to_string(shown).unwrap_or_default(),
            Output::Text => format!("{} {}", self.name(shown), shown.text()),
        };
        // A reader that has seen enough is no failure.
        let _ = writeln!(io::stdout(), "{line}");
    }

    fn name(&self, shown: &Shown) -> String {
        let colour = match shown.result {
            Verdict::Passed => GREEN,
            Verdict::NotDrilled => GREY,
            _ => RED,
        };
        let mark = match shown.result {
            Verdict::Passed => "ok    ",
            Verdict::NotDrilled => "-     ",
            _ => "FAILED",
        };
        match self.has_colours {
            true => format!("{colour}{mark} {:<24}{PLAIN}", shown.alarm),
            false => format!("{mark} {:<24}", shown.alarm),
        }
    }
}
