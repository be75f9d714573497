//! When the stale function looks at a record.
//!
//! 1. It looks at a record in progress when its lease expires. The lease includes the grace (`Operation::lease_until`).
//! 2. It looks at accepted work once the work has waited for the pending bound.
//! 3. If it looks too early, it looks again at the right time, at least a second later. A queue delays a message by 15 minutes at
//!    most, so a longer wait takes several messages.
//! 4. Before that, an execution waits in the window of the stream's batch, which the template sets.

use std::time::Duration;

use crate::{time::Timestamp, time_budget::MIN_CHECK_DELAY};

/// When to look at a record. `lease_until` is its lease, if a worker has it.
pub(super) fn look_at(
    lease_until: Option<Timestamp>,
    created_at: Timestamp,
    pending_bound: Duration,
) -> Timestamp {
    lease_until.unwrap_or_else(|| created_at.plus(pending_bound))
}

/// How long to wait before the next look.
pub(super) fn wait(look_at: Timestamp, now: Timestamp) -> Duration {
    look_at.since(now).max(MIN_CHECK_DELAY)
}
