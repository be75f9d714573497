//! A change of a record, as one of the steps of this room made it.

use std::ops::Deref;

use super::{Alarm, Alarms, BodyId, MAX_REPORTS, Note, Record, State};
use crate::time::Timestamp;

/// The record that a step makes of another one. Only the steps of [`record`](super) can make it, and the engine writes nothing
/// else: so no record changes in another way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition(Box<Record>);

impl Transition {
    pub(super) fn to(record: Record) -> Self {
        Self(Box::new(record))
    }

    /// The record to write.
    pub fn into_record(self) -> Box<Record> {
        self.0
    }

    /// Adds a note on why its execution failed, if it failed.
    pub fn failed(mut self, because: Option<Note>) -> Self {
        if because.is_some()
            && matches!(
                self.state,
                State::Pending { .. }
                    | State::Unknown { .. }
                    | State::BetweenWorkers { .. }
                    | State::FailedRetryable { .. }
            )
        {
            self.0.last_failure = because;
        }
        self
    }

    /// Adds a note on who settled it and why, if it is settled.
    pub fn settled_because(mut self, note: Note) -> Self {
        if self.state.settled_by().is_some() {
            self.0.settled_note = Some(note);
        }
        self
    }

    /// Notes that domain writes commit with it, if it completes its operation. Returns whether it does.
    pub fn commits(&mut self) -> bool {
        self.0.with_writes = matches!(self.state, State::Completed { .. });
        self.with_writes
    }
}

impl Transition {
    /// The number of one more message that commits with it.
    pub fn next_message(&mut self) -> u32 {
        let number = self.0.messages;
        self.0.messages = number.saturating_add(1);
        number
    }
}

impl Transition {
    /// Raises an alarm with this write.
    pub fn alarms(mut self, alarm: Alarm, because: &str, now: Timestamp) -> Self {
        let before = self.alarms.clone();
        let (mut kinds, reports) =
            before.map_or_else(Default::default, |before| (before.kinds, before.reports));
        kinds.insert(alarm);
        let because = Note::new(because);
        self.0.alarms = Some(Box::new(Alarms { kinds, because, raised_at: now, is_told: false, reports }));
        self
    }

    /// Names a report that this write puts beside the record. `None` if there are too many.
    pub(super) fn keeps_report(mut self) -> Option<Self> {
        let id = BodyId::from(*self.revision.as_bytes());
        let alarms = self.0.alarms.as_mut().filter(|alarms| alarms.reports.len() < MAX_REPORTS)?;
        alarms.reports.push(id);
        Some(self)
    }
}

impl Deref for Transition {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.0
    }
}

impl From<Transition> for Record {
    fn from(transition: Transition) -> Self {
        *transition.0
    }
}
