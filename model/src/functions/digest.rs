//! Digests of what a state holds. They are the same in every run.

use std::hash::{DefaultHasher, Hash, Hasher};

use lambda_idempotency::record::{Head, KeptAnswer, Phase, Record, State};

/// The digest of a value. The same in every run.
pub fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn answer_digest(answer: &KeptAnswer) -> u64 {
    let id = answer.body_id().map(|id| *id.as_bytes());
    digest(&(
        answer.head.status(),
        matches!(answer.head, Head::Payload),
        answer.body_length(),
        answer.body_place(),
        id,
    ))
}

/// The digest of a record, without its notes.
pub fn record_digest(record: &Record) -> u64 {
    let state = match &record.state {
        State::InProgress { lease_until } => digest(&lease_until),
        State::Completed { answer, completed_at, by, expires_at } => {
            digest(&(answer_digest(answer), completed_at, by.name(), expires_at))
        }
        State::FailedRetryable { failed_at, by, expires_at } => digest(&(failed_at, by.name(), expires_at)),
        State::Unknown { cause, since, reconcile_at, asked, anew_at } => {
            digest(&(cause.name(), since, reconcile_at, asked, anew_at))
        }
        State::BetweenWorkers { since, reconcile_at } => digest(&(since, reconcile_at)),
        State::Pending { released_by } => digest(&released_by.map(|by| by.name())),
    };
    let phase = |phase: &Phase| digest(&(&phase.name, &phase.result, phase.at));
    let all = |phases: &[Phase]| phases.iter().map(phase).collect::<Vec<_>>();
    let phases = record.phases().map(|phases| (all(&phases.kept), all(&phases.noted), phases.begun));
    let ids = (record.revision.as_bytes(), record.attempt.as_bytes(), record.attempts);
    let times = (record.created_at, record.began_at, record.retention);
    let accepted = record.accepted.map(|accepted| (*accepted.request.as_bytes(), accepted.claim_by));
    let marks = (record.reported, record.is_transactional(), record.with_writes, record.messages, accepted);
    digest(&(record.state.name(), state, ids, times, marks, phases))
}
