//! Visits every state once, by breadth: so the first trace to a violation is a shortest one.

use std::{
    fmt::{Debug, Display},
    hash::Hash,
    time::{Duration, Instant},
};

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use crate::known::Known;

/// What follows a state: the action, the state after it, and the property that it violates.
pub type Successor<S> = (<S as Space>::Action, <S as Space>::State, Option<<S as Space>::Violation>);

/// A world, in one environment.
pub trait Space {
    type State: Copy + Eq + Hash;
    type Action: Copy;
    type Violation: Copy + Eq + Debug + Display;

    /// The world's name, for what is [known](Known).
    const WORLD: &'static str;

    /// The environment's name.
    fn name(&self) -> &'static str;

    fn start(&self) -> Self::State;

    /// Adds all that can happen next.
    fn successors(&mut self, state: &Self::State, next: &mut Vec<Successor<Self>>);

    /// The property that does not hold once this state has come to rest.
    fn at_rest(&mut self, state: &Self::State) -> Option<Self::Violation>;

    /// How it comes to rest, line for line.
    fn rest_story(&mut self, _: &Self::State, _: Self::Violation) -> Vec<String> {
        Vec::new()
    }

    /// One line of a story: what happens, and the record after it.
    fn tell(&self, action: Self::Action, after: &Self::State) -> String;

    /// The combinations of a record's fields that were reached.
    fn combinations(&self) -> Vec<String>;
}

/// A story, line for line.
pub type Story = Vec<String>;

/// What a run found.
#[derive(Debug)]
pub struct Findings<V> {
    pub states: usize,
    pub steps: u64,
    pub depth: usize,
    pub time: Duration,
    /// Whether every state was visited.
    pub complete: bool,
    /// The shortest trace to each property that was violated.
    pub violations: Vec<(V, Story)>,
    /// The same of those that are known to fall.
    pub known: Vec<(&'static Known, Story)>,
    /// The combinations of a record's fields that were reached.
    pub combinations: Vec<String>,
}

/// The states, and the way to each of them but the first.
struct Visited<S: Space> {
    states: IndexSet<S::State, FxBuildHasher>,
    parents: Vec<(u32, S::Action)>,
}

impl<S: Space> Visited<S> {
    fn trace(&self, space: &S, mut place: usize) -> Story {
        let mut story = Vec::new();
        while place != 0 {
            let (before, action) = self.parents[place - 1];
            story.push(space.tell(action, &self.states[place]));
            place = before as usize;
        }
        story.reverse();
        story
    }
}

/// Visits the states of this world, at most `limit` of them, and reports progress.
pub fn explore<S: Space>(
    space: &mut S,
    limit: usize,
    mut progress: impl FnMut(usize, usize),
) -> Findings<S::Violation> {
    let began = Instant::now();
    let mut visited = Visited::<S> { states: IndexSet::default(), parents: Vec::new() };
    let (mut violations, mut known) =
        (Vec::<(S::Violation, Story)>::new(), Vec::<(&'static Known, Story)>::new());
    visited.states.insert(space.start());
    let (mut steps, mut depth, mut level_ends) = (0, 0, 1);
    let (mut place, mut next) = (0, Vec::new());
    while place < visited.states.len() && visited.states.len() < limit {
        if place == level_ends {
            (depth, level_ends) = (depth + 1, visited.states.len());
        }
        let state = visited.states[place];
        next.clear();
        space.successors(&state, &mut next);
        for (action, successor, violation) in next.drain(..) {
            steps += 1;
            if violation.is_none() && visited.states.contains(&successor) {
                continue;
            }
            let at_rest = if violation.is_none() { space.at_rest(&successor) } else { None };
            let Some(violation) = violation.or(at_rest) else {
                visited.states.insert(successor);
                visited.parents.push((u32::try_from(place).unwrap_or(u32::MAX), action));
                if visited.states.len().is_multiple_of(1 << 20) {
                    progress(visited.states.len(), depth);
                }
                continue;
            };
            let row = Known::find(S::WORLD, space.name(), &violation);
            let is_told = match row {
                Some(row) => known.iter().any(|(told, _)| std::ptr::eq(*told, row)),
                None => violations.iter().any(|(told, _)| *told == violation),
            };
            if is_told {
                continue;
            }
            let mut story = visited.trace(space, place);
            story.push(space.tell(action, &successor));
            if at_rest.is_some() {
                story.extend(space.rest_story(&successor, violation));
            }
            match row {
                Some(row) => known.push((row, story)),
                None => violations.push((violation, story)),
            }
        }
        place += 1;
    }
    let mut combinations = space.combinations();
    combinations.sort();
    combinations.dedup();
    let (states, complete, time) = (visited.states.len(), place == visited.states.len(), began.elapsed());
    Findings { states, steps, depth, time, complete, violations, known, combinations }
}

/// For tests: visits the first states of this world, in which nothing may fall but what is known, and all of that must.
#[cfg(test)]
pub fn assert_holds<S: Space>(space: &mut S, limit: usize) -> Findings<S::Violation> {
    let found = explore(space, limit, |_, _| {});
    let name = space.name();
    let told = |(violation, story): &(S::Violation, Story)| format!("{violation:?}\n{}", story.join("\n"));
    let stories: Vec<_> = found.violations.iter().map(told).collect();
    assert!(stories.is_empty(), "{name}: {}", stories.join("\n\n"));
    let missing = Known::missing(S::WORLD, name, &found.known);
    assert!(
        missing.is_empty(),
        "{name}: what is mended is no longer known: remove it from known.rs: {missing:?}"
    );
    found
}
