//! The timeline of one idempotency key.

use serde_json::Value;
use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

/// Steps that are kept of one key. Later ones are only counted.
const MAX_STEPS: usize = 300;

/// What happened to a key.
#[derive(Clone)]
pub struct Timeline {
    pub tenant: String,
    pub key: String,
    pub steps: Vec<Step>,
    /// How many steps were left out, because there were too many.
    pub left_out: u64,
    /// The records of this key, as they were written last.
    records: BTreeMap<String, Value>,
}

/// One step, or several that are the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Milliseconds since 1970.
    pub at: u64,
    pub who: String,
    pub kind: Kind,
    pub what: String,
    /// How often, before something else was decided.
    pub times: u32,
    pub round_trips: u32,
    /// Capacity units.
    pub units: f64,
}

/// What kind of step it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Answer,
    /// A record is changed.
    Change,
    /// A record is read, or a change is refused.
    Look,
    Call,
    /// A function gets an event.
    Event,
    /// A process ends, or is frozen.
    End,
}

impl Kind {
    /// Its class in the page's style.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Answer => "answer",
            Self::Change => "change",
            Self::Look => "look",
            Self::Call => "call",
            Self::Event => "event",
            Self::End => "end",
        }
    }

    /// Whether steps before it and after it are never the same.
    const fn divides(self) -> bool {
        matches!(self, Self::Change | Self::Call | Self::End)
    }
}

impl Step {
    pub fn new(who: &str, kind: Kind, what: &str) -> Self {
        let (who, what) = (who.to_owned(), what.to_owned());
        Self { at: now(), who, kind, what, times: 1, round_trips: 0, units: 0.0 }
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl Timeline {
    pub fn new(tenant: &str, key: &str) -> Self {
        let (tenant, key) = (tenant.to_owned(), key.to_owned());
        Self { tenant, key, steps: Vec::new(), left_out: 0, records: BTreeMap::new() }
    }

    /// `acme · order-1`.
    pub fn name(&self) -> String {
        format!("{} · {}", self.tenant, self.key)
    }

    /// The partition keys of its records.
    pub fn records(&self) -> impl Iterator<Item = &str> {
        self.records.keys().map(String::as_str)
    }

    /// Adds a step. The same as one since the last decision is counted there: of a hundred requests at once, the page shows one line.
    pub fn add(&mut self, step: Step) {
        if !step.kind.divides() {
            let since = self.steps.iter().rposition(|earlier| earlier.kind.divides()).map_or(0, |at| at + 1);
            let is_same = |earlier: &&mut Step| {
                (&earlier.who, earlier.kind, &earlier.what) == (&step.who, step.kind, &step.what)
            };
            if let Some(same) = self.steps[since..].iter_mut().find(is_same) {
                same.times += 1;
                same.round_trips += step.round_trips;
                same.units += step.units;
                return;
            }
        }
        match self.steps.len() < MAX_STEPS {
            true => self.steps.push(step),
            false => self.left_out += 1,
        }
    }

    /// The record, as it was written last; `Null` if it was not.
    pub fn last_seen(&self, record: &str) -> &Value {
        self.records.get(record).unwrap_or(&Value::Null)
    }

    /// A call was about this record, and has written this item.
    pub fn see(&mut self, record: &str, item: Option<&Value>) {
        let seen = self.records.entry(record.to_owned()).or_default();
        if let Some(item) = item.filter(|item| item["pk"]["S"] == record) {
            *seen = item.clone();
        }
    }

    /// Its round trips to the table, and its capacity units.
    pub fn cost(&self) -> (u32, f64) {
        self.steps
            .iter()
            .fold((0, 0.0), |(trips, units), step| (trips + step.round_trips, units + step.units))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_steps_are_one_until_something_is_decided() {
        let mut timeline = Timeline::new("acme", "k");
        let look = || Step { round_trips: 1, units: 1.0, ..Step::new("pay", Kind::Look, "refused") };
        for step in [
            Step::new("client", Kind::Request, "POST /pay"),
            Step::new("client", Kind::Request, "POST /pay"),
            Step::new("pay", Kind::Change, "reserve"),
            look(),
            Step::new("client", Kind::Request, "POST /pay"),
            look(),
            Step::new("pay", Kind::Call, "charge"),
            Step::new("pay", Kind::Call, "charge"),
            look(),
        ] {
            timeline.add(step);
        }
        let shown: Vec<_> = timeline.steps.iter().map(|step| (&*step.what, step.times)).collect();
        let expected = [
            ("POST /pay", 2),
            ("reserve", 1),
            ("refused", 2),
            ("POST /pay", 1),
            ("charge", 1),
            ("charge", 1),
            ("refused", 1),
        ];
        assert_eq!(shown, expected);
        assert_eq!(timeline.cost(), (3, 3.0));
        (0..MAX_STEPS).for_each(|_| timeline.add(Step::new("pay", Kind::Call, "charge")));
        assert_eq!((timeline.steps.len(), timeline.left_out), (MAX_STEPS, 7));
    }
}
