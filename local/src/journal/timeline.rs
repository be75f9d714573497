//! The timeline of one idempotency key.

use bytes::Bytes;
use lambda_idempotency::key::RecordKey;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    ops::AddAssign,
    time::{SystemTime, UNIX_EPOCH},
};

/// Steps that are kept of one key. Later ones are only counted.
const MAX_STEPS: usize = 300;

/// Where a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client sends it.
    Client,
    /// Of a message, or of an event.
    Message,
    /// It was only looked up: it has no record.
    LookUp,
}

/// What happened to a key.
#[derive(Clone)]
pub struct Timeline {
    pub tenant: String,
    pub key: String,
    /// What a client sends with this key; `None` of a key that no client sends.
    pub sent: Option<Sent>,
    pub steps: Vec<Step>,
    /// How many steps were left out, because there were too many.
    pub left_out: u64,
    /// All round trips, also of the steps that were left out.
    pub cost: Cost,
    /// The records of this key, as they were written last.
    records: BTreeMap<String, Value>,
}

/// Round trips to DynamoDB, and capacity units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub round_trips: u32,
    pub reads: f64,
    pub writes: f64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.round_trips += other.round_trips;
        self.reads += other.reads;
        self.writes += other.writes;
    }
}

/// A request with a key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sent {
    /// Method, path and query.
    pub route: String,
    pub client: String,
    pub content_type: String,
    /// `None` if it is too long to be kept.
    pub body: Option<Bytes>,
}

impl Sent {
    /// The longest body that is kept.
    pub const MAX_BODY: usize = 64 * 1024;

    /// The body, if it is text.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.body.as_ref()?).ok()
    }
}

/// One step, or several that are the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Milliseconds since 1970.
    pub at: u64,
    /// The last time, if it was several times.
    pub until: u64,
    pub who: String,
    pub kind: Kind,
    pub what: String,
    /// How often, before something else was decided.
    pub times: u32,
    pub cost: Cost,
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
        let (who, what, now) = (who.to_owned(), what.to_owned(), now());
        Self { at: now, until: now, who, kind, what, times: 1, cost: Cost::default() }
    }
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl Timeline {
    pub fn new(tenant: &str, key: &str) -> Self {
        let (tenant, key) = (tenant.to_owned(), key.to_owned());
        let (steps, cost, records) = (Vec::new(), Cost::default(), BTreeMap::new());
        Self { tenant, key, sent: None, steps, left_out: 0, cost, records }
    }

    /// `acme · order-1`.
    pub fn name(&self) -> String {
        format!("{} · {}", self.tenant, self.key)
    }

    /// A client sends this. The first request counts: a retry sends it again. One that did nothing leaves the key to the next.
    pub fn send(&mut self, sent: Sent) {
        let is_free = |record: &Value| record["settled_by"]["S"] == "not_begun";
        if self.sent.is_none() || self.records.values().all(is_free) {
            self.sent = Some(sent);
        }
    }

    /// Where its key comes from.
    pub fn origin(&self) -> Origin {
        match (&self.sent, self.records.values().any(Value::is_object)) {
            (Some(_), _) => Origin::Client,
            (None, true) => Origin::Message,
            (None, false) => Origin::LookUp,
        }
    }

    /// When the last step was.
    pub fn at(&self) -> u64 {
        self.steps.iter().map(|step| step.until).max().unwrap_or_default()
    }

    /// The operations of its records, and their states as they were written last.
    pub fn states(&self) -> Vec<(String, String)> {
        let known = self.records.iter().filter_map(|(record, item)| {
            let key = RecordKey::from_partition_key(record)?;
            Some((key.operation().to_string(), item["state"]["S"].as_str()?.to_owned()))
        });
        known.collect()
    }

    /// The partition keys of its records.
    pub fn records(&self) -> impl Iterator<Item = &str> {
        self.records.keys().map(String::as_str)
    }

    /// Adds a step. The same as one since the last decision is counted there: of a hundred requests at once, the page shows one line.
    pub fn add(&mut self, step: Step) {
        self.cost += step.cost;
        if !step.kind.divides() {
            let since = self.steps.iter().rposition(|earlier| earlier.kind.divides()).map_or(0, |at| at + 1);
            let is_same = |earlier: &&mut Step| {
                (&earlier.who, earlier.kind, &earlier.what) == (&step.who, step.kind, &step.what)
            };
            if let Some(same) = self.steps[since..].iter_mut().find(is_same) {
                same.times += 1;
                same.until = step.at;
                same.cost += step.cost;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_steps_are_one_until_something_is_decided() {
        let mut timeline = Timeline::new("acme", "k");
        let cost = Cost { round_trips: 1, reads: 0.0, writes: 1.0 };
        let look = || Step { cost, ..Step::new("pay", Kind::Look, "refused") };
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
        assert_eq!(timeline.cost, Cost { round_trips: 3, reads: 0.0, writes: 3.0 });
        (0..MAX_STEPS).for_each(|_| timeline.add(Step::new("pay", Kind::Call, "charge")));
        assert_eq!((timeline.steps.len(), timeline.left_out), (MAX_STEPS, 7));
        timeline.add(Step { cost, ..Step::new("pay", Kind::Change, "complete") });
        assert_eq!((timeline.left_out, timeline.cost.round_trips), (8, 4), "it is counted all the same");
    }
}
