//! The steps that change a record, for the model.

use crate::{
    operation::Operation,
    record::{
        Answer, AttemptId, Effects, KeptAnswer, KeptBody, Phase, Record, Resumes, Revision, SettledBy,
        Verdict,
    },
    time::Timestamp,
};

pub use crate::{
    backoff::Backoff,
    reconcile::{
        learned::{Asked, Asks, Learned, NotFound, questions},
        schedule::Schedule,
    },
};
pub use protocol::record::{
    Admission, Counts, Deferred, Delivered, Ending, Found, Instead, Next, NotTaken, Refusal, Report,
    ReservationRequest, Rows, Says, SoFar, Step, Told, Transition, Written, decide,
};

/// Where all effects of this operation are, and how it resumes if they are in its phases.
pub fn effects(operation: &Operation) -> Effects<Resumes> {
    operation.effects()
}

/// A heartbeat of this execution.
pub fn extend(
    current: &Record,
    attempt: AttemptId,
    revision: Revision,
    until: Timestamp,
) -> Option<Transition> {
    current.extend(attempt, revision, until)
}

/// A provider's report of an effect claims the record.
pub fn claim(current: &Record, revision: Revision, now: Timestamp) -> Option<Transition> {
    current.claim(revision, now, now)
}

/// A dead worker's lease ends.
pub fn expire(current: &Record, revision: Revision, now: Timestamp) -> Option<Transition> {
    current.expire(revision, now)
}

/// Accepted work that no worker has claimed in time ends.
pub fn abandon(current: &Record, revision: Revision, now: Timestamp) -> Option<Transition> {
    current.abandon(revision, now)
}

/// The stale function looks: it does either.
pub fn expire_or_abandon(current: &Record, revision: Revision, now: Timestamp) -> Option<Transition> {
    current.expire_or_abandon(revision, now)
}

/// Whether the sweep queues it for a worker.
pub fn waits_for_a_worker(current: &Record) -> bool {
    current.waits_for_a_worker()
}

/// The number of one more message that commits with this record.
pub fn next_message(next: &mut Transition) -> u32 {
    next.next_message()
}

/// An operator settles the record: with this answer, or as not executed.
pub fn settle(
    current: &Record,
    answer: Option<KeptAnswer>,
    revision: Revision,
    now: Timestamp,
) -> Option<Transition> {
    let verdict = answer.map_or(Verdict::NotExecuted, Verdict::Executed);
    current.settle(verdict, SettledBy::Operator, revision, now).ok()
}

/// An operator holds what was released.
pub fn hold(current: &Record, revision: Revision, now: Timestamp) -> Option<Transition> {
    current.hold(revision, now).ok()
}

/// A phase of this result.
pub fn phase(name: &str, result: String, now: Timestamp) -> Phase {
    crate::record::phase_of(name.to_owned(), Some(result), now)
}

/// A worker keeps the result of its `place`-th phase. Whether it still runs the record.
///
/// # Errors
/// If the record does not take it.
pub fn keep(
    current: &Record,
    worker: &Record,
    place: usize,
    phase: &Phase,
    revision: Revision,
    now: Timestamp,
) -> (bool, Result<Transition, NotTaken>) {
    (current.is_run_by(worker), current.keep(worker, place, phase, revision, now))
}

/// A provider or an operator reports a phase.
///
/// # Errors
/// If the record does not take it.
pub fn note(
    current: &Record,
    phase: &Phase,
    revision: Revision,
    now: Timestamp,
) -> Result<Transition, NotTaken> {
    current.note(phase, revision, now)
}

/// An operator knows that the call which follows was not made.
pub fn nothing_follows(current: &Record, revision: Revision, now: Timestamp) -> Option<Transition> {
    current.nothing_is_open(revision, now)
}

/// An operator lets a retry resume the record.
pub fn resume(current: &Record, revision: Revision, now: Timestamp) -> Option<Transition> {
    current.resume(revision, now)
}

/// Whether the record contradicts what was learned of the record `seen`.
pub fn contradicts(learned: &Learned, seen: &Record, current: &Record, now: Timestamp) -> bool {
    learned.contradicted_by(seen, current, now).is_some()
}

/// An answer with this status, and without its body, whose length is the answer's number.
pub fn answer(status: u16, number: u8) -> KeptAnswer {
    let body = KeptBody::Omitted { length: number.into() };
    KeptAnswer { head: Answer::http(status, Vec::new(), "").head, body }
}
