//! Operations that resume: a charge, stock that may be refused, and then a refund, by workers that die between any two steps.
//!
//! The handler is a program of three phases. What a step does to the record, and what a handler does next, production code
//! decides. A run visits every state once, by breadth.

mod protocol;
mod rest;
mod steps;
mod world;

use std::{error::Error, fmt};

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

pub use self::protocol::combination;
use self::{protocol::Protocol, steps::Action, world::World};

/// The environment of one run. Times are in ticks of five minutes.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name, for reports.
    pub name: &'static str,
    /// How many executions may begin, at most three.
    pub workers: u8,
    /// When time ends.
    pub horizon: u8,
    /// For how long the provider remembers a key.
    pub keys_live: u8,
    /// Whether the handler asks the provider once a key may be forgotten.
    pub asks: bool,
    /// Whether writes may get no answer.
    pub store_faults: bool,
    /// Whether the provider reports effects unprompted.
    pub webhook: bool,
    /// Whether an operator looks at what is escalated.
    pub operator: bool,
    /// By how many ticks a clock may be ahead.
    pub skew: u8,
    /// Whether the last worker is of a version that calls the first phase otherwise.
    pub renamed: bool,
    /// Whether operators restore the table to an earlier time, once.
    pub restores: bool,
}

impl Setting {
    const PLAIN: Self = Self {
        name: "plain",
        workers: 2,
        horizon: 6,
        keys_live: 5,
        asks: false,
        store_faults: false,
        webhook: false,
        operator: false,
        skew: 0,
        renamed: false,
        restores: false,
    };

    /// The environments.
    pub const ALL: [Self; 9] = [
        Self::PLAIN,
        Self { name: "asks", keys_live: 0, asks: true, ..Self::PLAIN },
        Self { name: "no keys", keys_live: 0, ..Self::PLAIN },
        Self { name: "store", store_faults: true, ..Self::PLAIN },
        Self { name: "webhook", webhook: true, ..Self::PLAIN },
        Self { name: "operator", keys_live: 0, operator: true, webhook: true, ..Self::PLAIN },
        Self { name: "clocks", skew: 1, store_faults: true, ..Self::PLAIN },
        Self { name: "renamed", workers: 3, renamed: true, ..Self::PLAIN },
        Self {
            name: "restored",
            horizon: 4,
            restores: true,
            operator: true,
            store_faults: true,
            ..Self::PLAIN
        },
    ];

    /// The largest environment, with every fault at once.
    pub const LARGE: [Self; 1] = [Self {
        name: "all phases",
        workers: 3,
        horizon: 8,
        keys_live: 4,
        asks: true,
        store_faults: true,
        webhook: true,
        operator: true,
        skew: 1,
        renamed: false,
        restores: false,
    }];
}

/// A property that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// A call has two effects.
    RepeatedEffect,
    /// Rows are committed twice, or without their recovery point; or the other way round.
    Rows,
    /// The answer does not say what was done.
    FalseAnswer,
    /// Something was done, and the record says that nothing was.
    Forgotten,
    /// A write takes a kept phase from the record.
    LostPhase,
    /// Nothing goes wrong any more, and the operation is neither completed nor with operators.
    NoRest,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RepeatedEffect => {
                "no call has a second effect, if the provider remembers keys as it promises"
            }
            Self::Rows => "the rows of a phase are committed once if it is kept, and otherwise never",
            Self::FalseAnswer => "the answer says what was done: each kept phase, and nothing else",
            Self::Forgotten => "what was done is never released",
            Self::LostPhase => "a kept phase stays kept, with its result, until the answer",
            Self::NoRest => "at rest, the operation is completed, or with operators",
        })
    }
}

/// What a run found.
#[derive(Debug)]
pub struct Findings {
    pub states: usize,
    pub steps: u64,
    pub complete: bool,
    /// The shortest trace to each property that was violated.
    pub violations: Vec<(Violation, Vec<String>)>,
    /// The combinations of a record's fields that were reached.
    pub combinations: Vec<String>,
}

/// Visits the states of this environment, at most `limit` of them.
///
/// # Errors
/// Never: the names are valid.
pub fn explore(setting: &Setting, limit: usize) -> Result<Findings, Box<dyn Error>> {
    let mut protocol = Protocol::new(setting)?;
    let mut states: IndexSet<World, FxBuildHasher> = IndexSet::default();
    let mut parents: Vec<(usize, Action)> = Vec::new();
    let mut violations: Vec<(Violation, Vec<String>)> = Vec::new();
    states.insert(World::START);
    parents.push((0, Action::Tick));
    let (mut place, mut steps, mut next) = (0, 0, Vec::new());
    while place < states.len() && states.len() < limit {
        let world = states[place];
        next.clear();
        steps::successors(setting, &mut protocol, &world, &mut next);
        for (action, successor, violation) in next.drain(..) {
            steps += 1;
            if violation.is_none() && states.contains(&successor) {
                continue;
            }
            let violation = violation.or_else(|| rest::check(setting, &mut protocol, &successor));
            if let Some(violation) = violation {
                if violations.iter().all(|(known, _)| *known != violation) {
                    let (mut story, mut at) = (Vec::new(), place);
                    while at != 0 {
                        story.push(protocol.tell(parents[at].1, &states[at]));
                        at = parents[at].0;
                    }
                    story.reverse();
                    story.push(protocol.tell(action, &successor));
                    violations.push((violation, story));
                }
            } else if states.insert(successor) {
                parents.push((place, action));
            }
        }
        place += 1;
    }
    let mut combinations: Vec<_> = protocol.records().iter().map(combination).collect();
    combinations.sort();
    combinations.dedup();
    Ok(Findings { states: states.len(), steps, complete: place == states.len(), violations, combinations })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many states of each environment a test visits: of the smallest, all.
    const FIRST: usize = 130_000;

    #[test]
    fn no_property_of_phases_falls_in_any_interleaving() {
        let mut states = 0;
        for (setting, limit) in Setting::ALL.iter().chain(&Setting::LARGE).map(|setting| (setting, FIRST)) {
            let found = explore(setting, limit).unwrap();
            let stories: Vec<_> =
                found.violations.iter().map(|(violation, story)| (violation, story.join("\n"))).collect();
            assert!(stories.is_empty(), "{}: {stories:#?}", setting.name);
            states += found.states;
        }
        assert!(states > 1_000_000, "{states}");
    }
}
