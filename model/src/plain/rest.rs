//! Where every state ends if nothing else goes wrong, and what must be true there.

use super::world::{Plain, Worker, World};
use crate::kernel::{
    action::Action,
    facts::State,
    protocol::Protocol,
    report::{Found, Report},
    rest::Moves,
    setting::Setting,
    steps::{Steps, Successor},
    violation::Violation,
    world::At,
};

impl Moves for Plain {
    fn successors(steps: &mut Steps<'_, Self>) {
        steps.all();
    }

    /// Handlers are over, what waits is delivered, then time passes.
    fn calm(setting: &Setting, protocol: &mut Protocol, world: &World, _: bool) -> Option<Successor<Self>> {
        let (honest, mut next) = (setting.calm(), Vec::new());
        Steps { setting: &honest, protocol, world: *world, next: &mut next }.all();
        let pick =
            |wanted: &dyn Fn(Action) -> bool| next.iter().find(|(action, ..)| wanted(*action)).copied();
        for worker in 0..setting.workers {
            let state = world.worker(worker);
            let wanted = match (state.at, state.deferred) {
                (At::Reserved(_) | At::Running(_), _) => Some(Action::Crashes(worker)),
                (At::Ended(_), _) => Some(Action::Reports(worker)),
                (At::Marks(..), _) => Some(Action::Marks(worker)),
                (_, Some(_)) => Some(Action::Delivers(worker)),
                _ => None,
            };
            let found = wanted.and_then(|wanted| pick(&|action| action == wanted));
            if let Some(found) = found.or_else(|| pick(&|action| action == Action::Hears(worker))) {
                return Some(found);
            }
        }
        let settles = |action| {
            use Action::{Asks, Drops, Looks};
            matches!(action, Drops | Looks | Asks(Found::Executed(_) | Found::NotFound))
        };
        // An answer that is written is calmer than one that is lost.
        let found = pick(&|action| action == Action::Learns).or_else(|| pick(&settles));
        let state = world.id().map(|id| protocol.facts(id).state);
        let waits = matches!(state, Some(State::InProgress | State::Unknown));
        let mut later = *world;
        later.pass();
        found.or_else(|| waits.then(|| (Action::Tick, later.canonical(), None)))
    }

    fn at_rest(setting: &Setting, protocol: &mut Protocol, world: &World, _: bool) -> Option<Violation> {
        let facts = world.id().map(|id| *protocol.facts(id));
        let state = facts.map(|facts| facts.state);
        if matches!(state, Some(State::InProgress | State::Unknown)) {
            return Some(Violation::NoRest);
        }
        let escalated = state == Some(State::Escalated);
        let visible = world.alarms != 0 || escalated;
        let workers = || world.workers.iter().zip(0..);
        let effects = || workers().filter(|(worker, _)| worker.told && worker.has_effect());
        let unheard = |number: u8| !escalated && !world.is_escalated(number);
        // The provider's reports of two effects are alike: only workers can tell. One of them is in the record.
        let reported =
            |worker: &Worker| worker.at == At::Over && worker.own.reported.is_some_and(Report::is_effect);
        let doubles = effects().filter(|(worker, number)| reported(worker) && unheard(*number)).count();
        if doubles > 1 && !setting.may_run_again() {
            return Some(Violation::SilentDouble);
        }
        if workers().any(|(worker, number)| worker.own.orphan && !world.is_escalated(number)) {
            return Some(Violation::LostReport);
        }
        let effect = facts.is_some_and(|facts| facts.state == State::Completed && facts.is_effect());
        if !effect && !world.ruled && effects().any(|(_, number)| unheard(number)) {
            return Some(Violation::LostReport);
        }
        if world.own.refused && effect && !visible && !world.ruled {
            return Some(Violation::ForgottenRefusal);
        }
        let other = |worker: &Worker, number: u8| {
            worker.own.published && facts.is_some_and(|facts| facts.number() != number + 1) && unheard(number)
        };
        if effect
            && !setting.may_run_again()
            && !world.ruled
            && workers().any(|(worker, number)| other(worker, number))
        {
            return Some(Violation::TwoAnswers);
        }
        let with_rows = facts.filter(|facts| facts.with_writes && facts.state == State::Completed);
        let committed =
            world.workers.iter().zip(0..).filter(|(worker, _)| worker.commits > 0).map(|(_, worker)| worker);
        let committed: Vec<u8> = committed.collect();
        let rows = match (with_rows, committed.as_slice()) {
            (None, []) => true,
            (Some(facts), [worker]) => facts.worker == *worker,
            _ => world.meddled,
        };
        let twice = world.workers.iter().any(|worker| worker.commits > 1);
        (setting.rows && (twice && !world.own.restored || !rows && !visible)).then_some(Violation::Rows)
    }
}
