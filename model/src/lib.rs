//! Tries every interleaving of the protocol's steps, with the production code for each step.

pub mod accepted;
pub mod actions;
pub mod config;
mod ending;
pub mod explore;
pub mod functions;
pub mod known;
pub mod mutations;
pub mod phases;
pub mod plain;
pub mod protocol;
pub mod records;
pub mod report;
pub mod rest;
pub mod world;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{config::Config, explore::assert_holds, plain::Plain};

    /// How many of a large environment's states a test visits.
    const FIRST: usize = 250_000;

    /// The most combinations of a record's fields that a reviewer has to think through.
    const MAX_COMBINATIONS: usize = 40;

    #[test]
    fn no_property_falls_in_any_interleaving() {
        let (mut states, mut combinations) = (0, BTreeSet::new());
        for (config, limit) in Config::WHOLE
            .iter()
            .map(|config| (config, usize::MAX))
            .chain(Config::LARGE.iter().map(|config| (config, FIRST)))
        {
            let found = assert_holds(&mut Plain::new(config).unwrap(), limit);
            assert!(found.complete || limit == FIRST, "{}", config.name);
            states += found.states;
            combinations.extend(found.combinations);
        }
        assert!(states > 2_000_000, "{states}");
        assert!(combinations.len() <= MAX_COMBINATIONS, "{combinations:#?}");
    }
}
