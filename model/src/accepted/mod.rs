//! Work that is accepted, and executed later by a worker that claims it.
//!
//! Clients, a queue that delivers often, late or never, workers that die between any two steps, the sweep, the stale function, the
//! provider and an operator. What a step does to the record, production code decides. A run visits every state once, by breadth.

mod facts;
mod messages;
mod properties;
mod protocol;
mod rest;
mod steps;
mod workers;
mod world;

use std::{error::Error, fmt};

use self::{facts::combination, protocol::Protocol, rest::Rest, steps::Action, world::World};
use crate::explore::{Space, Successor};

/// What a handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// It has its effect at a provider.
    Calls,
    /// All its effects are rows that commit with its answer.
    Commits,
    /// Its effect may be repeated.
    RunsAgain,
    /// Its effect is a phase, whose result is kept.
    Resumes,
}

/// The environment of one run. Times are in ticks of five minutes.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name, for reports.
    pub name: &'static str,
    pub handler: Handler,
    /// How many executions may begin, at most three.
    pub workers: u8,
    /// When time ends.
    pub horizon: u8,
    pub max_attempts: u32,
    /// How long a worker may claim what is accepted.
    pub claim: u8,
    /// How long the answer is kept.
    pub retention: u8,
    /// How often the key may begin.
    pub lives: u8,
    /// Whether the handler publishes messages: one with its phase, and two with its answer.
    pub messages: bool,
    /// Whether writes may get no answer.
    pub store_faults: bool,
    /// Whether messages of the queue of work are lost.
    pub losses: bool,
    /// Whether the provider reports effects unprompted.
    pub webhook: bool,
    /// Whether the provider denies, or does not find, what it did.
    pub provider_lies: bool,
    /// Whether an operator settles unknown outcomes.
    pub operator: bool,
    /// Whether somebody deletes the record by hand, or restores an earlier one with its request.
    pub meddles: bool,
    /// By how many ticks a clock may be ahead.
    pub skew: u8,
}

impl Setting {
    const CALLS: Self = Self {
        name: "calls",
        handler: Handler::Calls,
        workers: 2,
        horizon: 6,
        max_attempts: 2,
        claim: 4,
        retention: 20,
        lives: 1,
        messages: false,
        store_faults: true,
        losses: true,
        webhook: false,
        provider_lies: false,
        operator: false,
        meddles: false,
        skew: 0,
    };

    /// The environments.
    pub const ALL: [Self; 12] = [
        Self::CALLS,
        Self { name: "one attempt", max_attempts: 1, ..Self::CALLS },
        Self { name: "commits", handler: Handler::Commits, workers: 3, ..Self::CALLS },
        // Without faults of the store: a report of "nothing done" that is repeated counts twice.
        Self { name: "runs again", handler: Handler::RunsAgain, ..Self::CALLS },
        Self { name: "resumes", handler: Handler::Resumes, operator: true, ..Self::CALLS },
        Self { name: "lies", provider_lies: true, store_faults: false, ..Self::CALLS },
        Self { name: "webhooks", provider_lies: true, webhook: true, store_faults: false, ..Self::CALLS },
        Self {
            name: "lives",
            lives: 2,
            retention: 2,
            horizon: 9,
            claim: 3,
            store_faults: false,
            ..Self::CALLS
        },
        Self {
            name: "messages",
            handler: Handler::Resumes,
            messages: true,
            horizon: 5,
            losses: false,
            ..Self::CALLS
        },
        Self { name: "clocks", skew: 1, operator: true, ..Self::CALLS },
        Self { name: "deleted or restored", meddles: true, lives: 2, losses: false, ..Self::CALLS },
        Self {
            name: "rows deleted or restored",
            handler: Handler::Commits,
            meddles: true,
            lives: 2,
            ..Self::CALLS
        },
    ];

    /// The largest environment, with every fault at once.
    pub const LARGE: [Self; 1] = [Self {
        name: "all of them",
        workers: 3,
        horizon: 8,
        lives: 2,
        retention: 3,
        webhook: true,
        provider_lies: true,
        operator: true,
        meddles: true,
        skew: 1,
        ..Self::CALLS
    }];
}

/// A property that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Two effects, although the provider and the operators are honest.
    TwoEffects,
    /// An execution begins after an effect was reported to the record.
    BeganAfterEffect,
    /// An execution begins although an operator holds the record.
    BeganOverHold,
    /// A client's request begins anew what is accepted, or takes it over.
    ClientTookOver,
    /// A worker executes what its message does not ask for.
    AnotherRequest,
    /// An execution begins although the time for that is over.
    BeganLate,
    /// It is executed more often than it may be.
    TooManyAttempts,
    /// It ends as not executed, and was, or perhaps was.
    FalseAbandonment,
    /// It ends as not executed in its time, with fewer handlers begun than it has tries.
    NeverTried,
    /// A refusal becomes the answer although an effect was reported.
    RefusalOverEffect,
    /// A kept phase is lost.
    LostPhase,
    /// What is not completed has a time to live.
    TimeToLive,
    /// The request is gone, and a worker may need it.
    RequestMissing,
    /// The request is there, and no worker needs it any more.
    RequestLeft,
    /// The answer changes.
    TwoAnswers,
    /// Rows are committed twice, or without the answer; or the other way round.
    Rows,
    /// A message has the number of another one, or none that its record counts.
    Overwritten,
    /// A message is handed over before an earlier one.
    OutOfOrder,
    /// A message was committed, and nobody gets it.
    Undelivered,
    /// A report that was accepted has no trace.
    LostReport,
    /// Two effects that were reported, and no alarm.
    SilentDouble,
    /// It waits between workers, workers run, and none resumes it.
    NeverResumed,
    /// Nothing happens any more, and it is neither completed nor with operators.
    NoRest,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoEffects => "at most one effect, if provider and operators are honest",
            Self::BeganAfterEffect => "no execution begins once an effect is reported to the record",
            Self::BeganOverHold => "no execution begins while an operator holds the record",
            Self::ClientTookOver => "only a worker's claim begins an execution",
            Self::AnotherRequest => "a worker executes what was accepted with its request, and nothing else",
            Self::BeganLate => "no execution begins once the time to claim it is over",
            Self::TooManyAttempts => "it is executed no more often than `max_attempts` says",
            Self::FalseAbandonment => "408 is the answer only if no effect happened or was reported",
            Self::NeverTried => "in its time, it ends with 408 only after as many handlers as it has tries",
            Self::RefusalOverEffect => "no refusal becomes the answer over a reported effect",
            Self::LostPhase => "a kept phase stays kept, and nothing ends over it as not executed",
            Self::TimeToLive => "only what is completed has a time to live",
            Self::RequestMissing => "the request is there as long as a worker may need it",
            Self::RequestLeft => "at rest, the request of what is completed is gone",
            Self::TwoAnswers => "an answer is constant",
            Self::Rows => "rows are committed once if it is completed with them, and otherwise never",
            Self::Overwritten => "each message has a number of its own, which its record counts",
            Self::OutOfOrder => "messages are first handed over in their order",
            Self::Undelivered => "each message that was committed is handed over",
            Self::LostReport => "each accepted report is in the answer, or with operators",
            Self::SilentDouble => "two reported effects are with operators",
            Self::NeverResumed => "what waits between workers is resumed, if sweep and workers run",
            Self::NoRest => "at rest, what was accepted is completed, or with operators",
        })
    }
}

/// One environment, and what is known of its states.
pub struct Accepted {
    setting: &'static Setting,
    protocol: Protocol,
    rest: Rest,
}

impl Accepted {
    /// # Errors
    /// Never: the names are valid.
    pub fn new(setting: &'static Setting) -> Result<Self, Box<dyn Error>> {
        Ok(Self { setting, protocol: Protocol::new(setting)?, rest: Rest::default() })
    }
}

impl Space for Accepted {
    type State = World;
    type Action = Action;
    type Violation = Violation;

    const WORLD: &'static str = "accepted";

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
        self.rest.check(self.setting, &mut self.protocol, world)
    }

    fn rest_story(&mut self, world: &World, _: Violation) -> Vec<String> {
        self.rest.story(self.setting, &mut self.protocol, world)
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
    const FIRST: usize = 100_000;

    #[test]
    fn no_property_of_accepted_work_falls_in_any_interleaving() {
        for setting in Setting::ALL.iter().chain(&Setting::LARGE) {
            assert_holds(&mut Accepted::new(setting).unwrap(), FIRST);
        }
    }
}
