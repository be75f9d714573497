//! How a tenant stands with its bounds, and with operators, as a worker knows it when a request comes.

use std::time::Duration;

use super::Says;

/// How the tenant of a request stands.
///
/// A bound is asked only where there is no record: an operation that has begun is served to its end (T86). An operator's stop also ends
/// what would run again from its beginning. What is interrupted between two phases resumes, whatever the tenant's standing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Within its bounds, as far as is known.
    #[default]
    Within,
    /// Over a bound, for so long, as far as is known.
    Over(Duration),
    /// Operators have stopped it: nothing new begins, but accepted work is executed.
    Stopped,
    /// Likewise, and accepted work waits.
    WorkStopped,
}

impl Standing {
    /// Whether an operation may begin that has no record.
    ///
    /// # Errors
    /// What its caller hears instead.
    pub const fn begins(self) -> Result<(), Says> {
        match self {
            Self::Within => Ok(()),
            Self::Over(wait) => Err(Says::OverBound { wait }),
            Self::Stopped | Self::WorkStopped => Err(Says::Stopped),
        }
    }

    /// Whether an operation that has a record may run from its beginning.
    ///
    /// # Errors
    /// What its caller hears instead.
    pub const fn begins_again(self) -> Result<(), Says> {
        match self {
            Self::Within | Self::Over(_) => Ok(()),
            Self::Stopped | Self::WorkStopped => Err(Says::Stopped),
        }
    }

    /// Whether a worker may begin what was accepted.
    ///
    /// # Errors
    /// What it hears instead.
    pub const fn begins_work(self) -> Result<(), Says> {
        match self {
            Self::Within | Self::Over(_) | Self::Stopped => Ok(()),
            Self::WorkStopped => Err(Says::Stopped),
        }
    }
}
