//! What became of a guarded request, for a front around the guard that is not HTTP: an extension of each response of a guard.

use std::time::Duration;

use super::ProblemType;

/// What became of a guarded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) became: Became,
    /// How many executions there were; 0 if it did not run, or if no record counts them.
    pub(crate) attempts: u32,
}

/// What became of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Became {
    /// The response is the operation's answer, and kept.
    Kept,
    /// The request was refused before anything was done.
    NotBegun,
    /// Nothing was done.
    NotExecuted,
    /// Perhaps something was done.
    Perhaps,
    /// The guard answered in the handler's place.
    Problem {
        /// With this problem.
        problem: ProblemType,
        /// The client should wait this long.
        wait: Duration,
        /// How long the lease of the execution in flight still lasts.
        lease_left: Duration,
    },
}

impl From<Became> for Ended {
    /// Without a number of executions.
    fn from(became: Became) -> Self {
        Self { became, attempts: 0 }
    }
}
