//! What must be true in each state, and after each step.

use protocol::record::{Record, State};

use super::{
    names::{names, stock},
    world::{Done, Own, Phases, World},
};
use crate::kernel::{
    action::Action,
    protocol::Protocol,
    records::{self, Name},
    setting::Setting,
    violation::Violation,
    world::{Kind, With, Worker},
};

impl Kind for Phases {
    type Worker = Own;
    type Workers = [Worker<Self>; 3];
    type Own = Done;

    const NAME: &'static str = "phases";
    const IDLE: Own = Own { is_new: false, until: 0 };
    const WORKERS: [Worker<Self>; 3] = [Worker::IDLE; 3];
    const START: Done = Done::NOTHING;
    // It may also arrive in the next tick.
    const ARRIVES: u8 = records::ARRIVES + 1;

    fn phases(setting: &Setting, is_new: bool) -> &'static [Name] {
        names(setting.change, is_new)
    }

    fn judge(
        _: &Setting,
        protocol: &Protocol,
        _: Action,
        (before, after): (&World, &World),
        violation: Option<Violation>,
    ) -> Option<Violation> {
        violation.or_else(|| check(protocol, before, after))
    }

    fn commit(world: &mut World, with: With) {
        world.own.rows += u8::from(matches!(with, With::Rows(_)));
    }
}

/// The property that this step violates.
fn check(protocol: &Protocol, before: &World, after: &World) -> Option<Violation> {
    if after.own.calls.iter().any(|call| call.effects > 1) {
        return Some(Violation::RepeatedEffect);
    }
    let record = after.id().map(|id| protocol.record(id));
    let done = after.own.rows > 0 || after.own.calls.iter().any(|call| call.effects > 0);
    let released = record.is_none_or(|record| matches!(record.state, State::FailedRetryable { .. }));
    if done && released {
        return Some(Violation::Forgotten);
    }
    let record = record?;
    let restored = before.meddled != after.meddled;
    let was = before.id().filter(|_| !restored).map(|id| protocol.record(id));
    if let Some(was) = was.filter(|was| loses(was, record)) {
        debug_assert!(was.phases().is_some());
        return Some(Violation::LostPhase);
    }
    let State::Completed { answer, .. } = &record.state else {
        let taken = stock(record) == Some("1");
        return (after.own.rows != u8::from(taken)).then_some(Violation::Rows);
    };
    let what = (after.own.calls.map(|call| call.effects), after.own.rows);
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
