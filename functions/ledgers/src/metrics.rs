//! The counters of a comparison, through the facade of the crate `metrics`. They have no labels: one comparison is about all operations.

use crate::Summary;

/// Counts a comparison and its differences. Zeros are counted too, so that a recorder can show that none was found.
pub(crate) fn compared(summary: &Summary) {
    let differences = summary.only_ours + summary.only_theirs + summary.differs + summary.duplicates;
    for (name, count) in [
        (COMPARE_COMPLETED, 1),
        (COMPARE_DIFFERENCES, differences),
        (COMPARE_ONLY_OURS, summary.only_ours),
        (COMPARE_ONLY_THEIRS, summary.only_theirs),
        (COMPARE_DIFFERS, summary.differs),
        (COMPARE_DUPLICATES, summary.duplicates),
    ] {
        ::metrics::counter!(name).increment(count);
    }
}

/// Finished comparisons.
pub const COMPARE_COMPLETED: &str = "api.idempotency.compare.completed.count";

/// All differences between the two ledgers: the sum of the other four, for an alarm. A day is compared twice, and its differences
/// count both times.
pub const COMPARE_DIFFERENCES: &str = "api.idempotency.compare.differences.count";

/// Entries that only our ledger has.
pub const COMPARE_ONLY_OURS: &str = "api.idempotency.compare.only_ours.count";

/// Entries that only the other ledger has.
pub const COMPARE_ONLY_THEIRS: &str = "api.idempotency.compare.only_theirs.count";

/// Entries on which the two ledgers disagree.
pub const COMPARE_DIFFERS: &str = "api.idempotency.compare.differs.count";

/// Entries that one ledger has more than once.
pub const COMPARE_DUPLICATES: &str = "api.idempotency.compare.duplicates.count";
