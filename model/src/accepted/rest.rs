//! From each state, nothing goes wrong any more: what was accepted must come to its answer, or to operators. Once with workers, and
//! once without.

use std::collections::HashSet;

use protocol::record::Safe;
use rustc_hash::FxBuildHasher;

use super::{
    Handler, Setting, Violation,
    facts::{Kept, Kind},
    protocol::{ARRIVES, Event, Next, Protocol, Todo},
    steps::{Action, Steps, Successor},
    world::{At, Ending, Finding, Sent, World},
};

/// How many steps it takes at most.
const MAX_STEPS: usize = 120;

/// The worker that works at rest.
const LAST: u8 = 3;

/// The states that are known to end well.
#[derive(Debug, Default)]
pub struct Rest {
    good: HashSet<(World, bool), FxBuildHasher>,
}

impl Rest {
    /// The property that does not hold once this state has come to rest.
    pub fn check(&mut self, setting: &Setting, protocol: &mut Protocol, world: &World) -> Option<Violation> {
        [true, false]
            .into_iter()
            .find_map(|works| self.runs(setting, protocol, world, works, &mut Vec::new()))
    }

    /// How this state comes to rest, line for line, if that is where a property falls.
    pub fn story(&self, setting: &Setting, protocol: &mut Protocol, world: &World) -> Vec<String> {
        for works in [true, false] {
            let (mut fresh, mut story) = (Self::default(), Vec::new());
            if fresh.runs(setting, protocol, world, works, &mut story).is_some() {
                let workers = if works { "" } else { ", and no worker takes more" };
                let head = format!("     and from here on nothing else goes wrong{workers}:");
                let lines = story.iter().map(|(action, world)| protocol.tell(*action, world));
                return std::iter::once(head).chain(lines).collect();
            }
        }
        Vec::new()
    }

    fn runs(
        &mut self,
        setting: &Setting,
        protocol: &mut Protocol,
        world: &World,
        works: bool,
        story: &mut Vec<(Action, World)>,
    ) -> Option<Violation> {
        let mut world = *world;
        world.all_die();
        let (mut world, mut way) = (world.canonical(), Vec::new());
        for _ in 0..MAX_STEPS {
            if self.good.contains(&(world, works)) {
                self.good.extend(way);
                return None;
            }
            way.push((world, works));
            let Some((action, next, violation)) = calm(setting, protocol, &world, works) else {
                let violation = at_rest(setting, protocol, &world);
                if violation.is_none() {
                    self.good.extend(way);
                }
                return violation;
            };
            story.push((action, next));
            if violation.is_some() {
                return violation;
            }
            if works && setting.handler == Handler::Resumes && gives_up(protocol, &world, &next) {
                return Some(Violation::NeverResumed);
            }
            world = next;
        }
        Some(Violation::NoRest)
    }
}

/// Whether an operation that a worker could resume goes to operators.
fn gives_up(protocol: &Protocol, before: &World, after: &World) -> bool {
    let is = |world: &World, kinds: &[Kind]| {
        world.record.is_some_and(|id| kinds.contains(&protocol.facts(id).state))
    };
    is(before, &[Kind::Pending, Kind::BetweenWorkers]) && is(after, &[Kind::Escalated])
}

/// The next step if nothing goes wrong: what waits is delivered, then time passes.
fn calm(setting: &Setting, protocol: &mut Protocol, world: &World, works: bool) -> Option<Successor> {
    let honest = Setting {
        workers: if works { LAST + 1 } else { setting.workers },
        store_faults: false,
        losses: false,
        provider_lies: false,
        operator: false,
        meddles: false,
        skew: 0,
        lives: 0,
        horizon: u8::MAX,
        ..*setting
    };
    let mut next = Vec::new();
    let mut steps = Steps { setting: &honest, protocol, world: *world, next: &mut next };
    for worker in 0..LAST {
        steps.worker(worker);
    }
    steps.others();
    if works {
        steps.last();
    }
    let wanted = |action: Action| match action {
        Action::Delivers(worker) => world.workers[usize::from(worker)].deferred.is_some(),
        Action::Hears(_) | Action::Looks | Action::NotResumed | Action::Drops => true,
        Action::Asks(found) => found != Finding::NotExecuted,
        Action::Starts(_) | Action::HandsOver(_) | Action::Removes(_) | Action::Wakes => true,
        Action::QueuesAgain(_) | Action::LooksAfter(_) | Action::DeletesTheRequest(_) => true,
        Action::Claims(worker) => worker == LAST,
        _ => false,
    };
    let first = |action: Action| match action {
        Action::QueuesAgain(life) => works && life == world.life,
        Action::Claims(worker) => worker == LAST,
        action => action == Action::Learns,
    };
    let learns = next.iter().find(|(action, ..)| first(*action));
    let found = learns.or_else(|| next.iter().find(|(action, ..)| wanted(*action)));
    let state = world.record.map(|id| protocol.facts(id).state);
    let open = !matches!(state, None | Some(Kind::Completed | Kind::Escalated));
    // A refusal waits for what operators decide.
    let deferred =
        state != Some(Kind::Escalated) && world.workers.iter().any(|worker| worker.deferred.is_some());
    let waits = open || deferred || world.workers.iter().any(|worker| worker.webhook);
    let mut later = *world;
    later.pass(ARRIVES);
    found.copied().or_else(|| waits.then(|| (Action::Tick, later.canonical(), None)))
}

impl Steps<'_> {
    /// The last worker claims, and does its work without a fault.
    fn last(&mut self) {
        let (world, index) = (self.world, usize::from(LAST));
        let life = world.life;
        if world.queued & 1 << life == 0 || world.workers[index].at != At::Idle {
            return;
        }
        let event = Event::Claim { worker: LAST, life };
        let Next::Begins(mut base) = self.step(world.now, event) else { return };
        let violation = self.begins(base, life, world.now);
        let mut after = world;
        after.write(base);
        let effect = self.setting.handler != Handler::Commits;
        let mut ending = Ending::Effect(LAST + 1);
        if self.setting.handler == Handler::Resumes {
            ending = Ending::Effect(1);
            let todo = self.protocol.todo(base, world.now);
            if todo == Todo::Ask {
                ending = Ending::Interrupted;
            } else if todo != Todo::Kept
                && let Next::Begins(id) = self.protocol.step(Some(base), world.now, Event::Keep { base })
            {
                let with = self.protocol.messages(Some(base), world.now, Event::Keep { base });
                base = id;
                after.commit(id, with);
            }
        }
        let rows = !effect || self.setting.messages;
        let state = &mut after.workers[index];
        (state.life, state.at, state.tried) = (life, At::Over, true);
        state.sent = if effect { Sent::Executed } else { Sent::Nothing };
        let report = Event::Report { base, ending, rows, safe: Safe::Nothing };
        if let Next::Written(id) = self.protocol.step(after.record, world.now, report) {
            let messages = self.protocol.messages(after.record, world.now, report);
            after.commit(id, messages);
            after.workers[index].commits += u8::from(!effect && self.protocol.facts(id).with_writes);
        }
        self.push(Action::Claims(LAST), after, violation);
    }
}

fn at_rest(setting: &Setting, protocol: &Protocol, world: &World) -> Option<Violation> {
    let facts = world.record.map(|id| *protocol.facts(id));
    if world.outbox.published != world.outbox.delivered {
        return Some(Violation::Undelivered);
    }
    let escalated = facts.is_some_and(|facts| facts.state == Kind::Escalated);
    if facts.is_some_and(|facts| !matches!(facts.state, Kind::Completed | Kind::Escalated)) {
        return Some(Violation::NoRest);
    }
    let needed = if escalated { 1 << world.life } else { 0 };
    if world.requests & !needed != 0 {
        return Some(Violation::RequestLeft);
    }
    let effect = facts.is_none_or(|facts| matches!(facts.answer, Some(Kept::Effect(_))));
    let visible = world.alarm || escalated || world.ruled;
    // After a deletion, the report of an earlier life may become the answer.
    let answer = facts.and_then(|facts| facts.answer);
    let forgotten = (1..).zip(&world.workers).any(|(number, worker)| {
        worker.life != world.life && worker.told && answer != Some(Kept::Effect(number))
    });
    if !visible && (forgotten || !effect && world.present().any(|worker| worker.told)) {
        return Some(Violation::LostReport);
    }
    let doubles = world.present().filter(|worker| worker.told).count();
    let silent = !visible && !setting.webhook && setting.handler == Handler::Calls && doubles > 1;
    silent.then_some(Violation::SilentDouble)
}
