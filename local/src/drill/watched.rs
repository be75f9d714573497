//! An alarm that a drill watches.

use crate::alarms::{Alarm, AlarmState, Reading, Recorded};

/// An alarm, since its drill began.
pub struct Watched {
    pub alarm: Alarm,
    /// In each reading of what AWS's documents leave open.
    states: Vec<(Reading, AlarmState)>,
    /// The minute at which it was on, in all readings.
    pub came: Option<u64>,
    /// The minute after that at which it was off again.
    pub ended: Option<u64>,
    /// Since when nothing has changed.
    unchanged: u64,
}

impl Watched {
    pub fn new(alarm: Alarm) -> Self {
        let states = Reading::all().map(|reading| (reading, AlarmState::InsufficientData)).collect();
        Self { alarm, states, came: None, ended: None, unchanged: 0 }
    }

    /// Whether it is evaluated at the begin of this minute. CloudWatch does that each minute; of a week, that would take long.
    pub fn is_due(&self, minute: u64) -> bool {
        let step = (self.alarm.window() / 100).max(1);
        let is_quiet = minute > self.unchanged + 3 * HOUR;
        minute.is_multiple_of(if is_quiet { step.max(HOUR / 2) } else { step })
    }

    /// Something has changed: it is evaluated more often again.
    pub fn changed(&mut self, minute: u64) {
        self.unchanged = minute;
    }

    /// Evaluates it at the begin of this minute.
    pub fn evaluate(&mut self, recorded: &Recorded, minute: u64) -> Result<(), String> {
        for (reading, state) in &mut self.states {
            *state = self.alarm.state(recorded, minute, *state, *reading)?;
        }
        let on = self.states.iter().filter(|(_, state)| *state == AlarmState::Alarm).count();
        if on == self.states.len() {
            self.came.get_or_insert(minute);
        } else if on == 0 && self.came.is_some() {
            self.ended.get_or_insert(minute);
        }
        Ok(())
    }

    /// Whether it is on in any reading.
    pub fn is_on(&self) -> bool {
        self.states.iter().any(|(_, state)| *state == AlarmState::Alarm)
    }

    /// Forgets what was before the drill, but not its state.
    pub fn begin(&mut self) {
        (self.came, self.ended) = (None, None);
    }

    /// How many minutes its drill waits for it to come, at most.
    pub fn comes_within(&self) -> u64 {
        2 * self.alarm.window() + 4 * self.alarm.period() + 2 * HOUR
    }

    /// How many minutes its drill waits for it to end, at most: until daily jobs have run, and as far as CloudWatch looks back.
    pub fn ends_within(&self) -> u64 {
        self.alarm.window() + 12 * self.alarm.period() + 25 * HOUR
    }
}

const HOUR: u64 = 60;
