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
}

impl Watched {
    pub fn new(alarm: Alarm) -> Self {
        let states = Reading::all().map(|reading| (reading, AlarmState::InsufficientData)).collect();
        Self { alarm, states, came: None, ended: None }
    }

    /// CloudWatch evaluates each minute. Of a week, that would take long.
    pub fn step(&self) -> u64 {
        (self.alarm.window() / 100).max(1)
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
