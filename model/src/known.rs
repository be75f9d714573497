//! What the model finds in the code as it is. The change that mends a finding removes its row: a test fails if one is not found any more.
//!
//! Environments and properties stay as they are: what they find is only expected.

use std::fmt::Debug;

/// A property that is known to fall.
#[derive(Debug)]
pub struct Known {
    /// The number of the finding, and what it is.
    pub finding: (u8, &'static str),
    /// Where it is found: `functions`, `accepted`, `phases` or `plain`.
    pub world: &'static str,
    pub violation: &'static str,
    pub environments: &'static [&'static str],
}

const fn known(
    finding: (u8, &'static str),
    world: &'static str,
    violation: &'static str,
    environments: &'static [&'static str],
) -> Known {
    Known { finding, world, violation, environments }
}

const TAKEN_BACK: (u8, &str) = (1, "what was taken back counts as an execution");
const UNCOUNTED: (u8, &str) = (2, "an end with 408 that is not counted");
const TOO_OLD: (u8, &str) = (3, "key-too-old overtakes an earlier request");
const DEPLOYED: (u8, &str) = (4, "a deployment changes the phase that is open");
const FINGERPRINT: (u8, &str) = (5, "what is accepted again has other downstream keys");
const ESCALATED: (u8, &str) = (6, "each retry escalates again");
const OVER_RESULT: (u8, &str) = (9, "unknown over the result of that very call");
const REFUSED_ROWS: (u8, &str) = (7, "a refused commit is kept without its value");
const BURIED: (u8, &str) = (10, "a passing refusal of what accepts is a dead letter");
const APART: (u8, &str) = (11, "the order of two transactions is not looked at");
const FROZEN: (u8, &str) = (12, "nothing is taken back behind an answer");
const PUT_OFF: (u8, &str) = (13, "a provider that asks for patience is never asked again");
const NOT_LOOKING: (u8, &str) = (14, "a handler sends after its lease");
const TOLD_TWICE: (u8, &str) = (14, "two effects that only the provider reports");

/// All of them.
pub static KNOWN: &[Known] = &[
    known(TAKEN_BACK, "functions", "NeverTried", &["accepted work that cannot be done"]),
    known(TAKEN_BACK, "functions", "BuriedUntried", &["messages without a provider"]),
    known(TAKEN_BACK, "functions", "KeyNotFree", &["corrected requests"]),
    known(
        TAKEN_BACK,
        "accepted",
        "NeverTried",
        &[
            "calls",
            "one attempt",
            "commits",
            "runs again",
            "resumes",
            "messages",
            "clocks",
            "deleted or restored",
            "rows deleted or restored",
            "all of them",
        ],
    ),
    known(UNCOUNTED, "functions", "Uncounted", &["accepted work that cannot be done"]),
    known(TOO_OLD, "functions", "MisledClient", &["keys with an age"]),
    known(DEPLOYED, "phases", "RepeatedEffect", &["renamed", "reordered"]),
    known(DEPLOYED, "phases", "FalseAnswer", &["removed", "reordered"]),
    known(FINGERPRINT, "functions", "AnotherDownstreamKey", &["work that becomes accepted"]),
    known(ESCALATED, "functions", "EscalatedAgain", &["phases without a provider"]),
    known(
        OVER_RESULT,
        "phases",
        "UnknownOverResult",
        &[
            "plain",
            "no keys",
            "store",
            "webhook",
            "operator",
            "clocks",
            "inserted",
            "renamed",
            "removed",
            "reordered",
            "restored",
        ],
    ),
    known(REFUSED_ROWS, "functions", "NeverResumed", &["phases with much to keep"]),
    known(BURIED, "functions", "BuriedUntried", &["messages that are accepted"]),
    known(APART, "functions", "DeliveredOutOfOrder", &["messages that are seen late"]),
    known(FROZEN, "functions", "NotTakenBack", &["environments that end"]),
    known(PUT_OFF, "functions", "PutOff", &["a provider that asks for patience"]),
    known(
        NOT_LOOKING,
        "functions",
        "TwoEffects",
        &["handlers that do not look", "consumers that do not look"],
    ),
    known(TOLD_TWICE, "functions", "SilentDouble", &["effects that only the provider knows"]),
];

impl Known {
    /// The row for this property, if it is expected to fall.
    pub fn find(world: &str, environment: &str, violation: &impl Debug) -> Option<&'static Self> {
        let violation = format!("{violation:?}");
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
