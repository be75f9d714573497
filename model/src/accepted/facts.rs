//! What the model asks about a record.

use protocol::{
    record::{Evidence, Head, KeptAnswer, Record, SettledBy, State},
    time::Timestamp,
};

use super::protocol::tick;

/// The state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pending,
    InProgress,
    BetweenWorkers,
    Unknown,
    /// Unknown or between workers, and an operator has to settle it.
    Escalated,
    Completed,
    Released,
}

/// The answer of a completed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Effect(u8),
    Refusal(u8),
    /// 408: it was not executed.
    Abandoned,
}

/// What the model asks about a record.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub state: Kind,
    pub attempts: u32,
    pub began: u8,
    pub lease_until: u8,
    /// The life whose request it needs, and until when a worker may claim it.
    pub life: u8,
    pub claim_by: u8,
    /// The answer, if there is one, and when it was written.
    pub answer: Option<Kept>,
    pub completed_at: u8,
    /// When it may be deleted, if ever.
    pub expires_at: Option<u8>,
    pub with_writes: bool,
    /// How many messages were committed with it.
    pub messages: u32,
    /// How many phases are kept or noted.
    pub phases: usize,
}

pub fn facts(record: &Record) -> Facts {
    let (mut answer, mut lease_until, mut completed) = (None, 0, 0);
    let state = match &record.state {
        State::Pending { .. } => Kind::Pending,
        State::InProgress { lease_until: until } => {
            lease_until = tick(*until);
            Kind::InProgress
        }
        State::Completed { answer: kept, completed_at, .. } => {
            (answer, completed) = (Some(answer_of(kept)), tick(*completed_at));
            Kind::Completed
        }
        State::Unknown { reconcile_at: Timestamp::MAX, .. }
        | State::BetweenWorkers { reconcile_at: Timestamp::MAX, .. } => Kind::Escalated,
        State::Unknown { .. } => Kind::Unknown,
        State::BetweenWorkers { .. } => Kind::BetweenWorkers,
        _ => Kind::Released,
    };
    let accepted = record.accepted.as_ref();
    Facts {
        state,
        attempts: record.attempts,
        began: tick(record.began_at),
        lease_until,
        life: accepted.map_or(0, |accepted| accepted.request.as_bytes()[0]),
        claim_by: accepted.map_or(u8::MAX, |accepted| tick(accepted.claim_by)),
        answer,
        completed_at: completed,
        expires_at: record.state.expires_at().filter(|_| record.alarms.is_none()).map(tick),
        with_writes: record.with_writes,
        messages: record.messages,
        phases: record.phases().map_or(0, |phases| phases.kept.len() + phases.noted.len()),
    }
}

fn answer_of(kept: &KeptAnswer) -> Kept {
    let number = u8::try_from(kept.body_length()).unwrap_or(u8::MAX);
    match (&kept.head, kept.head.status()) {
        (Head::Abandoned, _) => Kept::Abandoned,
        (_, Some(201)) => Kept::Effect(number),
        _ => Kept::Refusal(number),
    }
}

/// The names of a record's fields that decide, for a count of their combinations.
pub fn combination(record: &Record) -> String {
    let escalated = facts(record).state == Kind::Escalated;
    let by = record.state.settled_by().or(record.state.released_by()).map_or("", SettledBy::name);
    let answer = match facts(record).answer {
        Some(Kept::Abandoned) => "408",
        Some(Kept::Effect(_)) => "effect",
        Some(Kept::Refusal(_)) => "refusal",
        None => "",
    };
    let phases = record.phases();
    let flags = [
        (escalated, "escalated"),
        (record.reported == Some(Evidence::Perhaps), "perhaps reported"),
        (record.reported == Some(Evidence::Effect), "effect reported"),
        (record.is_transactional(), "transactional"),
        (record.with_writes, "with writes"),
        (phases.is_some_and(|phases| !phases.kept.is_empty()), "kept"),
        (phases.is_some_and(|phases| !phases.noted.is_empty()), "noted"),
        (phases.is_some_and(|phases| phases.begun.is_some()), "a call perhaps begun"),
    ];
    let flags: Vec<_> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    let words = format!("{} {by} {answer} {}", record.state.name(), flags.join(", "));
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
