//! The alarms of a record in print, with the reports that lie beside it.

use comfy_table::Cell;
use lambda_idempotency::{
    internal::{ReportBeside, ReportSummary},
    record::{Alarms, BodyId, Note, Record},
    time::Timestamp,
};
use serde::Serialize;

use crate::output::{cell, cell_of_lines, iso, when};

/// The alarms of a record in JSON, with the names of the table's attributes.
#[derive(Debug, Serialize)]
pub struct AlarmsJson {
    kinds: Vec<&'static str>,
    /// Why the last one was raised.
    because: String,
    raised_at: Option<String>,
    /// Whether operators were told of all by a dead letter.
    told: bool,
    /// The ids of the body items with the reports beside the record.
    reports: Vec<String>,
}

impl From<&Alarms> for AlarmsJson {
    fn from(alarms: &Alarms) -> Self {
        Self {
            kinds: kinds(alarms),
            because: alarms.because.to_string(),
            raised_at: iso(alarms.raised_at),
            told: alarms.is_told,
            reports: alarms.reports.iter().map(BodyId::to_string).collect(),
        }
    }
}

/// A report beside a record in JSON.
#[derive(Debug, Serialize)]
pub struct ReportJson {
    /// The id of its body item.
    id: String,
    /// Null if it is gone, or cannot be read.
    report: Option<SaysJson>,
}

#[derive(Debug, Serialize)]
struct SaysJson {
    attempt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    /// How many domain writes it has.
    rows: usize,
    /// All of it, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    whole: Option<serde_json::Value>,
}

impl ReportJson {
    pub fn of(report: &ReportBeside, whole: bool) -> Self {
        let says = report.says.as_ref().map(|says| SaysJson {
            attempt: says.attempt.to_string(),
            ended: says.ended.clone(),
            because: says.because.as_ref().map(Note::to_string),
            status: says.status,
            phase: says.phase.clone(),
            rows: says.rows,
            whole: if whole { serde_json::from_str(&says.whole).ok() } else { None },
        });
        Self { id: report.id.to_string(), report: says }
    }
}

/// Whether it waits for an operator: it is escalated, or has an alarm.
pub fn needs_operator(record: &Record) -> bool {
    record.is_escalated() || is_alarmed(record)
}

/// Whether it has an alarm.
pub const fn is_alarmed(record: &Record) -> bool {
    record.alarms.is_some()
}

/// The kinds of a record's alarms.
pub fn kinds(alarms: &Alarms) -> Vec<&'static str> {
    alarms.kinds.iter().map(|kind| kind.name()).collect()
}

/// The lines about a record's alarms.
pub fn fields(record: &Record, now: Timestamp) -> Vec<(&'static str, Cell)> {
    let Some(alarms) = record.alarms.as_deref() else { return Vec::new() };
    let told = if alarms.is_told { "yes, by a dead letter" } else { "not yet: the next poll does it" };
    vec![
        ("alarms", cell(kinds(alarms).join(", "))),
        ("raised because", cell(&alarms.because)),
        ("raised", cell(when(alarms.raised_at, now))),
        ("operators told", cell(told)),
    ]
}

/// The line about the reports beside a record, if there are any.
pub fn report_fields(reports: &[ReportBeside]) -> Option<(&'static str, Cell)> {
    (!reports.is_empty()).then(|| ("reports beside it", cell_of_lines(reports.iter().map(line))))
}

fn line(report: &ReportBeside) -> String {
    let id = report.id;
    let Some(ReportSummary { attempt, ended, because, status, phase, rows, .. }) = &report.says else {
        return format!("{id}: missing, or it cannot be read");
    };
    let what = match (ended, phase) {
        (Some(ended), _) => ended.clone(),
        (None, Some(phase)) => format!("the result of phase {phase}"),
        (None, None) => "nothing".to_owned(),
    };
    let status = status.map_or_else(String::new, |status| format!(" with {status}"));
    let because = because.as_ref().map_or_else(String::new, |because| format!(" ({because})"));
    let rows = match rows {
        0 => String::new(),
        1 => ", 1 domain write that is not made".to_owned(),
        rows => format!(", {rows} domain writes that are not made"),
    };
    format!("{id}: attempt {attempt} reports {what}{status}{because}{rows}")
}
