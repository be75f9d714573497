//! What is learned about an operation whose outcome is unknown, and what that changes in its record.
//!
//! 1. `answer` is what was learned. `asked` says whether a record is asked about now, and computes the next record from the answer;
//!    `learning` says who is told besides. Proof of an effect is stronger than any denial.
//! 2. `meaning` says what a provider's report, which nobody has asked for, means for the current record.
//! 3. `schedule` says when to ask again, and `wrong_kind` which findings a record cannot take.
//!
//! It asks nobody. The library asks, keeps the answer's body, writes what is computed here, and sends what is escalated.

mod answer;
mod asked;
mod learning;
mod meaning;
mod outcome;
mod schedule;
mod wrong_kind;

pub use answer::Learned;
pub use asked::{Asked, Asks, NotFound, questions};
pub use learning::Learning;
pub use meaning::{Meaning, Reported, SECOND_EFFECT};
pub use outcome::ReconcileOutcome;
pub use schedule::Schedule;
pub use wrong_kind::WrongKind;

#[cfg(test)]
mod tests {
    use crate::{
        record::{Phase, PhaseResult},
        time::Timestamp,
    };

    /// A phase with this result, which is canonical.
    pub(super) fn phase(name: &str, result: &str, at: Timestamp) -> Phase {
        Phase::new(name.to_owned(), Some(PhaseResult::new(result.to_owned(), result)), at)
    }
}
