//! Visits every state once, by breadth: so the first trace to a violation is a shortest one.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use crate::{
    actions::{self, Action, Violation},
    config::Config,
    protocol::{Protocol, combination},
    rest::Rest,
    world::World,
};

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
    pub violations: Vec<(Violation, Vec<String>)>,
    /// The combinations of a record's fields that were reached.
    pub combinations: Vec<String>,
}

/// Visits the states of this environment, at most `limit` of them, and reports progress.
///
/// # Errors
/// Never: see [`Protocol::new`].
pub fn explore(
    config: &Config,
    limit: usize,
    mut progress: impl FnMut(usize, usize),
) -> Result<Findings, Box<dyn Error>> {
    let began = Instant::now();
    let mut protocol = Protocol::new(config)?;
    let mut states: IndexSet<World, FxBuildHasher> = IndexSet::default();
    let mut parents: Vec<(u32, Action)> = Vec::new();
    let mut violations: Vec<(Violation, Vec<String>)> = Vec::new();
    let mut rest = Rest::default();
    let (mut steps, mut depth, mut level_ends) = (0, 0, 1);
    states.insert(World::START);
    parents.push((0, Action::Start));
    let mut next = Vec::new();
    let mut place = 0;
    while place < states.len() && states.len() < limit {
        if place == level_ends {
            (depth, level_ends) = (depth + 1, states.len());
        }
        let world = states[place];
        next.clear();
        actions::successors(config, &mut protocol, &world, &mut next);
        for (action, successor, violation) in &next {
            steps += 1;
            let here = u32::try_from(place).unwrap_or(u32::MAX);
            let violation = violation.or_else(|| rest.check(config, &mut protocol, successor));
            if let Some(violation) = violation {
                if violations.iter().all(|(known, _)| *known != violation) {
                    let mut story = trace(&protocol, &states, &parents, place);
                    story.push(tell(&protocol, *action, successor));
                    if let Some(end) = rest.story(config, &mut protocol, successor, violation) {
                        story.extend(end);
                    }
                    violations.push((violation, story));
                }
                continue;
            }
            if states.insert(*successor) {
                parents.push((here, *action));
                if states.len().is_multiple_of(1 << 20) {
                    progress(states.len(), depth);
                }
            }
        }
        place += 1;
    }
    let mut combinations: Vec<_> = protocol.records().iter().map(combination).collect();
    combinations.sort();
    combinations.dedup();
    let complete = place == states.len();
    Ok(Findings {
        states: states.len(),
        steps,
        depth,
        time: began.elapsed(),
        complete,
        violations,
        combinations,
    })
}

fn trace(
    protocol: &Protocol,
    states: &IndexSet<World, FxBuildHasher>,
    parents: &[(u32, Action)],
    mut place: usize,
) -> Vec<String> {
    let mut story = Vec::new();
    while place != 0 {
        let (before, action) = parents[place];
        story.push(tell(protocol, action, &states[place]));
        place = before as usize;
    }
    story.reverse();
    story
}

/// One line of a story: what happens, and the record after it.
pub fn tell(protocol: &Protocol, action: Action, after: &World) -> String {
    let record = after.record.map_or("no record".to_owned(), |version| {
        let owner = char::from(b'A' + protocol.facts(version.id).attempt);
        format!("{} of {owner}", combination(protocol.record(version.id)))
    });
    format!("{:>3}  {action:<60} {record}", after.now)
}
