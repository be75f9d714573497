//! From each state, nothing goes wrong any more: what was accepted must come to its answer, or to operators. Once with workers, and
//! once without.

use protocol::record::Standing;

use super::world::{Accepted, World};
use crate::kernel::{
    action::Action,
    ending::{By, Command, Progress},
    facts::{Kept, State},
    protocol::{Event, Next, Protocol, Todo},
    report::{Found, Report},
    rest::Moves,
    setting::{Handler, Setting},
    steps::{Steps, Successor},
    violation::Violation,
    world::{At, Sent, With},
};

/// The worker that works at rest.
const LAST: u8 = 3;

/// Whether an operation that a worker could resume goes to operators.
fn gives_up(protocol: &Protocol, before: &World, after: &World) -> bool {
    let is = |world: &World, states: &[State]| {
        world.id().is_some_and(|id| states.contains(&protocol.facts(id).state))
    };
    is(before, &[State::Pending, State::BetweenWorkers]) && is(after, &[State::Escalated])
}

impl Moves for Accepted {
    fn ways(_: &Setting) -> &'static [(bool, &'static str)] {
        &[(true, ""), (false, ", and no worker takes more")]
    }

    fn successors(steps: &mut Steps<'_, Self>) {
        steps.all();
    }

    /// Every process dies.
    fn ends(_: &Setting, _: &mut Protocol, world: &mut World) {
        for worker in world.numbers() {
            if world.worker(worker).at != At::Idle {
                world.dies(worker);
            }
        }
    }

    /// What waits is delivered, then time passes. Perhaps one more worker works.
    fn calm(
        setting: &Setting,
        protocol: &mut Protocol,
        world: &World,
        works: bool,
    ) -> Option<Successor<Self>> {
        let workers = if works { LAST + 1 } else { setting.workers };
        let honest = Setting { workers, operator: false, ..setting.calm() };
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
            Action::Delivers(worker) => world.worker(worker).deferred.is_some(),
            Action::Hears(_) | Action::Looks | Action::Drops => true,
            Action::Asks(found) => found != Found::NotExecuted,
            Action::Starts(_) | Action::HandsOver(_) | Action::Removes(_) | Action::Wakes => true,
            Action::QueuesAgain(_) | Action::LooksAfter(_) | Action::DeletesTheRequest(_) => true,
            Action::Begins(worker) => worker == LAST,
            _ => false,
        };
        let first = |action: Action| match action {
            Action::QueuesAgain(life) => works && life == world.life,
            Action::Begins(worker) => worker == LAST,
            action => action == Action::Learns,
        };
        let learns = next.iter().find(|(action, ..)| first(*action));
        let found = learns.or_else(|| next.iter().find(|(action, ..)| wanted(*action)));
        let state = world.id().map(|id| protocol.facts(id).state);
        let open = !matches!(state, None | Some(State::Completed | State::Escalated));
        // A refusal waits for what operators decide.
        let deferred =
            state != Some(State::Escalated) && world.workers.iter().any(|worker| worker.deferred.is_some());
        let waits = open || deferred || world.workers.iter().any(|worker| worker.webhook);
        let mut later = *world;
        later.pass();
        let found = found.copied().or_else(|| waits.then(|| (Action::Tick, later.canonical(), None)));
        found.map(|(action, next, violation)| {
            let gives_up = works && setting.handler == Handler::Resumes && gives_up(protocol, world, &next);
            (action, next, violation.or(gives_up.then_some(Violation::NeverResumed)))
        })
    }

    fn at_rest(setting: &Setting, protocol: &mut Protocol, world: &World, _: bool) -> Option<Violation> {
        let facts = world.id().map(|id| *protocol.facts(id));
        if world.own.outbox.published != world.own.outbox.delivered {
            return Some(Violation::Undelivered);
        }
        let escalated = facts.is_some_and(|facts| facts.state == State::Escalated);
        if facts.is_some_and(|facts| !matches!(facts.state, State::Completed | State::Escalated)) {
            return Some(Violation::NoRest);
        }
        let needed = if escalated { 1 << world.life } else { 0 };
        if world.own.requests & !needed != 0 {
            return Some(Violation::RequestLeft);
        }
        let effect = facts.is_none_or(|facts| matches!(facts.answer, Some(Kept::Effect(_))));
        let visible = world.alarms != 0 || escalated || world.ruled;
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
}

impl Steps<'_, Accepted> {
    /// The last worker claims, and does its work without a fault.
    fn last(&mut self) {
        let (world, life) = (self.world, self.world.life);
        if world.own.queued & 1 << life == 0 || world.worker(LAST).at != At::Idle {
            return;
        }
        let Next::Begins(mut base) =
            self.step(world.now, Event::Claim { worker: LAST, life, standing: Standing::Within })
        else {
            return;
        };
        let violation = self.begins(base, life, world.now);
        let mut after = world;
        after.write(base);
        let effect = self.setting.handler != Handler::Commits;
        let mut report = Report::Effect(LAST + 1);
        if self.setting.handler == Handler::Resumes {
            report = match self.todo(base, world.now) {
                Todo::Ask | Todo::Mismatch => Report::Interrupted,
                Todo::Kept => Report::Effect(1),
                Todo::Call | Todo::Noted(_) => {
                    if let (Next::Begins(id), with) = self.kept(Some(base), base, world.now, By::Worker) {
                        base = id;
                        after.commit(id, with);
                    }
                    Report::Effect(1)
                }
            };
        }
        let state = after.worker_mut(LAST);
        (state.life, state.at, state.own.tried) = (life, At::Over, true);
        state.sent = if effect { Sent::Executed } else { Sent::Nothing };
        let rows = !effect || self.setting.messages;
        let event = Event::Report { base, report, rows, progress: Progress::START };
        if let Next::Does(Command::Writes(id)) = self.protocol.step(after.id(), world.now, event) {
            let messages = self.protocol.messages(after.id(), world.now, event);
            after.commit(id, messages.map_or(With::Nothing, With::Messages));
            after.worker_mut(LAST).commits += u8::from(!effect && self.protocol.facts(id).with_writes);
        }
        self.push(Action::Begins(LAST), after, violation);
    }
}
