//! What the model asks about a record.

use protocol::{
    record::{self, Evidence, Head, KeptAnswer, Record, SettledBy},
    time::Timestamp,
};

use super::records::{FIRST_WORKER, tick};

/// The state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
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
    pub state: State,
    /// The worker of its execution.
    pub worker: u8,
    pub attempts: u32,
    /// When its execution began, and until when its lease lasts.
    pub began: u8,
    pub lease_until: u8,
    /// The life whose request it needs, and until when a worker may claim it.
    pub life: u8,
    pub claim_by: u8,
    /// The answer, if there is one, and when it was written.
    pub answer: Option<Kept>,
    pub completed_at: u8,
    /// When it may be deleted, if ever. After that tick, it counts as absent.
    pub expires_at: Option<u8>,
    pub with_writes: bool,
    /// Whether its request was refused before anything was done.
    pub not_begun: bool,
    /// How many messages were committed with it.
    pub messages: u32,
    /// How many phases are kept, and how many are kept or noted.
    pub kept: usize,
    pub phases: usize,
}

impl Facts {
    pub const fn is_effect(&self) -> bool {
        matches!(self.answer, Some(Kept::Effect(_)))
    }

    /// Whether it says that nothing was done.
    pub const fn is_undone(&self) -> bool {
        matches!(self.state, State::Released) || matches!(self.state, State::Completed) && !self.is_effect()
    }

    /// The number of the answer.
    pub const fn number(&self) -> u8 {
        match self.answer {
            Some(Kept::Effect(number) | Kept::Refusal(number)) => number,
            _ => 0,
        }
    }
}

pub fn facts(record: &Record) -> Facts {
    let (mut answer, mut lease_until, mut completed_at) = (None, 0, 0);
    let state = match &record.state {
        record::State::Pending { .. } => State::Pending,
        record::State::InProgress { lease_until: until } => {
            lease_until = tick(*until);
            State::InProgress
        }
        record::State::Completed { answer: kept, completed_at: at, .. } => {
            (answer, completed_at) = (Some(answer_of(kept)), tick(*at));
            State::Completed
        }
        record::State::Unknown { reconcile_at: Timestamp::MAX, .. }
        | record::State::BetweenWorkers { reconcile_at: Timestamp::MAX, .. } => State::Escalated,
        record::State::Unknown { .. } => State::Unknown,
        record::State::BetweenWorkers { .. } => State::BetweenWorkers,
        record::State::FailedRetryable { .. } => State::Released,
    };
    let (accepted, phases) = (record.accepted.as_ref(), record.phases());
    let kept = phases.map_or(0, |phases| phases.kept.len());
    Facts {
        state,
        worker: record.attempt.as_bytes()[0].wrapping_sub(FIRST_WORKER),
        attempts: record.attempts,
        began: tick(record.began_at),
        lease_until,
        life: accepted.map_or(0, |accepted| accepted.request.as_bytes()[0]),
        claim_by: accepted.map_or(u8::MAX, |accepted| tick(accepted.claim_by)),
        answer,
        completed_at,
        expires_at: record.state.expires_at().filter(|_| record.alarms.is_empty()).map(tick),
        with_writes: record.with_writes,
        not_begun: record.is_not_begun(),
        messages: record.messages,
        kept,
        phases: kept + phases.map_or(0, |phases| phases.noted.len()),
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

/// The names of a record's fields that decide, for a count of their combinations. Alarms decide nothing but that the record stays.
pub fn combination(record: &Record) -> String {
    let Facts { state, answer, .. } = facts(record);
    let by = record.state.settled_by().or(record.state.released_by()).map_or("", SettledBy::name);
    // Accepted work is told apart by its answer, and the rest by why it is unknown.
    let word = match (&record.state, answer) {
        (_, Some(Kept::Abandoned)) => "408",
        (_, Some(Kept::Effect(_))) if record.accepted.is_some() => "effect",
        (_, Some(Kept::Refusal(_))) if record.accepted.is_some() => "refusal",
        (record::State::Unknown { cause, .. }, _) if record.accepted.is_none() => cause.name(),
        _ => "",
    };
    let phases = record.phases();
    let flags = [
        (state == State::Escalated, "escalated"),
        (record.reported == Some(Evidence::Perhaps), "perhaps reported"),
        (record.reported == Some(Evidence::Effect), "effect reported"),
        (record.is_transactional(), "transactional"),
        (record.with_writes, "with writes"),
        (phases.is_some_and(|phases| !phases.kept.is_empty()), "kept"),
        (phases.is_some_and(|phases| !phases.noted.is_empty()), "noted"),
        (phases.is_some_and(|phases| phases.begun.is_some()), "a call perhaps begun"),
    ];
    let flags: Vec<_> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    let words = format!("{} {by} {word} {}", record.state.name(), flags.join(", "));
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
