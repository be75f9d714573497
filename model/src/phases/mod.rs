//! Operations that resume: a charge, stock that may be refused, and then a refund, by workers that die between any two steps.
//!
//! The handler is a program of three phases. What a step does to the record, and what a handler does next, production code
//! decides. A run visits every state once, by breadth.

mod properties;
mod protocol;
mod rest;
mod steps;
mod world;

use std::{error::Error, fmt};

use self::{
    protocol::{Protocol, combination},
    steps::Action,
    world::World,
};
use crate::explore::{Space, Successor};

/// What the new version of a handler does otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    None,
    /// It has another phase first.
    Inserted,
    /// It calls the charge otherwise.
    Renamed,
    /// It refunds nothing.
    Removed,
    /// It takes the stock before it charges.
    Reordered,
}

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
    /// What a deployment changes, whose workers run beside those of the version before.
    pub change: Change,
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
        change: Change::None,
        restores: false,
    };

    /// The environments.
    pub const ALL: [Self; 12] = [
        Self::PLAIN,
        Self { name: "asks", keys_live: 0, asks: true, ..Self::PLAIN },
        Self { name: "no keys", keys_live: 0, ..Self::PLAIN },
        Self { name: "store", store_faults: true, ..Self::PLAIN },
        Self { name: "webhook", webhook: true, ..Self::PLAIN },
        Self { name: "operator", keys_live: 0, operator: true, webhook: true, ..Self::PLAIN },
        Self { name: "clocks", skew: 1, store_faults: true, ..Self::PLAIN },
        Self { name: "inserted", workers: 3, change: Change::Inserted, ..Self::PLAIN },
        Self { name: "renamed", change: Change::Renamed, ..Self::PLAIN },
        Self { name: "removed", change: Change::Removed, ..Self::PLAIN },
        Self { name: "reordered", change: Change::Reordered, ..Self::PLAIN },
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
        change: Change::None,
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
    /// "Perhaps made" of a call lands over the result of that call.
    UnknownOverResult,
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
            Self::UnknownOverResult => "an operation is not unknown because of a call whose result it has",
            Self::NoRest => "at rest, the operation is completed, or with operators",
        })
    }
}

/// One environment, and what is known of its states.
pub struct Phases {
    setting: &'static Setting,
    protocol: Protocol,
}

impl Phases {
    /// # Errors
    /// Never: the names are valid.
    pub fn new(setting: &'static Setting) -> Result<Self, Box<dyn Error>> {
        Ok(Self { setting, protocol: Protocol::new(setting)? })
    }
}

impl Space for Phases {
    type State = World;
    type Action = Action;
    type Violation = Violation;

    const WORLD: &'static str = "phases";

    fn name(&self) -> &'static str {
        self.setting.name
    }

    fn start(&self) -> World {
        World::START
    }

    fn successors(&mut self, world: &World, next: &mut Vec<Successor<Self>>) {
        steps::successors(self.setting, &mut self.protocol, world, next);
    }

    fn at_rest(&mut self, world: &World) -> Option<Violation> {
        rest::check(self.setting, &mut self.protocol, world)
    }

    fn tell(&self, action: Action, after: &World) -> String {
        self.protocol.tell(action, after)
    }

    fn combinations(&self) -> Vec<String> {
        self.protocol.records().iter().map(combination).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explore::assert_holds;

    /// How many states of each environment a test visits: of the smallest, all.
    const FIRST: usize = 130_000;

    #[test]
    fn no_property_of_phases_falls_in_any_interleaving() {
        let mut states = 0;
        for setting in Setting::ALL.iter().chain(&Setting::LARGE) {
            let found = assert_holds(&mut Phases::new(setting).unwrap(), FIRST);
            states += found.states;
        }
        assert!(states > 1_000_000, "{states}");
    }
}
