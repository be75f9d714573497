//! Visits every state once, by breadth: so the first trace to a violation is a shortest one.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use super::{
    action::Action,
    protocol::Protocol,
    rest::{Moves, Rest},
    setting::Setting,
    steps::Steps,
    violation::Violation,
    world::World,
};
use crate::known::Known;

/// A world in one environment, and what is known of its states.
pub struct Model<K: Moves> {
    setting: &'static Setting,
    protocol: Protocol,
    rest: Rest<K>,
}

impl<K: Moves> Model<K> {
    /// # Errors
    /// Never: see [`Protocol::new`].
    pub fn new(setting: &'static Setting) -> Result<Self, Box<dyn Error>> {
        let protocol = Protocol::new(setting, [false, true].map(|is_new| K::phases(setting, is_new)))?;
        Ok(Self { setting, protocol, rest: Rest::default() })
    }

    /// One line of a story: what happens, and the record after it.
    fn tell(&self, action: Action, after: &World<K>) -> String {
        let record = after.id().map_or("no record".to_owned(), |id| {
            let owner = char::from(b'A' + self.protocol.facts(id).worker % 26);
            format!("{} of {owner}", K::combination(self.protocol.record(id)))
        });
        let action = format!("{action:?}");
        format!("{:>3}  {action:<24} {record}{}", after.now, K::tell(after))
    }

    /// How a state comes to rest, line for line.
    fn rest_story(&mut self, world: &World<K>) -> Story {
        let Some((head, steps)) = Rest::story(self.setting, &mut self.protocol, world) else {
            return Vec::new();
        };
        let alarms = steps.last().map_or(world.alarms, |(_, last)| last.alarms);
        let end = format!("     at rest, {} an alarm", if alarms == 0 { "without" } else { "with" });
        let lines = steps.iter().map(|(action, after)| self.tell(*action, after));
        [head].into_iter().chain(lines).chain([end]).collect()
    }
}

/// A story, line for line.
pub type Story = Vec<String>;

/// What a run found.
#[derive(Debug)]
pub struct Findings {
    pub states: usize,
    pub steps: u64,
    pub depth: usize,
    pub time: Duration,
    /// Whether every state was visited.
    pub complete: bool,
    /// The shortest trace to each property that was violated.
    pub violations: Vec<(Violation, Story)>,
    /// The same of those that are known to fall.
    pub known: Vec<(&'static Known, Story)>,
    /// The combinations of a record's fields that were reached.
    pub combinations: Vec<String>,
}

/// The states, and the way to each of them but the first.
struct Visited<K: Moves> {
    states: IndexSet<World<K>, FxBuildHasher>,
    parents: Vec<(u32, Action)>,
}

impl<K: Moves> Visited<K> {
    fn trace(&self, model: &Model<K>, mut place: usize) -> Story {
        let mut story = Vec::new();
        while place != 0 {
            let (before, action) = self.parents[place - 1];
            story.push(model.tell(action, &self.states[place]));
            place = before as usize;
        }
        story.reverse();
        story
    }
}

/// Visits the states of this world, at most `limit` of them, and reports progress.
pub fn explore<K: Moves>(
    model: &mut Model<K>,
    limit: usize,
    mut progress: impl FnMut(usize, usize),
) -> Findings {
    let (began, name) = (Instant::now(), model.setting.name);
    let mut visited = Visited::<K> { states: IndexSet::default(), parents: Vec::new() };
    let (mut violations, mut known) =
        (Vec::<(Violation, Story)>::new(), Vec::<(&'static Known, Story)>::new());
    visited.states.insert(World::START);
    let (mut steps, mut depth, mut level_ends) = (0, 0, 1);
    let (mut place, mut next) = (0, Vec::new());
    while place < visited.states.len() && visited.states.len() < limit {
        if place == level_ends {
            (depth, level_ends) = (depth + 1, visited.states.len());
        }
        let state = visited.states[place];
        next.clear();
        K::successors(&mut Steps {
            setting: model.setting,
            protocol: &mut model.protocol,
            world: state,
            next: &mut next,
        });
        for (action, successor, violation) in next.drain(..) {
            steps += 1;
            if violation.is_none() && visited.states.contains(&successor) {
                continue;
            }
            let is_at_once = violation.is_some();
            let at_rest = || model.rest.check(model.setting, &mut model.protocol, &successor);
            let Some(violation) = violation.or_else(at_rest) else {
                visited.states.insert(successor);
                visited.parents.push((u32::try_from(place).unwrap_or(u32::MAX), action));
                if visited.states.len().is_multiple_of(1 << 20) {
                    progress(visited.states.len(), depth);
                }
                continue;
            };
            let row = Known::find(K::NAME, name, violation);
            let is_told = match row {
                Some(row) => known.iter().any(|(told, _)| std::ptr::eq(*told, row)),
                None => violations.iter().any(|(told, _)| *told == violation),
            };
            if is_told {
                continue;
            }
            let mut story = visited.trace(model, place);
            story.push(model.tell(action, &successor));
            if !is_at_once {
                story.extend(model.rest_story(&successor));
            }
            match row {
                Some(row) => known.push((row, story)),
                None => violations.push((violation, story)),
            }
        }
        place += 1;
    }
    let mut combinations: Vec<_> = model.protocol.records().iter().map(K::combination).collect();
    combinations.sort();
    combinations.dedup();
    let (states, complete, time) = (visited.states.len(), place == visited.states.len(), began.elapsed());
    Findings { states, steps, depth, time, complete, violations, known, combinations }
}

/// For tests: visits the first states of this world, in which nothing may fall but what is known, and all of that must.
#[cfg(test)]
pub fn assert_holds<K: Moves>(setting: &'static Setting, limit: usize) -> Findings {
    let found = explore(&mut Model::<K>::new(setting).unwrap(), limit, |_, _| {});
    let name = setting.name;
    let told = |(violation, story): &(Violation, Story)| format!("{violation:?}\n{}", story.join("\n"));
    let stories: Vec<_> = found.violations.iter().map(told).collect();
    assert!(stories.is_empty(), "{name}: {}", stories.join("\n\n"));
    let missing = Known::missing(K::NAME, name, &found.known);
    assert!(
        missing.is_empty(),
        "{name}: what is mended is no longer known: remove it from known.rs: {missing:?}"
    );
    found
}
