//! Tries every choice, by running each execution from its beginning.
//!
//! 1. An execution follows the choices of an earlier one up to a point, goes another way there, and then the usual way. Each
//!    other way that it passes is tried by a later execution.
//! 2. An execution ends at rest, or in a state that was visited before.
//! 3. Executions with fewer faults come first, and among these those with fewer other ways. So the first story to a violation is
//!    a short one, and a state is first visited with as many faults left as it can have.

use std::{
    collections::{HashSet, VecDeque},
    time::{Duration, Instant},
};

use rustc_hash::FxBuildHasher;

use super::{
    execution::{Choice, Execution},
    scenario::Scenario,
};
use crate::{
    kernel::{explore::Story, violation::Violation},
    known::Known,
};

/// What a run found.
#[derive(Debug)]
pub struct Findings {
    pub executions: u64,
    pub states: usize,
    /// The most choices in one execution.
    pub depth: usize,
    pub time: Duration,
    /// Whether every execution was run.
    pub complete: bool,
    /// The property that fell, and its story.
    pub violation: Option<(Violation, Story)>,
    /// The same of those that are known to fall.
    pub known: Vec<(&'static Known, Story)>,
}

/// The number of a choice.
type Id = u32;

/// All choices that were made, each after its parent.
#[derive(Default)]
struct Tree(Vec<(Option<Id>, Choice)>);

impl Tree {
    fn add(&mut self, after: Option<Id>, choice: Choice) -> Id {
        self.0.push((after, choice));
        u32::try_from(self.0.len() - 1).expect("fewer choices than 2^32")
    }

    /// The choices from the beginning up to this one.
    fn path(&self, last: Option<Id>) -> Vec<Choice> {
        let before = |id: &Id| self.0[*id as usize].0;
        let ids = std::iter::successors(last, before);
        let mut path: Vec<Choice> = ids.map(|id| self.0[id as usize].1).collect();
        path.reverse();
        path
    }
}

/// Tries the executions of this scenario with up to `budget` faults, at most `limit` of them, until a property falls.
pub fn explore(
    scenario: &'static Scenario,
    budget: u8,
    limit: u64,
    progress: &mut dyn FnMut(u64, usize),
) -> Findings {
    let began = Instant::now();
    let mut tree = Tree::default();
    let mut visited: HashSet<u64, FxBuildHasher> = HashSet::default();
    // The ways to try, by the number of their faults.
    let mut ways: Vec<VecDeque<Option<Id>>> = vec![VecDeque::new(); usize::from(budget) + 1];
    ways[0].push_back(None);
    let (mut executions, mut depth, mut fallen) = (0, 0, None);
    let mut known: Vec<(&'static Known, Story)> = Vec::new();
    while let Some(way) = ways.iter_mut().find_map(VecDeque::pop_front) {
        if executions >= limit {
            ways[0].push_back(way);
            break;
        }
        executions += 1;
        if executions.is_multiple_of(1 << 16) {
            progress(executions, visited.len());
        }
        let mut execution = Execution::new(scenario, budget, false);
        let path = tree.path(way);
        path.iter().for_each(|choice| execution.choose(*choice));
        let (mut last, mut length) = (way, path.len());
        let violation = loop {
            let choices = execution.choices();
            let is_at_rest = matches!(choices.first(), None | Some(Choice::Last));
            if let Some(violation) = execution.violation(is_at_rest) {
                break Some(violation);
            }
            let Some((usual, others)) = choices.split_first() else { break None };
            if !others.is_empty() && !visited.insert(execution.state()) {
                break None;
            }
            for other in others {
                let faults = execution.faults() + usize::from(other.cost());
                ways[faults].push_back(Some(tree.add(last, *other)));
            }
            last = Some(tree.add(last, *usual));
            length += 1;
            execution.choose(*usual);
        };
        depth = depth.max(length);
        let Some(violation) = violation else { continue };
        match Known::find("functions", scenario.name, violation) {
            Some(row) if known.iter().any(|(told, _)| std::ptr::eq(*told, row)) => {}
            Some(row) => known.push((row, story(scenario, budget, &tree.path(last)))),
            None => {
                fallen = Some((violation, story(scenario, budget, &tree.path(last))));
                break;
            }
        }
    }
    let complete = fallen.is_none() && ways.iter().all(VecDeque::is_empty);
    let (states, time) = (visited.len(), began.elapsed());
    Findings { executions, states, depth, time, complete, violation: fallen, known }
}

/// What happens along these choices, line for line.
fn story(scenario: &'static Scenario, budget: u8, path: &[Choice]) -> Story {
    let mut execution = Execution::new(scenario, budget, true);
    path.iter().for_each(|choice| execution.choose(*choice));
    execution.story()
}
