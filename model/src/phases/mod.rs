//! Operations that resume: a charge, stock that may be refused, and then a refund, by workers that die between any two steps.
//!
//! The handler is a program of three phases. What it does next, production code decides.

mod handler;
mod names;
mod properties;
mod rest;
pub mod settings;
mod steps;
mod world;

use ::protocol::record::Record;
pub use world::Phases;

use self::world::World;
use crate::kernel::{
    protocol::Protocol,
    rest::Moves,
    setting::{Change, Setting},
    steps::{Steps, Successor},
    violation::Violation,
};

impl Moves for Phases {
    /// How often a client retries until operators must have the operation, behind the end of all that was on its way.
    const MAX_STEPS: usize = 14;

    fn ways(setting: &Setting) -> &'static [(bool, &'static str)] {
        match setting.change {
            // What another version does first is not modelled.
            Change::None | Change::Inserted => &[(false, "")],
            _ => &[(false, ""), (true, ", but for retries of the new version")],
        }
    }

    fn combination(record: &Record) -> String {
        names::combination(record)
    }

    fn tell(world: &World) -> String {
        let effects = world.own.calls.map(|call| call.effects);
        format!("; effects {effects:?}, rows {}", world.own.rows)
    }

    fn successors(steps: &mut Steps<'_, Self>) {
        steps.all();
    }

    fn calm(
        setting: &Setting,
        protocol: &mut Protocol,
        world: &World,
        is_new: bool,
    ) -> Option<Successor<Self>> {
        rest::calm(setting, protocol, world, is_new)
    }

    fn at_rest(_: &Setting, _: &mut Protocol, _: &World, _: bool) -> Option<Violation> {
        // That it comes there is all.
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::explore::assert_holds;

    /// How many states of each environment a test visits: of the smallest, all.
    const FIRST: usize = 130_000;

    #[test]
    fn no_property_of_phases_falls_in_any_interleaving() {
        let settings = settings::ALL.iter().chain(&settings::LARGE);
        let states: usize = settings.map(|setting| assert_holds::<Phases>(setting, FIRST).states).sum();
        assert!(states > 1_000_000, "{states}");
    }
}
