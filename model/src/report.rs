//! What workers report, and what reconcilers find, with a number for each answer.

use lambda_idempotency::internal::steps::{self, Learned, answer};

/// What a worker reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Report {
    /// An effect, with the answer of this number.
    Effect(u8),
    /// A refusal, with the answer of this number.
    Refusal(u8),
    /// It did nothing.
    NotExecuted,
    /// The request was refused before anything was done.
    NotBegun,
    /// Something may have been done.
    PerhapsExecuted,
}

/// What a reconciler finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Found {
    /// The effect, with the answer of this number.
    Executed(u8),
    /// It was not executed, and will not be.
    NotExecuted,
    /// The provider does not know it.
    NotFound,
    /// The provider has refused it.
    Refused,
}

/// The number of the provider's refusal.
const REFUSED: u8 = 7;

impl From<Report> for steps::Report {
    fn from(report: Report) -> Self {
        match report {
            Report::Effect(number) => Self::Completed(answer(201, number)),
            Report::Refusal(number) => Self::Completed(answer(402, number)),
            Report::NotExecuted => Self::NotExecuted(None),
            Report::NotBegun => Self::NotBegun,
            Report::PerhapsExecuted => Self::PerhapsExecuted(None),
        }
    }
}

impl From<Found> for Learned {
    fn from(found: Found) -> Self {
        match found {
            Found::Executed(number) => Self::Executed(answer(201, number)),
            Found::NotExecuted => Self::NotExecuted,
            Found::NotFound => Self::NotFound,
            Found::Refused => Self::Executed(answer(402, REFUSED)),
        }
    }
}
