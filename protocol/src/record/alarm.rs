//! Alarms: what operators must look at, whatever becomes of the operation.
//!
//! 1. An alarm is raised by a swap of the record that it is about, often the same that writes a report. So none is forgotten between
//!    two writes.
//! 2. A report that its record does not take lies beside it, as a body item that the alarm names: answer, phases and domain writes.
//! 3. It stands until an operator clears it. A record with an alarm has no time to live, and never counts as absent.
//! 4. The poll tells operators of each, once.

use super::{AttemptId, BodyId, Note, named_enum::names};
use crate::time::Timestamp;

/// How many alarms a record has at most. With more, something is wrong that no single report explains.
pub const MAX_ALARMS: usize = 16;

/// Why operators must look at a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlarmKind {
    /// Two executions certainly or possibly ran the operation.
    SecondExecution,
    /// A caller may have got another answer than the record has.
    SecondAnswer,
    /// The provider reports two effects under the key of one request.
    SecondEffect,
    /// The provider says otherwise than the record, for example that it made the effect that was refused.
    Contradicted,
    /// The domain writes of a report are refused, or were not made.
    RefusedRows,
    /// A phase was executed that the record does not have, or has with another result.
    ForgottenPhase,
    /// A worker reports what became of a record that an operator holds, or an effect was reported before the
    /// hold, or since.
    HeldReport,
}

names! {
    pub AlarmKind {
        SecondExecution: "second_execution",
        SecondAnswer: "second_answer",
        SecondEffect: "second_effect",
        Contradicted: "contradicted",
        RefusedRows: "refused_rows",
        ForgottenPhase: "forgotten_phase",
        HeldReport: "held_report",
    }
}

/// One alarm of a record. An operator clears all of them at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// What it is.
    pub kind: AlarmKind,
    /// Why it was raised, for operators.
    pub because: Note,
    /// When it was.
    pub raised_at: Timestamp,
    /// The report that lies beside the record, if the record does not have it.
    pub report: Option<BodyId>,
    /// Whether operators have been told.
    pub is_told: bool,
}

impl Alarm {
    /// One raised now, of which operators have not been told, with the report that lies beside the record because of it.
    pub fn new(kind: AlarmKind, because: &str, report: Option<BodyId>, now: Timestamp) -> Self {
        Self { kind, because: Note::new(because), raised_at: now, report, is_told: false }
    }

    /// Whether both are of one report, or of one fact if they have none: it is raised once.
    pub fn is_same(&self, other: &Self) -> bool {
        let same_fact = self.report.is_some() || self.because == other.because;
        self.kind == other.kind && self.report == other.report && same_fact
    }
}

impl BodyId {
    /// Under which the report of this execution lies beside a record; or its report of the phase in this place. It is always the same, so
    /// that a report that is delivered twice lies there once.
    pub fn of_report(attempt: AttemptId, phase: Option<usize>) -> Self {
        let mut bytes = *attempt.as_bytes();
        let place = phase.map_or(0, |place| u8::try_from(place + 1).unwrap_or(u8::MAX));
        bytes[15] ^= place;
        Self::from(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // T36
    #[test]
    fn the_names_of_alarms_never_change() {
        let names = [
            "second_execution",
            "second_answer",
            "second_effect",
            "contradicted",
            "refused_rows",
            "forgotten_phase",
            "held_report",
        ];
        assert!(AlarmKind::EACH.iter().map(|alarm| alarm.name()).eq(names));
        assert!(names.map(AlarmKind::parse).into_iter().flatten().eq(AlarmKind::EACH.iter().copied()));
    }
}
