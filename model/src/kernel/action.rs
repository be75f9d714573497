//! All that can happen. Each action is one atomic step.

use super::report::Found;

/// What can happen. The number is the worker's, or that of a call or of a life of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,

    // An execution begins.
    Begins(u8),
    /// By the new version.
    BeginsAnew(u8),
    /// Its reservation gets no answer, and may land later.
    BeginsLate(u8),
    BeginsUnheard(u8),
    /// It has reserved its record, and looks once more how its tenant stands.
    Reserves(u8),
    LooksAgain(u8),
    FindsDead(u8),
    /// Its client hears that its tenant is over a bound.
    IsOverBound(u8),
    /// Its client gets the kept answer.
    Replays(u8),
    /// What it has claimed, and does not run.
    TakesBack(u8),

    // A handler runs.
    HasItsEffect(u8),
    SendsUnheard(u8),
    SendsAndCrashes(u8),
    IsRefused(u8),
    DoesNothing(u8),
    DoesNotBegin(u8),
    GoesOn(u8),
    AsksInVain(u8),
    AsksItself(u8),
    EndsUnknown(u8),
    Keeps(u8),
    KeepsInVain(u8),
    KeepsLate(u8),
    Commits(u8),
    CommitsRefused(u8),
    CommitsInVain(u8),
    CommitsLate(u8),
    Beats(u8),
    Crashes(u8),

    // It reports.
    Reports(u8),
    ReportsUnheard(u8),
    ReportsInVain(u8),
    ReportsLate(u8),
    DefersAndCrashes(u8),
    /// Its report is in the queue, and it marks the record.
    Marks(u8),
    MarksInVain(u8),
    RowsRefused(u8),
    /// Its rows are refused, and it has no answer for that.
    RowsRefusedUnanswered(u8),
    Delivers(u8),
    DeliversRefused(u8),
    /// Its body cannot be stored yet.
    HandsBack(u8),

    // The store, the stale function and the provider.
    Lands,
    Looks,
    Prunes,
    /// A request that was on its way is executed.
    Arrives(u8),
    Hears(u8),
    /// Its listener dies half-way.
    HearsHalf(u8),
    Asks(Found),
    Learns,
    Drops,

    // Operators.
    Settles(bool),
    Holds,
    Resumes,
    Operates,
    /// The tenant stands otherwise.
    StandsOtherwise,
    Saves,
    Restores,
    Deletes,

    // The queue of accepted work, and its requests.
    Accepts(u8),
    AcceptsLate(u8),
    LosesTheMessage(u8),
    QueuesAgain(u8),
    FindsSettled(u8),
    FindsOver(u8),
    LooksAfter(u8),
    DeletesTheRequest(u8),

    // Deliverers of messages.
    Starts(u8),
    HandsOver(u8),
    HandsOverUnheard(u8),
    Removes(u8),
    Stops(u8),
    LosesTheWake,
    Wakes,
}
