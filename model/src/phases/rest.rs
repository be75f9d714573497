//! From each state, nothing goes wrong any more: the operation must come to its answer, or to operators.

use protocol::record::State;

use super::{
    Change, Setting, Violation,
    properties::check as holds,
    protocol::{ARRIVES, Id, Kept, LEASE, Protocol, Todo},
    world::{At, CALLS, Deferred, Ending, MAX_WORKERS, World},
};

/// How often a client retries until operators must have the operation.
const RETRIES: u8 = 12;

/// The number of the retries' executions.
const RETRY: u8 = 9;

/// Whether the operation comes to rest, by retries of whichever version.
pub fn check(setting: &Setting, protocol: &mut Protocol, world: &World) -> Option<Violation> {
    // What another version does first is not modelled.
    let versions: &[bool] = match setting.change {
        Change::None | Change::Inserted => &[false],
        Change::Renamed | Change::Removed | Change::Reordered => &[false, true],
    };
    versions.iter().find_map(|is_new| by_retries(setting, protocol, world, *is_new))
}

fn by_retries(setting: &Setting, protocol: &mut Protocol, world: &World, is_new: bool) -> Option<Violation> {
    let mut world = *world;
    let settle = |world: &mut World, id| {
        let before = *world;
        world.write(id);
        (before, *world)
    };
    // What is on its way arrives. Every process dies.
    for worker in 0..MAX_WORKERS {
        let state = world.workers[worker];
        if let Some((call, _)) = state.sent {
            world.execute(
                call,
                setting.change.renames(state.is_new, call),
                setting.keys_live,
                setting.webhook,
            );
        }
        world.workers[worker].sent = None;
        if let Some(deferred) = state.deferred {
            let written = match deferred {
                Deferred::Phase(place, result) => {
                    match protocol.keep(&world, (state.base, state.is_new), (place, result), world.now) {
                        Kept::Taken(id, _) => Some(id),
                        Kept::Known(_) => None,
                        Kept::Left => {
                            world.alarm = true;
                            None
                        }
                    }
                }
                Deferred::Ended(ending) => protocol.report(&world, state.base, ending, world.now),
            };
            if let Some(id) = written {
                world.write(id);
            }
            world.workers[worker].deferred = None;
        }
        world.over(worker);
    }
    for call in 0..CALLS {
        let number = u8::try_from(call).unwrap_or_default();
        if world.calls[call].webhook {
            match protocol.note(&world, number, world.calls[call].effects, world.now) {
                Ok(id) => world.write(id),
                Err(contradicts) => world.alarm |= contradicts,
            }
            world.calls[call].webhook = false;
        }
    }
    world.late = None;
    world.now += LEASE + ARRIVES + setting.skew;
    for _ in 0..RETRIES {
        let is_over = |protocol: &Protocol, world: &World| {
            world.record.is_some_and(|id| {
                let record = protocol.record(id);
                matches!(record.state, State::Completed { .. }) || record.is_escalated()
            })
        };
        if is_over(protocol, &world) {
            return None;
        }
        // Polls go on beside retries.
        if let Some(id) = protocol.reconcile(&world, world.now) {
            settle(&mut world, id);
            continue;
        }
        if let Some(id) = protocol.begins(&world, (RETRY, is_new), world.now) {
            let (before, after) = settle(&mut world, id);
            if let Some(violation) = holds(protocol, &before, &after) {
                return Some(violation);
            }
            if let Some(violation) = run(setting, protocol, &mut world, (id, is_new)) {
                return Some(violation);
            }
        } else if let Some(id) = protocol.expire(&world, world.now) {
            settle(&mut world, id);
        }
        if is_over(protocol, &world) {
            return None;
        }
        world.now += 1;
    }
    Some(Violation::NoRest)
}

/// A retry runs the handler, and nothing fails.
fn run(
    setting: &Setting,
    protocol: &mut Protocol,
    world: &mut World,
    (mut base, is_new): (Id, bool),
) -> Option<Violation> {
    let mut place = 0;
    let ending = loop {
        let mut result = None;
        match protocol.todo(base, place, world.now, is_new) {
            Todo::GoOn => {}
            Todo::Noted(noted) => result = Some(noted),
            Todo::Commit => result = Some(1),
            Todo::Mismatch => break Ending::Outside,
            Todo::Answer(number) => break Ending::Completed(number),
            Todo::Ask(_) if !setting.asks => break Ending::Unknown,
            Todo::Ask(call) if world.calls[usize::from(call)].effects > 0 => {
                result = Some(world.calls[usize::from(call)].effects);
            }
            Todo::Call(call) | Todo::Ask(call) => {
                world.execute(call, setting.change.renames(is_new, call), setting.keys_live, false);
                result = Some(world.calls[usize::from(call)].effects);
            }
        }
        if let Some(result) = result {
            let before = *world;
            match protocol.keep(world, (base, is_new), (place, result), world.now) {
                Kept::Taken(id, true) => {
                    base = id;
                    world.write(id);
                }
                _ => break Ending::Outside,
            }
            if protocol.is_commit(is_new, place) {
                world.rows += result;
            }
            if let Some(violation) = holds(protocol, &before, world) {
                return Some(violation);
            }
        }
        place += 1;
    };
    let before = *world;
    if let Some(id) = protocol.report(world, base, ending, world.now) {
        world.write(id);
    }
    debug_assert!(world.workers.iter().all(|worker| worker.at == At::Over));
    holds(protocol, &before, world)
}
