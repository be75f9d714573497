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

pub use world::Phases;

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
