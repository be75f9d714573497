//! What must hold in every execution.

use std::time::Duration;

use lambda_idempotency::{
    record::{Answer, AnswerKind, AttemptId, Effects, Evidence, Head, KeptAnswer, Record, State},
    time::Timestamp,
    time_budget::STORE_TIMEOUT,
};
use serde_json::Value;

use super::{
    accepted,
    call::Source,
    input::InputMessage,
    processes::COMPLETION_TIMEOUT,
    scenario::{KeyId, THE_KEY},
    shelf::{KEYS, record_key},
    universe::{Message, Process, ProcessId, Universe},
};
use crate::kernel::violation::Violation;

/// What a client got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Received {
    /// An answer with this status, and a body of this length.
    Answer(u16, u64),
    /// The kept answer, without its body.
    Omitted(u16),
    /// 202: it is accepted, or in flight.
    Accepted,
    /// That it should ask again.
    Again,
    /// That this key leads to nothing.
    GivesUp(GivesUp),
}

/// Why a client uses its key no more, or for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GivesUp {
    /// It is too old to begin an execution, and there is no answer.
    TooOld,
    /// It was used for another request.
    Reused,
    /// The request was refused before anything was done: the key is free.
    NotBegun,
}

impl Received {
    pub fn of(answer: &Answer) -> Self {
        Self::Answer(answer.head.status().unwrap_or_default(), answer.body.len() as u64)
    }
}

pub const fn is_effect(status: u16) -> bool {
    matches!(status, 200..=399)
}

pub fn kept_effect(answer: &KeptAnswer) -> bool {
    match &answer.head {
        Head::Http { status, .. } => is_effect(*status),
        head => matches!(head, Head::Payload),
    }
}

/// Whether callers who read this kind of answer can read this one. Each front says by itself that work was abandoned.
const fn can_be_read(kind: AnswerKind, head: &Head) -> bool {
    matches!(
        (kind, head),
        (_, Head::Abandoned)
            | (AnswerKind::Http, Head::Http { .. })
            | (AnswerKind::Function, Head::Payload | Head::Refusal)
    )
}

/// The longest lease: `MAX_DEADLINE`, and the grace.
const MAX_LEASE: Duration = Duration::from_secs(31 * 60);

/// How late a question may be: a day, and what clocks may be apart.
const MAX_QUESTION: Duration = Duration::from_secs(25 * 3600);

/// What an applied write violates. `retention` is that of the guard.
pub fn written(
    before: Option<&Record>,
    after: &Record,
    now: Timestamp,
    retention: Duration,
) -> Option<Violation> {
    // The provider knows executions of one key by this: what it remembers, a reconciler asks for.
    let is_same = |before: &Record| before.created_at == after.created_at && !before.expired(now);
    if before.is_some_and(|before| is_same(before) && before.fingerprint != after.fingerprint) {
        return Some(Violation::AnotherDownstreamKey);
    }
    match (before.map(|before| &before.state), &after.state) {
        (_, State::InProgress { lease_until }) if *lease_until > now.plus(MAX_LEASE) => {
            Some(Violation::EndlessLease)
        }
        (_, State::Unknown { reconcile_at, .. })
            if *reconcile_at != Timestamp::MAX && *reconcile_at > now.plus(MAX_QUESTION) =>
        {
            Some(Violation::PutOff)
        }
        // A worker may claim its own record back.
        (Some(State::Unknown { .. }), State::InProgress { .. })
            if before.is_some_and(|before| before.attempt != after.attempt) =>
        {
            Some(Violation::RanWhileUnknown)
        }
        (_, State::Completed { answer, .. }) if !can_be_read(after.answer_kind, &answer.head) => {
            Some(Violation::WrongKind)
        }
        (_, State::Completed { completed_at, expires_at, .. })
            if *expires_at < completed_at.plus(retention) =>
        {
            Some(Violation::KeptTooShort)
        }
        (Some(State::Completed { answer: kept, expires_at, .. }), State::Completed { answer, .. })
            if now < *expires_at && kept != answer =>
        {
            Some(Violation::TwoAnswers)
        }
        _ => None,
    }
}

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
        if !self.shelf(key).record().is_none_or(accepted::may_begin) {
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
        let names = |key: &KeyId| {
            let own = format!(r#""{}""#, KEYS[usize::from(*key)]);
            body.contains(&record_key(*key).partition_key()) || body.contains(&own)
        };
        (0..self.scenario.keys()).find(names).unwrap_or(THE_KEY)
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
        let is_settled =
            |key: KeyId| self.is_settled(key) || self.input.progress[usize::from(key)].was_buried;
        if input.is_fifo && !before.into_iter().all(is_settled) {
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
            Source::Input => self.is_settled(key),
            Source::Work => !self.shelf(key).record().is_some_and(accepted::is_pending),
            _ => true,
        };
        let was_buried = self.input.progress[usize::from(key)].was_buried;
        (!is_settled && !was_buried).then_some(Violation::Acknowledged)
    }
}
