//! What must be true in each state, and after each step.

use protocol::record::{Record, State};

use super::{
    Violation,
    protocol::{Protocol, stock},
    world::World,
};

/// The property that this step violates.
pub fn check(protocol: &Protocol, before: &World, after: &World) -> Option<Violation> {
    if after.calls.iter().any(|call| call.effects > 1) {
        return Some(Violation::RepeatedEffect);
    }
    let record = after.record.map(|id| protocol.record(id));
    let done = after.rows > 0 || after.calls.iter().any(|call| call.effects > 0);
    let released = record.is_none_or(|record| matches!(record.state, State::FailedRetryable { .. }));
    if done && released {
        return Some(Violation::Forgotten);
    }
    let record = record?;
    let restored = before.restored != after.restored;
    let was = before.record.filter(|_| !restored).map(|id| protocol.record(id));
    if let Some(was) = was.filter(|was| loses(was, record)) {
        debug_assert!(was.phases().is_some());
        return Some(Violation::LostPhase);
    }
    let State::Completed { answer, .. } = &record.state else {
        let taken = stock(record) == Some("1");
        return (after.rows != u8::from(taken)).then_some(Violation::Rows);
    };
    let what = (after.calls.map(|call| call.effects), after.rows);
    let is_true = match answer.body_length() {
        1 => what == ([1, 0], 1),
        2 => what == ([1, 1], 0),
        3 => what == ([1, 0], 0),
        _ => what == ([0, 0], 0),
    };
    (!is_true).then_some(Violation::FalseAnswer)
}

/// Whether a write took a kept phase from the record.
fn loses(before: &Record, after: &Record) -> bool {
    if matches!(after.state, State::Completed { .. }) {
        return false;
    }
    let kept = |record: &Record| record.phases().map(|phases| phases.kept.clone()).unwrap_or_default();
    let (before, after) = (kept(before), kept(after));
    !after.starts_with(&before)
}
