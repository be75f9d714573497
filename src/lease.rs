//! How long an execution owns its record.
//!
//! ```text
//! reserve            Lambda deadline      + grace
//!    │  handler runs        │  late writes    │  others may look
//!    ├──────────────────────┼─────────────────┼──────────────▶
//!    0                   deadline         lease_until
//! ```
//!
//! A lease that is over decides only that somebody may *look*; what may be written is decided by the revision.

use std::time::Duration;

use crate::{metrics::Count, policy::Operation, record::Record, time::Timestamp};

/// The longest time that a Lambda function can have (900 s), and as much again for clocks that differ. A deadline
/// further away is none.
pub const FURTHEST_DEADLINE: Duration = Duration::from_secs(2 * 900);

/// A Lambda deadline that can be one: after now and within [`FURTHEST_DEADLINE`].
///
/// The runtime's emulators send 0 or ten minutes after 1970, and a clock that is off can make anything of it. None of
/// these ends the lease, and none makes it endless: the operation's own lease counts instead.
pub fn plausible_deadline(deadline: Timestamp, now: Timestamp) -> Option<Timestamp> {
    (now < deadline && deadline <= now.plus(FURTHEST_DEADLINE)).then_some(deadline)
}

/// Until when an execution that begins now owns its record: its plausible deadline, or the operation's lease; and the
/// operation's grace.
pub fn lease_until(deadline: Option<Timestamp>, now: Timestamp, operation: &Operation) -> Timestamp {
    deadline.unwrap_or_else(|| now.plus(operation.lease_span())).plus(operation.grace_span())
}

/// Logs and counts a worker that was given up, whoever found it dead: each stands for a crash.
pub(crate) fn tell_given_up(record: &Record, now: Timestamp) {
    let (key, operation) = (record.key.hash(), record.key.operation());
    let age_ms = u64::try_from(now.since(record.created_at).as_millis()).unwrap_or(u64::MAX);
    tracing::warn!(%key, %operation, age_ms, "a worker's lease is over: the outcome is unknown");
    Count::ZombieKey.add(operation);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    // T8
    #[test]
    fn a_deadline_of_zero_in_the_past_or_absurdly_far_counts_as_none() {
        let none = [
            Timestamp::from_millis(0),
            Timestamp::from_millis(600_000),
            NOW,
            Timestamp::from_millis(NOW.as_millis() - 1),
            NOW.plus(FURTHEST_DEADLINE + Duration::from_millis(1)),
            Timestamp::from_secs(3_218_000_000),
            Timestamp::from_millis(u64::MAX),
        ];
        for deadline in none {
            assert_eq!(plausible_deadline(deadline, NOW), None, "{deadline:?}");
        }
        let soon = NOW.plus(Duration::from_millis(1));
        assert_eq!(plausible_deadline(soon, NOW), Some(soon));
    }

    // R18, T8
    #[test]
    fn there_is_always_a_lease_from_the_deadline_or_from_the_operation() {
        let operation = Operation::new("pay").lease(Duration::from_secs(60)).grace(Duration::from_secs(10));
        let deadline = NOW.plus(Duration::from_secs(20));
        assert_eq!(lease_until(Some(deadline), NOW, &operation), NOW.plus(Duration::from_secs(30)));
        assert_eq!(lease_until(None, NOW, &operation), NOW.plus(Duration::from_secs(70)));
    }
}
