//! When the stale function looks at a record.
//!
//! 1. A record in progress: at the end of its lease. The guard has counted the grace into it (`Operation::lease_until`).
//! 2. Accepted work: once it has waited for the pending bound.
//! 3. A record that is looked at too early is looked at again when its time has come, at least a second later. A queue delays a
//!    message by 15 minutes at most: a longer wait takes several messages.
//! 4. Before that, an execution waits in the window of the stream's batch, which the template sets.

use std::time::Duration;

use crate::{time::Timestamp, time_budget::MIN_CHECK_DELAY};

/// When a record is to be looked at: `lease_until` is its lease if a worker has it.
pub(super) fn look_at(
    lease_until: Option<Timestamp>,
    created_at: Timestamp,
    pending_bound: Duration,
) -> Timestamp {
    lease_until.unwrap_or_else(|| created_at.plus(pending_bound))
}

/// How long to wait for another look.
pub(super) fn wait(look_at: Timestamp, now: Timestamp) -> Duration {
    look_at.since(now).max(MIN_CHECK_DELAY)
}
