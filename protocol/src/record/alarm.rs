//! Alarms: what operators must look at, whatever becomes of the operation.
//!
//! 1. An alarm is raised by a swap of the record that it is about, often the same that writes a report. So none is forgotten between
//!    two writes.
//! 2. A report that its record does not take lies beside it, as a body item that the alarm names: answer, phases and domain writes.
//! 3. It stands until an operator clears it. A record with an alarm has no time to live, and never counts as absent.
//! 4. The poll tells operators of it, once.

use std::collections::BTreeSet;

use super::{BodyId, Note, named_enum::names};
use crate::time::Timestamp;

/// How many reports lie beside one record. With more, something is wrong that no single report explains.
pub const MAX_REPORTS: usize = 16;

/// Why operators must look at a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alarm {
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
    /// A worker reports what became of a record that an operator holds.
    HeldReport,
}

names! {
    pub Alarm {
        SecondExecution: "second_execution",
        SecondAnswer: "second_answer",
        SecondEffect: "second_effect",
        Contradicted: "contradicted",
        RefusedRows: "refused_rows",
        ForgottenPhase: "forgotten_phase",
        HeldReport: "held_report",
    }
}

/// The alarms of one record, since an operator last cleared them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarms {
    /// Which: at least one.
    pub kinds: BTreeSet<Alarm>,
    /// Why the last one was raised, for operators.
    pub because: Note,
    /// When it was.
    pub raised_at: Timestamp,
    /// Whether operators have been told of all.
    pub is_told: bool,
    /// The reports that lie beside the record, the last one last.
    pub reports: Vec<BodyId>,
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
        assert!(Alarm::EACH.iter().map(|alarm| alarm.name()).eq(names));
        assert!(names.map(Alarm::parse).into_iter().flatten().eq(Alarm::EACH.iter().copied()));
    }
}
