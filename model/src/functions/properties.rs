//! What must hold in every execution.

use std::time::Duration;

use lambda_idempotency::{
    record::{AttemptId, Effects, Evidence, Record, State},
    time_budget::STORE_TIMEOUT,
};
use serde_json::Value;

use super::{
    answers::{Received, is_effect, is_pending, kept_effect, may_begin},
    call::Source,
    ids::{KEYS, KeyId, ProcessId, THE_KEY, record_key},
    input::InputMessage,
    universe::{Message, Process, Universe},
};
use crate::kernel::violation::Violation;

/// Short, so that a report is given up after few tries.
pub const COMPLETION_TIMEOUT: Duration = Duration::from_millis(400);

/// How often a message may be received: some waits in flight, those between questions, and those after attempts.
const MAX_RECEIVES: u32 = 20;

/// Whether a message was received again and again.
pub fn received_too_often(message: &InputMessage) -> Option<Violation> {
    (message.receives > MAX_RECEIVES).then_some(Violation::TooManyReceives)
}

/// Whether the message says that there was an effect.
fn reports_effect(message: &Message) -> bool {
    if message.source == Source::Events {
        return true;
    }
    let Ok(body) = serde_json::from_str::<Value>(&message.body) else { return false };
    let status = body["item"]["status"]["N"].as_str().and_then(|status| status.parse().ok());
    let by_worker = status.is_some_and(is_effect)
        || body["item"]["head"]["S"] == "payload"
        || body["ended"] == "uncommitted";
    match body["kind"].as_str() {
        Some("deferred_report") => by_worker,
        Some("provider_report") => true,
        _ => false,
    }
}

/// What it violates that this message is removed from its queue.
pub fn acknowledged(all: &Universe, message: &Message) -> Option<Violation> {
    if message.source == Source::Stream {
        return None;
    }
    let record = all.shelf(all.key_in(&message.body)).record();
    if message.source == Source::Checks {
        let state = record.map(|record| &record.state);
        let open = matches!(state, Some(State::InProgress { .. } | State::Pending { .. }));
        let looked_later = all.messages.iter().any(|other| other.source == Source::Checks);
        return (open && !looked_later).then_some(Violation::Acknowledged);
    }
    let known = match record {
        Some(Record { effects: Effects::InPhases(phases), .. })
            if !phases.kept.is_empty() || !phases.noted.is_empty() =>
        {
            true
        }
        Some(Record { reported: Some(Evidence::Effect), .. }) => true,
        Some(Record { state: State::Completed { answer, .. }, .. }) => kept_effect(answer),
        _ => false,
    };
    let transactional = !all.scenario.is_by_provider();
    if known || transactional {
        return None;
    }
    let kept = all.is_visible() || all.messages.iter().any(reports_effect);
    (reports_effect(message) && !kept).then_some(Violation::Acknowledged)
}

impl Universe {
    /// A handler is about to begin.
    pub fn begins(&mut self, process: ProcessId, key: KeyId, attempt: AttemptId) {
        self.tell(|all| format!("{} owns the record", all.name(process)));
        self.process(process).began = true;
        self.tries(process, key);
        // By its own clock: another one may count it as dead too early, and never as alive for too long.
        let now = self.now(process);
        let owns = self.shelf(key).record().is_some_and(|record| {
            let live = matches!(record.state, State::InProgress { lease_until } if now < lease_until);
            live && record.attempt == attempt
        });
        if !owns {
            self.violate(Violation::BeganWithoutLease);
        }
        if !self.shelf(key).record().is_none_or(may_begin) {
            self.violate(Violation::TooManyAttempts);
        }
        if self.scenario.input.is_some() {
            self.begins_message(key);
        }
    }

    /// A write that got no answer is applied late: it was called `at` this time. If it is a reservation, its process must
    /// still take it back, or have tried to for its time, or its report that nothing has started waits in the queue.
    pub fn landed(&mut self, process: ProcessId, key: KeyId, at: u64) {
        let taking_back = (STORE_TIMEOUT + COMPLETION_TIMEOUT).as_millis();
        let Process { began, faults, ended_at, .. } = *self.process(process);
        let ended_early = ended_at.is_some_and(|ended| u128::from(ended - at) < taking_back);
        let is_open =
            self.shelf(key).record().is_some_and(|record| matches!(record.state, State::InProgress { .. }));
        if ended_early && !began && faults == 1 && is_open && !self.has_deferred() {
            self.violate(Violation::NotTakenBack);
        }
    }

    /// Whether a report waits in the queue of deferred reports.
    pub fn has_deferred(&self) -> bool {
        self.messages.iter().any(|message| message.source == Source::Reconcile)
    }

    /// A client gets its answer.
    pub fn answered(&mut self, process: ProcessId, received: Received) {
        self.tell(|all| format!("{}'s client gets {received}", all.name(process)));
        self.received.push((process, received));
        self.told(received);
        if received == Received::Accepted && self.shelf(THE_KEY).record().is_none() {
            self.violate(Violation::FalseAnswer);
        }
        let has_body = self.shelf(THE_KEY).has_body(self.clock);
        if matches!(received, Received::Omitted(_)) && has_body {
            self.violate(Violation::FalseAnswer);
        }
        let Received::Answer(status, number) = received else { return };
        let (by_provider, shelf) = (self.scenario.is_by_provider(), self.shelf(THE_KEY));
        let happened = shelf.effects.iter().any(|effect| u64::from(*effect) + 1 == number);
        let committed = shelf.rows > 0;
        if is_effect(status) && !(if by_provider { happened } else { committed }) {
            self.violate(Violation::FalseAnswer);
        }
    }

    /// The number of the key in this message.
    pub fn key_in(&self, body: &str) -> KeyId {
        let has_record = |key: &KeyId| body.contains(&record_key(*key).partition_key());
        let names = |key: &KeyId| body.contains(&format!(r#""{}""#, KEYS[usize::from(*key)]));
        // A member of a report may be named as a key is.
        let keys = || 0..self.scenario.keys();
        keys().find(has_record).or_else(|| keys().find(names)).unwrap_or(THE_KEY)
    }

    /// A message's function is about to begin.
    fn begins_message(&mut self, key: KeyId) {
        let Some(input) = self.scenario.input else { return };
        let progress = &mut self.input.progress[usize::from(key)];
        progress.begun += 1;
        // Each fault may cost an execution, and each further message is tried once.
        let most = input.max_attempts + progress.sent - 1 + u32::from(self.faults);
        if progress.begun > most {
            self.violate(Violation::TooManyAttempts);
        }
        let before = input.keys.iter().take_while(|other| **other != key).copied();
        let is_settled = |key: KeyId| {
            let progress = &self.input.progress[usize::from(key)];
            self.is_settled(key) || progress.was_buried || progress.trimmed > 0
        };
        if input.is_ordered() && !before.into_iter().all(is_settled) {
            self.violate(Violation::OutOfOrder);
        }
    }

    /// Whether a message of this key needs no further delivery: its record is completed, or a worker knows that its effect was executed.
    /// If that worker's report is lost, the provider is asked, and confirms it.
    fn is_settled(&self, key: KeyId) -> bool {
        self.input.progress[usize::from(key)].is_done || self.shelf(key).answer().is_some()
    }

    /// What it violates that this message is gone.
    pub fn ended(&self, message: &InputMessage) -> Option<Violation> {
        let key = message.key;
        let is_settled = match message.source {
            Source::Input if self.scenario.accepts.is_some() => self.shelf(key).record().is_some(),
            Source::Input | Source::Parked => self.is_settled(key),
            Source::Work => !self.shelf(key).record().is_some_and(is_pending),
            _ => true,
        };
        let was_buried = self.input.progress[usize::from(key)].was_buried;
        (!is_settled && !was_buried).then_some(Violation::Acknowledged)
    }
}
