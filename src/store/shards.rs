//! Where a record is in the index of unknown outcomes and operations between workers.

use crate::{
    key::{KeyHash, Tenant},
    time::Timestamp,
};

/// How many partitions of each kind the index of unknown outcomes and operations between workers has. A partition takes 1,000 writes a second. While a provider
/// is down, every operation becomes unknown, and an index that cannot keep up would throttle the table. So the key picks the partition:
/// the writes of one tenant spread over all of them too.
const SHARDS: usize = 8;

/// The partitions of records that reconciliation asks about, or escalates in time.
pub(super) const ASKED_SHARDS: [&str; SHARDS] = ["0", "1", "2", "3", "4", "5", "6", "7"];

/// The partitions of escalated records. They are separate so that an operator finds them without reading the others, and so that
/// they delay no question.
pub(super) const ESCALATED_SHARDS: [&str; SHARDS] = [
    "escalated-0",
    "escalated-1",
    "escalated-2",
    "escalated-3",
    "escalated-4",
    "escalated-5",
    "escalated-6",
    "escalated-7",
];

/// The index partition of a record.
pub(super) fn shard(partition_key: &str, reconcile_at: Timestamp) -> &'static str {
    let shards = if reconcile_at == Timestamp::MAX { ESCALATED_SHARDS } else { ASKED_SHARDS };
    shards[usize::from(KeyHash::of(partition_key).first_byte()) % SHARDS]
}

/// Where the places of this tenant's records begin, in each partition. Its hash has one length, so that no tenant's records lie
/// between another's.
pub(super) fn places_of(tenant: &Tenant) -> String {
    format!("{}#", tenant.hash())
}

/// A record's place in its partition: beside those of its tenant, by time. So a poll can pass over a tenant, however many records it has.
pub(super) fn place(tenant: &Tenant, reconcile_at: Timestamp) -> String {
    format!("{}{:020}", places_of(tenant), reconcile_at.as_millis())
}
