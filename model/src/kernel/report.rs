//! What workers report, and what reconcilers find, with a number for each answer.

use protocol::{
    learned::Learned,
    record::{self, Head, KeptAnswer, KeptBody, Verdict},
    time::Timestamp,
};

use super::records::{Name, phase};

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
    /// Its handler never began: what it claimed is taken back.
    NotStarted,
    /// Something may have been done.
    PerhapsExecuted,
    /// It ended in the call of a phase, which was perhaps made.
    Interrupted,
}

impl Report {
    pub const fn is_effect(self) -> bool {
        matches!(self, Self::Effect(_))
    }
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
    /// The result of the phase of this name.
    Phase(Name, u8),
    /// Nobody has resumed the record in time.
    NotResumed,
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
            Report::NotStarted => Self::NotStarted,
            Report::PerhapsExecuted => Self::PerhapsExecuted(None),
            Report::Interrupted => Self::Interrupted(None),
        }
    }
}

impl Found {
    /// What a reconciler says at this time.
    pub fn learned(self, now: Timestamp) -> Learned {
        match self {
            Self::Executed(number) => Learned::Executed(answer(201, number)),
            Self::NotExecuted => Learned::NotExecuted,
            Self::NotFound => Learned::NotFound,
            Self::Refused => Learned::Executed(answer(402, REFUSED)),
            Self::Phase(name, result) => Learned::Phase(phase(name, result, now)),
            Self::NotResumed => Learned::NotResumed,
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
