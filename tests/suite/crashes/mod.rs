//! Crashes, lost answers and late writes: no effect is repeated, and none is forgotten.

mod cloned_memory;
mod closed_connections;
mod deferred_reports;
mod held;
mod kills;
mod late_reservations;
mod late_workers;
mod lease_expired;
mod lost_answers;
mod network_cuts;
mod table_away;
mod two_calls;
mod two_regions;
