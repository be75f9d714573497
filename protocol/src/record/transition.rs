//! A change of a record, as one of the steps of this room made it.

use std::ops::Deref;

use super::{Alarm, BodyId, Note, Record, State};

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

    /// Adds a note on who settled it and why, if it is settled; or on why it is escalated, if it is.
    pub fn because(mut self, note: Note) -> Self {
        if self.state.settled_by().is_some() || self.is_escalated() {
            self.0.note = Some(note);
        }
        self
    }

    /// Notes that domain writes commit with it, if it completes its operation. Returns whether it does.
    pub fn commits(&mut self) -> bool {
        self.0.with_writes = matches!(self.state, State::Completed { .. });
        self.with_writes
    }

    /// The number of one more message that commits with it.
    pub fn next_message(&mut self) -> u32 {
        let number = self.0.messages;
        self.0.messages = number.saturating_add(1);
        number
    }

    /// Raises an alarm with this write, unless the record has it, or too many.
    pub fn raises(mut self, alarm: Alarm) -> Self {
        let has_it = self.alarms.iter().any(|known| known.is_same(&alarm));
        if !has_it && self.has_room_for(&alarm) {
            self.0.alarms.push(alarm);
        }
        self
    }

    /// The same, if this report does not lie beside the record after all.
    pub fn without_report(mut self, id: BodyId) -> Self {
        for alarm in self.0.alarms.iter_mut().filter(|alarm| alarm.report == Some(id)) {
            alarm.report = None;
        }
        self
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
