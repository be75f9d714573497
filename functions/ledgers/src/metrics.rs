//! What a comparison counts, through the facade of the crate `metrics`. Each counter has the label `operation`.

use lambda_idempotency::key::OperationName;

use crate::Summary;

/// Counts a comparison and its differences. Zeros too: a recorder that passes them on shows that none was found.
pub(crate) fn compared(operation: &OperationName, summary: &Summary) {
    let differences = summary.only_ours + summary.only_theirs + summary.differs + summary.duplicates;
    for (name, count) in [
        (COMPARE_COMPLETED, 1),
        (COMPARE_DIFFERENCES, differences),
        (COMPARE_ONLY_OURS, summary.only_ours),
        (COMPARE_ONLY_THEIRS, summary.only_theirs),
        (COMPARE_DIFFERS, summary.differs),
        (COMPARE_DUPLICATES, summary.duplicates),
    ] {
        ::metrics::counter!(name, "operation" => operation.as_str().to_owned()).increment(count);
    }
}

/// Comparisons that came to their end.
pub const COMPARE_COMPLETED: &str = "api.idempotency.compare.completed.count";

/// What the two ledgers do not agree on, of whatever kind: the sum of the other four, for an alarm. A day is compared twice, and its
/// differences count in both.
pub const COMPARE_DIFFERENCES: &str = "api.idempotency.compare.differences.count";

/// Entries that only our ledger has.
pub const COMPARE_ONLY_OURS: &str = "api.idempotency.compare.only_ours.count";

/// Entries that only the other ledger has.
pub const COMPARE_ONLY_THEIRS: &str = "api.idempotency.compare.only_theirs.count";

/// Entries of which the two ledgers do not say the same.
pub const COMPARE_DIFFERS: &str = "api.idempotency.compare.differs.count";

/// Entries that one ledger has more than once.
pub const COMPARE_DUPLICATES: &str = "api.idempotency.compare.duplicates.count";
