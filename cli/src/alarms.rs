//! The alarms of a record in print, with the reports that lie beside it.

use std::collections::BTreeSet;

use comfy_table::Cell;
use lambda_idempotency::{
    operator::{ReportBeside, ReportSummary},
    record::{Alarm, AlarmKind, BodyId, Note, Record},
    time::Timestamp,
};
use serde::Serialize;

use crate::output::{cell_of_lines, iso, when};

/// An alarm of a record in JSON, with the names of the table's attributes.
#[derive(Debug, Serialize)]
pub struct AlarmJson {
    kind: &'static str,
    because: String,
    raised_at: Option<String>,
    /// Whether operators were told by a dead letter.
    told: bool,
    /// The id of the body item with the report beside the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<String>,
}

impl From<&Alarm> for AlarmJson {
    fn from(Alarm { kind, because, raised_at, report, is_told }: &Alarm) -> Self {
        Self {
            kind: kind.name(),
            because: because.to_string(),
            raised_at: iso(*raised_at),
            told: *is_told,
            report: report.as_ref().map(BodyId::to_string),
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
    !record.alarms.is_empty()
}

/// The kinds of a record's alarms, each once.
pub fn kinds(record: &Record) -> Vec<&'static str> {
    let kinds: BTreeSet<_> = record.alarms.iter().map(|alarm| alarm.kind).collect();
    kinds.into_iter().map(AlarmKind::name).collect()
}

/// The lines about a record's alarms.
pub fn fields(record: &Record, now: Timestamp) -> impl Iterator<Item = (&'static str, Cell)> {
    record.alarms.iter().map(move |Alarm { kind, because, raised_at, is_told, .. }| {
        let told = if *is_told {
            "operators were told"
        } else {
            "operators are not told yet: the next poll does it"
        };
        let lines = [format!("{}: {because}", kind.name()), when(*raised_at, now), told.to_owned()];
        ("alarm", cell_of_lines(lines))
    })
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
