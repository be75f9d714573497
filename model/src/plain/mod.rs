//! Operations that are executed at once, by workers that crash and freeze between any two steps.

mod rest;
pub mod settings;
mod steps;
mod world;

pub use world::Plain;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kernel::explore::assert_holds;

    /// How many of a large environment's states a test visits.
    const FIRST: usize = 250_000;

    /// The most combinations of a record's fields that a reviewer has to think through.
    const MAX_COMBINATIONS: usize = 40;

    #[test]
    fn no_property_falls_in_any_interleaving() {
        let (mut states, mut combinations) = (0, BTreeSet::new());
        let whole = settings::WHOLE.iter().map(|setting| (setting, usize::MAX));
        for (setting, limit) in whole.chain(settings::LARGE.iter().map(|setting| (setting, FIRST))) {
            let found = assert_holds::<Plain>(setting, limit);
            assert!(found.complete || limit == FIRST, "{}", setting.name);
            states += found.states;
            combinations.extend(found.combinations);
        }
        assert!(states > 2_000_000, "{states}");
        assert!(combinations.len() <= MAX_COMBINATIONS, "{combinations:#?}");
    }
}
