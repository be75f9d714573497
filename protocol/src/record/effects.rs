//! Where the effects of an operation are.

use super::Phases;

/// Where all effects of an operation's executions are. `P` is what is said of its phases, if it has any: of a record, what is known of
/// them; of a reservation, how the operation resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects<P = Phases> {
    /// Anywhere.
    Anywhere,
    /// In the transaction that completes it. So another write over the same revision proves that the execution did nothing, and never
    /// will.
    InTransaction,
    /// In its phases, or in the transaction that completes it.
    InPhases(P),
}

impl<P> Effects<P> {
    /// What is said of the phases, if there are any.
    pub const fn phases(&self) -> Option<&P> {
        match self {
            Self::InPhases(phases) => Some(phases),
            Self::Anywhere | Self::InTransaction => None,
        }
    }

    /// The same, to be changed.
    pub const fn phases_mut(&mut self) -> Option<&mut P> {
        match self {
            Self::InPhases(phases) => Some(phases),
            Self::Anywhere | Self::InTransaction => None,
        }
    }

    /// The same, with something else said of the phases.
    pub fn map<Q>(self, of: impl FnOnce(P) -> Q) -> Effects<Q> {
        match self {
            Self::Anywhere => Effects::Anywhere,
            Self::InTransaction => Effects::InTransaction,
            Self::InPhases(phases) => Effects::InPhases(of(phases)),
        }
    }
}
