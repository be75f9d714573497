//! Work that is accepted, and executed later by a worker that claims it.
//!
//! Clients, a queue that delivers often, late or never, workers that die between any two steps, the sweep, the stale function, the
//! provider and an operator.

mod messages;
mod outbox;
mod properties;
mod rest;
pub mod settings;
mod steps;
mod workers;
mod world;

pub use world::Accepted;

use self::world::World;
use crate::kernel::{
    protocol::Protocol,
    rest::Moves,
    setting::Setting,
    steps::{Steps, Successor},
    violation::Violation,
    world::{At, NUMBERS},
};

impl Moves for Accepted {
    fn ways(_: &Setting) -> &'static [(bool, &'static str)] {
        &[(true, ""), (false, ", and no worker takes more")]
    }

    fn successors(steps: &mut Steps<'_, Self>) {
        steps.all();
    }

    /// Every process dies.
    fn ends(world: &mut World) {
        for worker in NUMBERS {
            if world.worker(worker).at != At::Idle {
                world.dies(worker);
            }
        }
    }

    fn calm(
        setting: &Setting,
        protocol: &mut Protocol,
        world: &World,
        works: bool,
    ) -> Option<Successor<Self>> {
        rest::calm(setting, protocol, world, works)
    }

    fn at_rest(setting: &Setting, protocol: &mut Protocol, world: &World, _: bool) -> Option<Violation> {
        rest::at_rest(setting, protocol, world)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::explore::assert_holds;

    /// How many states of each environment a test visits: of the smallest, all.
    const FIRST: usize = 100_000;

    #[test]
    fn no_property_of_accepted_work_falls_in_any_interleaving() {
        for setting in settings::ALL.iter().chain(&settings::LARGE) {
            assert_holds::<Accepted>(setting, FIRST);
        }
    }
}
