//! Level 2: runs the library's whole asynchronous functions, in every order and with faults at every await.
//!
//! 1. Each process is a future, polled by hand on one thread. Each of its calls waits at a gate, until the
//!    explorer decides how it ends.
//! 2. The library is the production code: only the world, the store, the queues and the provider around it are the model's.
//! 3. An execution is repeated exactly by its choices: nonces come from counters, and time from a clock that only advances
//!    when no process can go on.
//! 4. A state that was visited before is not explored again. It is known by its digest: what the store, the queues and the
//!    provider hold, and what each process was answered.
//! 5. What must hold is in `properties`.

mod accepted;
mod answers;
mod call;
mod choices;
mod clock;
mod consumer;
mod counts;
mod digest;
mod execution;
pub mod explore;
mod handler;
mod harsh;
mod ids;
mod input;
mod ledger;
mod outbox;
mod perform;
mod processes;
mod properties;
mod queues;
mod receives;
mod reply;
mod rest;
pub mod scenario;
mod scenarios;
mod services;
mod shard;
mod shards;
mod shelf;
mod state;
mod story;
mod universe;

use self::{harsh::HARSH, scenario::Scenario, scenarios::SCENARIOS, shards::SHARDS};

/// All scenarios.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    SCENARIOS.iter().chain(&HARSH).chain(&SHARDS)
}

#[cfg(test)]
mod tests {
    use super::{explore::explore, *};
    use crate::known::Known;

    /// How many executions of each scenario a test runs.
    const FIRST: u64 = 3_000;

    /// By how many of them what is known is found.
    const KNOWN_BY: u64 = 20_000;

    // In two tests, which run at once.
    #[test]
    fn no_property_falls_in_the_first_executions_of_any_scenario() {
        none_falls(SCENARIOS.iter().chain(&HARSH));
    }

    #[test]
    fn no_property_falls_in_the_first_executions_of_a_shard() {
        none_falls(SHARDS.iter());
    }

    fn none_falls(scenarios: impl Iterator<Item = &'static Scenario>) {
        for scenario in scenarios {
            let mut found = explore(scenario, 1, FIRST, &mut |_, _| {});
            if found.violation.is_none()
                && !Known::missing("functions", scenario.name, &found.known).is_empty()
            {
                found = explore(scenario, 1, KNOWN_BY, &mut |_, _| {});
            }
            let missing = Known::missing("functions", scenario.name, &found.known);
            let name = scenario.name;
            assert!(
                missing.is_empty(),
                "{name}: what is mended is no longer known: remove it from known.rs: {missing:?}"
            );
            let story = found.violation.map(|(violation, story)| (violation, story.join("\n")));
            assert!(story.is_none(), "{}: {story:#?}", scenario.name);
            assert!(found.complete || found.executions >= FIRST, "{}", scenario.name);
        }
    }

    // Otherwise a story could not be repeated.
    #[test]
    fn the_same_choices_lead_to_the_same_execution() {
        let runs = [(); 2].map(|()| explore(&SCENARIOS[0], 1, FIRST, &mut |_, _| {}));
        let [first, second] = runs.map(|found| (found.executions, found.states, found.depth));
        assert_eq!(first, second);
    }
}
