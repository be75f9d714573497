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
