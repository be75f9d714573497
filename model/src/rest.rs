//! Where every state ends if nothing else goes wrong, and what must be true there.

use std::collections::HashSet;

use rustc_hash::FxBuildHasher;

use crate::{
    actions::{Action, Successor, Violation, pass},
    config::Config,
    plain::tell,
    protocol::{Kind, Protocol},
    report::{Found, Report},
    world::{Message, Phase, Worker, World},
};

/// How many steps it takes at most.
const MAX_STEPS: usize = 100;

/// The states that are known to end well.
#[derive(Debug, Default)]
pub struct Rest {
    good: HashSet<World, FxBuildHasher>,
}

impl Rest {
    /// The property that does not hold once this state has come to rest.
    pub fn check(&mut self, config: &Config, protocol: &mut Protocol, world: &World) -> Option<Violation> {
        let (mut world, mut way) = (*world, Vec::new());
        for _ in 0..MAX_STEPS {
            if self.good.contains(&world) {
                self.good.extend(way);
                return None;
            }
            way.push(world);
            let Some((_, next, violation)) = calm(config, protocol, &world) else {
                let violation = at_rest(config, protocol, &world);
                if violation.is_none() {
                    self.good.extend(way);
                }
                return violation;
            };
            if violation.is_some() {
                return violation;
            }
            world = next;
        }
        Some(Violation::NoRest)
    }

    /// How this state comes to rest, line for line, if that is where the property falls.
    pub fn story(
        &mut self,
        config: &Config,
        protocol: &mut Protocol,
        world: &World,
        violation: Violation,
    ) -> Option<Vec<String>> {
        if self.check(config, protocol, world) != Some(violation) {
            return None;
        }
        let (mut world, mut story) =
            (*world, vec!["     and from here on nothing else goes wrong:".to_owned()]);
        for _ in 0..MAX_STEPS {
            let Some((action, next, _)) = calm(config, protocol, &world) else { break };
            story.push(tell(protocol, action, &next));
            world = next;
        }
        story.push(format!(
            "     at rest{}",
            if world.alarms != 0 { ", with an alarm" } else { ", without an alarm" }
        ));
        Some(story)
    }
}

/// The next step if nothing goes wrong: handlers are over, what waits is delivered, then time passes.
fn calm(config: &Config, protocol: &mut Protocol, world: &World) -> Option<Successor> {
    let mut next = Vec::new();
    let honest = Config {
        provider_lies: false,
        store_faults: false,
        duplicates: false,
        skew: 0,
        horizon: u8::MAX,
        ..*config
    };
    let pick = |next: &[Successor], wanted: &dyn Fn(Action) -> bool| {
        next.iter().find(|(action, ..)| wanted(*action)).copied()
    };
    crate::actions::successors(&honest, protocol, world, &mut next);
    for worker in 0..config.workers {
        let state = &world.workers[usize::from(worker)];
        let found = match (state.phase, state.message) {
            (Phase::Running, _) => pick(&next, &|action| action == Action::Crashes(worker)),
            (Phase::Ended(_), _) => pick(&next, &|action| action == Action::Reports(worker)),
            (Phase::Deferred(..), _) => pick(&next, &|action| action == Action::Marks(worker)),
            (_, Message::Queued | Message::Processed) => {
                pick(&next, &|action| action == Action::Delivers(worker))
            }
            _ => None,
        };
        let heard = || pick(&next, &|action| action == Action::Hears(worker));
        if let Some(found) = found.or_else(heard) {
            return Some(found);
        }
    }
    let settled = pick(&next, &|action| {
        matches!(action, Action::Drops | Action::Expires | Action::Asks(Found::Executed(_) | Found::NotFound))
    });
    // An answer that is written is calmer than one that is lost.
    if let Some(learned) = pick(&next, &|action| action == Action::Learns) {
        return Some(learned);
    }
    if settled.is_some() {
        return settled;
    }
    let state = world.record.map(|version| protocol.facts(version.id).state);
    if matches!(state, Some(Kind::InProgress | Kind::Unknown)) {
        let mut later = *world;
        pass(&mut later);
        return Some((Action::Tick, later.canonical(), None));
    }
    None
}

fn at_rest(config: &Config, protocol: &Protocol, world: &World) -> Option<Violation> {
    let facts = world.record.map(|version| *protocol.facts(version.id));
    let state = facts.map(|facts| facts.state);
    if matches!(state, Some(Kind::InProgress | Kind::Unknown)) {
        return Some(Violation::NoRest);
    }
    let escalated = state == Some(Kind::Escalated);
    let visible = world.alarms != 0 || escalated;
    let workers = || world.workers.iter().zip(0..);
    let effects = || workers().filter(|(worker, _)| worker.accepted && worker.has_effect());
    let unheard = |number: u8| !escalated && !world.is_escalated(number);
    // The provider's reports of two effects are alike: only workers can tell. One of them is in the record.
    let reported = |worker: &Worker| matches!(worker.phase, Phase::Reported(Report::Effect(_)));
    let doubles = effects().filter(|(worker, number)| reported(worker) && unheard(*number)).count();
    if doubles > 1 && !config.may_run_again {
        return Some(Violation::SilentDouble);
    }
    if workers().any(|(worker, number)| worker.orphan && !world.is_escalated(number)) {
        return Some(Violation::LostReport);
    }
    let effect = facts.is_some_and(|facts| facts.state == Kind::Completed && facts.is_effect);
    if !effect && !world.ruled && effects().any(|(_, number)| unheard(number)) {
        return Some(Violation::LostReport);
    }
    if world.refused && effect && !visible && !world.ruled {
        return Some(Violation::ForgottenRefusal);
    }
    let other = |worker: &Worker, number: u8| {
        worker.published && facts.is_some_and(|facts| facts.answer != number + 1) && unheard(number)
    };
    if effect
        && !config.may_run_again
        && !world.ruled
        && workers().any(|(worker, number)| other(worker, number))
    {
        return Some(Violation::TwoAnswers);
    }
    let with_rows = facts.filter(|facts| facts.with_writes && facts.state == Kind::Completed);
    let committed =
        world.workers.iter().zip(0..).filter(|(worker, _)| worker.commits > 0).map(|(_, worker)| worker);
    let committed: Vec<u8> = committed.collect();
    let rows = match (with_rows, committed.as_slice()) {
        (None, []) => true,
        (Some(facts), [worker]) => facts.attempt == *worker,
        _ => world.meddled,
    };
    let twice = world.workers.iter().any(|worker| worker.commits > 1);
    (config.rows && (twice && !world.restored || !rows && !visible)).then_some(Violation::Rows)
}
