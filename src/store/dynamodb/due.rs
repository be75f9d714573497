//! Reads which questions are due, tenant by tenant.
//!
//! Within a partition of the index, a tenant's records lie side by side, the longest overdue first. So a read takes the first of them
//! and goes on behind the last, however many there are.
//!
//! A record's key picks its partition, so a tenant has records in all of them. They are read at once, from the same tenant on. A tenant has
//! its turn once every partition was read past it.

use std::collections::{BTreeMap, HashSet};

use aws_sdk_dynamodb::types::AttributeValue;

use super::{
    DynamoDbStore, Result,
    shard::{BEFORE_ALL, TenantHash, behind, foreign_cursor, key_or_log, place_of},
};
use crate::{
    key::RecordKey,
    store::{Cursor, Due, Turn, shards::ASKED_SHARDS},
    time::Timestamp,
};

/// How many records of a partition are read at once. Tenants with few records are read together, and of one with many only this much.
const PAGE: i32 = 25;

/// The tenants of a part of one partition, each with those of its questions that are due, the longest overdue first.
#[derive(Default)]
struct Part {
    due: BTreeMap<TenantHash, Vec<(Timestamp, RecordKey)>>,
    /// The last of them; `None` if there are no more in the partition.
    last: Option<TenantHash>,
}

impl DynamoDbStore {
    pub(super) async fn due_in_part(
        &self,
        now: Timestamp,
        from: Option<&Cursor>,
        limit: usize,
        taken: &HashSet<RecordKey>,
    ) -> Result<Due> {
        let after = match from.map(Cursor::parts) {
            None => None,
            Some([tenant]) => Some(&**tenant),
            Some(_) => return Err(foreign_cursor()),
        };
        let parts = ASKED_SHARDS.map(|shard| self.due_in_shard(shard, now, after, limit, taken));
        let parts = futures_util::future::try_join_all(parts).await?;
        // Beyond it, a partition was not read.
        let last = parts.iter().filter_map(|part| part.last.clone()).min();
        let mut due: BTreeMap<TenantHash, Vec<_>> = BTreeMap::new();
        for (tenant, questions) in parts.into_iter().flat_map(|part| part.due) {
            if last.as_ref().is_none_or(|last| tenant <= *last) {
                due.entry(tenant).or_default().extend(questions);
            }
        }
        let turns =
            due.into_iter().filter(|(_, questions)| !questions.is_empty()).map(|(tenant, mut questions)| {
                questions.sort_by_key(|(at, _)| *at);
                let keys = questions.into_iter().take(limit).map(|(_, key)| key).collect();
                Turn { keys, next: Cursor::new([tenant]) }
            });
        Ok(Due { turns: turns.collect(), next: last.map(|last| Cursor::new([last])) })
    }

    /// At least one tenant after `after`, if there is one. It reads more keys in place of those that were taken or cannot be read: those
    /// stay due, and would block their tenant's others.
    async fn due_in_shard(
        &self,
        shard: &str,
        now: Timestamp,
        after: Option<&str>,
        limit: usize,
        taken: &HashSet<RecordKey>,
    ) -> Result<Part> {
        let mut part = Part::default();
        let place = after.map_or_else(|| BEFORE_ALL.to_owned(), behind);
        let mut read = None;
        loop {
            let page = self
                .in_shard(shard)
                .key_condition_expression("reconcile_shard = :shard AND reconcile_place > :place")
                .expression_attribute_values(":place", AttributeValue::S(place.clone()))
                .projection_expression("pk, reconcile_place")
                .set_exclusive_start_key(read)
                .limit(PAGE)
                .send()
                .await?;
            let mut has_ended = false;
            for item in page.items.unwrap_or_default() {
                let (tenant, at) = place_of(&item);
                let due = part.due.entry(tenant.clone()).or_default();
                // The rest of a tenant is due later, or left to its next turn.
                has_ended = due.len() >= limit || at > now;
                if !has_ended {
                    due.extend(key_or_log(&item).filter(|key| !taken.contains(key)).map(|key| (at, key)));
                }
                part.last = Some(tenant);
            }
            read = page.last_evaluated_key;
            if read.is_none() {
                return Ok(Part { last: None, ..part });
            }
            if has_ended {
                return Ok(part);
            }
            // The page ended within a tenant. If it is not the first, it is read again.
            if part.due.len() > 1 {
                part.due.pop_last();
                return Ok(Part { last: part.due.keys().next_back().cloned(), ..part });
            }
        }
    }
}
