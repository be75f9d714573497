//! What workers report, and what reconcilers find, with a number for each answer.

use protocol::{
    learned::Learned,
    record::{self, Head, KeptAnswer, KeptBody, Verdict},
};

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

impl From<Report> for record::Report {
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

/// An answer with this status, and without its body, whose length is the answer's number.
pub fn answer(status: u16, number: u8) -> KeptAnswer {
    let body = KeptBody::Omitted { length: number.into() };
    KeptAnswer { head: Head::Http { status, headers: [].into() }, body }
}

/// What an operator says: executed with the answer of this number, or not executed.
pub fn verdict(number: Option<u8>) -> Verdict {
    number.map_or(Verdict::NotExecuted, |number| Verdict::Executed(answer(201, number)))
}
