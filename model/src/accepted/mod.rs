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

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

pub use self::facts::combination;
use self::{protocol::Protocol, rest::Rest, steps::Action, world::World};

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
    /// It ends as not executed before its time, and a worker could have executed it.
    AbandonedEarly,
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
            Self::AbandonedEarly => {
                "408 comes once the time or all executions are over; none is lost by a slow store"
            }
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
    let mut rest = Rest::default();
    let mut states: IndexSet<World, FxBuildHasher> = IndexSet::default();
    let mut parents: Vec<(usize, Action)> = Vec::new();
    let mut violations: Vec<(Violation, Vec<String>)> = Vec::new();
    states.insert(World::START);
    parents.push((0, Action::Start));
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
            let at_rest =
                violation.is_none().then(|| rest.check(setting, &mut protocol, &successor)).flatten();
            if let Some(violation) = violation.or(at_rest) {
                if violations.iter().all(|(known, _)| *known != violation) {
                    let (mut story, mut at) = (Vec::new(), place);
                    while at != 0 {
                        story.push(protocol.tell(parents[at].1, &states[at]));
                        at = parents[at].0;
                    }
                    story.reverse();
                    story.push(protocol.tell(action, &successor));
                    if at_rest.is_some() {
                        story.extend(rest.story(setting, &mut protocol, &successor));
                    }
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
    const FIRST: usize = 100_000;

    #[test]
    fn no_property_of_accepted_work_falls_in_any_interleaving() {
        for setting in Setting::ALL.iter().chain(&Setting::LARGE) {
            let found = explore(setting, FIRST).unwrap();
            let stories: Vec<_> =
                found.violations.iter().map(|(violation, story)| (violation, story.join("\n"))).collect();
            assert!(stories.is_empty(), "{}: {stories:#?}", setting.name);
        }
    }
}
