//! What the model finds in the code as it is. The change that mends a finding removes its row: a test fails if one is not found any more.
//!
//! Environments and properties stay as they are: what they find is only expected.

use crate::kernel::violation::Violation;

/// A property that is known to fall.
#[derive(Debug)]
pub struct Known {
    /// The number of the finding, and what it is.
    pub finding: (u8, &'static str),
    /// Where it is found: `functions`, `accepted`, `phases` or `plain`.
    pub world: &'static str,
    pub violation: Violation,
    pub environments: &'static [&'static str],
}

const fn known(
    finding: (u8, &'static str),
    world: &'static str,
    violation: Violation,
    environments: &'static [&'static str],
) -> Known {
    Known { finding, world, violation, environments }
}

/// Later than the report in the queue, which says that nothing has started: `docs/security.md` tells of that limit.
const LANDS_LATE: (u8, &str) = (12, "a reservation that lands long after its answer is taken back by nobody");
/// Guards poll no handler past its lease. These handlers run without a guard, as a task of its own would: that they look is assumed.
const TOLD_TWICE: (u8, &str) =
    (14, "two effects, of handlers without a guard, that only the provider reports");

/// All of them.
pub static KNOWN: &[Known] = &[
    known(LANDS_LATE, "functions", Violation::NotTakenBack, &["environments that end"]),
    known(TOLD_TWICE, "functions", Violation::SilentDouble, &["effects that only the provider knows"]),
];

impl Known {
    /// The row for this property, if it is expected to fall.
    pub fn find(world: &str, environment: &str, violation: Violation) -> Option<&'static Self> {
        Self::of(world, environment).find(|known| known.violation == violation)
    }

    /// The rows of an environment.
    pub fn of(world: &str, environment: &str) -> impl Iterator<Item = &'static Self> {
        let is_its = move |known: &&Self| known.world == world && known.environments.contains(&environment);
        KNOWN.iter().filter(is_its)
    }

    /// The rows of an environment that were not found.
    pub fn missing(
        world: &str,
        environment: &str,
        found: &[(&'static Self, Vec<String>)],
    ) -> Vec<&'static Self> {
        let is_found = |known: &&'static Self| found.iter().any(|(found, _)| std::ptr::eq(*found, *known));
        Self::of(world, environment).filter(|known| !is_found(known)).collect()
    }
}
