//! What clients get, and what a write of the record violates.

use std::time::Duration;

use lambda_idempotency::{
    record::{Answer, AnswerKind, Head, KeptAnswer, Record, State},
    time::Timestamp,
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

/// Whether this execution of accepted work may begin: it is not one too many, or it resumes behind what is kept.
pub fn may_begin(record: &Record) -> bool {
    let is_over = record.accepted.is_some_and(|accepted| record.attempts > accepted.max_attempts);
    !is_over || record.phases().is_some_and(|phases| !phases.kept.is_empty())
}

/// Whether this is accepted work that has not ended.
pub fn is_pending(record: &Record) -> bool {
    record.accepted.is_some() && !matches!(record.state, State::Completed { .. })
}
