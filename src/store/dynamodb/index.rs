//! Finds unsettled records: unknown outcomes by the sparse index, everything else by a scan.
//!
//! The index has two kinds of partitions: `0` to `7` for outcomes that reconciliation asks about, by the time of the next
//! question, and `people-0` to `people-7` for those that nobody asks about any more. Earlier versions put all of them in the
//! first kind. Those stay there until they are written again; they are never due, and are listed all the same.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::{
    operation::query::builders::QueryFluentBuilder,
    types::{AttributeValue, ReturnConsumedCapacity},
};

use super::{
    DynamoDbStore, StoreError, StoreErrorKind,
    conditions::Attributes,
    error::Read,
    read,
    table::{INDEX, RECONCILE_AT, RECONCILE_SHARD},
};
use crate::{
    key::{KeyHash, RecordKey, Tenant},
    record::{Record, Revision, State},
    store::{
        Checkpoint, Cursor, Page, Survey, Unsettled,
        item::{ASKED_SHARDS, ESCALATED_SHARDS, PK, RECORD, SK},
    },
    time::Timestamp,
};

/// How many unknown outcomes one page lists.
const PAGE: i32 = 100;

/// Every partition of the index, those for operators first.
const SHARDS: [&str; ASKED_SHARDS.len() + ESCALATED_SHARDS.len()] = {
    let mut all = [""; ASKED_SHARDS.len() + ESCALATED_SHARDS.len()];
    let (escalated, asked) = all.split_at_mut(ESCALATED_SHARDS.len());
    escalated.copy_from_slice(&ESCALATED_SHARDS);
    asked.copy_from_slice(&ASKED_SHARDS);
    all
};

const IN_SHARD: &str = "reconcile_shard = :shard";

/// The attribute that says since when an outcome is unknown.
const SINCE: &str = "since";

#[async_trait]
impl Unsettled for DynamoDbStore {
    /// Needs `dynamodb:Query` on the index.
    async fn due(&self, now: Timestamp, limit: usize) -> Read<Vec<RecordKey>> {
        let shards = ASKED_SHARDS.map(|shard| self.due_in_shard(shard, now, limit));
        Ok(in_turn(futures_util::future::try_join_all(shards).await?))
    }

    /// Lists one partition of the index after another, those for operators first. Needs `dynamodb:Query` on the index.
    async fn unknown(&self, tenant: Option<&Tenant>, from: Option<&Cursor>) -> Read<Page> {
        let (place, after) = from.map_or(Ok((0, None)), place_in_index)?;
        let query = self.in_shard(SHARDS[place]).set_exclusive_start_key(after).limit(PAGE);
        let mut query = query.key_condition_expression(IN_SHARD);
        if let Some(tenant) = tenant {
            let prefix = AttributeValue::S(RecordKey::partition_key_prefix(tenant));
            query = query
                .filter_expression("begins_with(pk, :tenant)")
                .expression_attribute_values(":tenant", prefix);
        }
        let page = query.send().await?;
        let next = match &page.last_evaluated_key {
            Some(last) => Some(cursor(SHARDS[place], last)?),
            None => SHARDS.get(place + 1).map(|shard| Cursor::new([(*shard).to_owned()])),
        };
        let items = page.items.unwrap_or_default();
        Ok(Page { next, scanned: u64::try_from(page.scanned_count).unwrap_or_default(), ..readable(items) })
    }

    /// One query for each of the sixteen partitions. Costs eight read units while nothing is unknown, and one more for each
    /// 8 KB of unknown records, up to 2,048. Needs `dynamodb:Query` on the index.
    async fn survey(&self) -> Read<Survey> {
        let shards = SHARDS.map(|shard| async move {
            let query = self.in_shard(shard).key_condition_expression(IN_SHARD);
            let query = query.projection_expression("#since, reconcile_at");
            let page = query.expression_attribute_names("#since", SINCE).send().await?;
            Ok::<_, StoreError>((page.items.unwrap_or_default(), page.last_evaluated_key.is_none()))
        });
        let mut survey = Survey::NOTHING;
        for (items, whole) in futures_util::future::try_join_all(shards).await? {
            survey.whole &= whole;
            for item in items {
                let at = |name| item.get(name)?.as_n().ok()?.parse().ok().map(Timestamp::from_millis);
                match (at(SINCE), at(RECONCILE_AT)) {
                    (Some(since), Some(reconcile_at)) => survey.count(since, reconcile_at),
                    _ => survey.whole = false,
                }
            }
        }
        Ok(survey)
    }

    /// Not consistent, at half the price: records that a scan finds are read again before they are changed. Needs
    /// `dynamodb:Scan`.
    async fn scan(
        &self,
        (segment, segments): (u32, u32),
        from: Option<&Cursor>,
        now: Timestamp,
        limit: u32,
    ) -> Read<Page> {
        let signed = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let start = match from.map(Cursor::parts) {
            None => None,
            Some([pk, sk]) => Some(HashMap::from([(PK.to_owned(), text(pk)), (SK.to_owned(), text(sk))])),
            Some(_) => return Err(no_cursor()),
        };
        let page = self
            .client
            .scan()
            .table_name(&*self.table)
            .segment(signed(segment))
            .total_segments(signed(segments))
            .limit(signed(limit))
            .set_exclusive_start_key(start)
            .filter_expression(
                "sk = :record AND (#state = :pending OR (#state = :in_progress AND NOT lease_until > :now) \
                 OR (#state = :unknown AND attribute_not_exists(reconcile_shard)))",
            )
            .expression_attribute_names("#state", "state")
            .expression_attribute_values(":record", text(RECORD))
            .expression_attribute_values(":pending", text(State::PENDING))
            .expression_attribute_values(":unknown", text(State::UNKNOWN))
            .expression_attribute_values(":in_progress", text(State::IN_PROGRESS))
            .expression_attribute_values(":now", AttributeValue::N(now.as_millis().to_string()))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await?;
        let scanned = u64::try_from(page.scanned_count).unwrap_or_default();
        let units = page.consumed_capacity.and_then(|consumed| consumed.capacity_units);
        let mut last = page.last_evaluated_key;
        let mut part = |name| last.as_mut()?.remove(name)?.as_s().ok().cloned();
        let next = part(PK).zip(part(SK)).map(|(pk, sk)| Cursor::new([pk, sk]));
        // If the store does not say: half a unit for each 4 KB, which hold at most ten items.
        let units = units.unwrap_or(scanned as f64 / 20.0);
        Ok(Page { scanned, units, next, ..readable(page.items.unwrap_or_default()) })
    }

    async fn load_checkpoint(&self, name: &str) -> Read<Option<Checkpoint>> {
        self.read_checkpoint(name).await
    }

    async fn write_checkpoint(&self, seen: Option<Revision>, checkpoint: &Checkpoint) -> Read<bool> {
        self.put_checkpoint(seen, checkpoint).await
    }
}

impl DynamoDbStore {
    fn in_shard(&self, shard: &str) -> QueryFluentBuilder {
        let query = self.client.query().table_name(&*self.table).index_name(INDEX);
        query.expression_attribute_values(":shard", AttributeValue::S(shard.to_owned()))
    }

    /// Reads on after keys that cannot be read: they stay due for ever, and would block the others.
    async fn due_in_shard(&self, shard: &str, now: Timestamp, limit: usize) -> Read<Vec<RecordKey>> {
        let mut keys = Vec::new();
        let (mut page_size, mut after) = (i32::try_from(limit).unwrap_or(i32::MAX), None);
        while keys.len() < limit {
            let now = AttributeValue::N(now.as_millis().to_string());
            let query = self
                .in_shard(shard)
                .key_condition_expression("reconcile_shard = :shard AND reconcile_at <= :now")
                .expression_attribute_values(":now", now)
                .projection_expression(PK);
            let page = query.set_exclusive_start_key(after).limit(page_size).send().await?;
            keys.extend(page.items.unwrap_or_default().iter().filter_map(key_or_log));
            (page_size, after) = (PAGE, page.last_evaluated_key);
            if after.is_none() {
                break;
            }
        }
        keys.truncate(limit);
        Ok(keys)
    }
}

/// Takes one of each partition in turn, so that a caller with time for only some of them skips no partition.
fn in_turn<T>(partitions: Vec<Vec<T>>) -> Vec<T> {
    let mut partitions: Vec<_> = partitions.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(partitions.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
    }
}

/// Where a page of the index begins: in which partition, and after which item.
fn place_in_index(from: &Cursor) -> Read<(usize, Option<Attributes>)> {
    let place = |text: &str| SHARDS.iter().position(|shard| *shard == text).ok_or_else(no_cursor);
    match from.parts() {
        [first] => Ok((place(first)?, None)),
        [first, pk, sk, reconcile_at] => {
            let text = |text: &str| AttributeValue::S(text.to_owned());
            let after = [
                (RECONCILE_SHARD, text(first)),
                (PK, text(pk)),
                (SK, text(sk)),
                (RECONCILE_AT, AttributeValue::N(reconcile_at.clone())),
            ];
            let after = after.into_iter().map(|(name, value)| (name.to_owned(), value));
            Ok((place(first)?, Some(after.collect())))
        }
        _ => Err(no_cursor()),
    }
}

fn cursor(shard: &str, last: &Attributes) -> Read<Cursor> {
    let text = |name| last.get(name).and_then(|value: &AttributeValue| value.as_s().ok()).cloned();
    let reconcile_at = last.get(RECONCILE_AT).and_then(|value| value.as_n().ok()).cloned();
    let parts = [Some(shard.to_owned()), text(PK), text(SK), reconcile_at];
    parts.into_iter().collect::<Option<Vec<_>>>().map(Cursor::new).ok_or_else(no_cursor)
}

fn no_cursor() -> StoreError {
    StoreError::new(StoreErrorKind::Refused, "the cursor is not this store's")
}

fn key_or_log(item: &Attributes) -> Option<RecordKey> {
    let pk = item.get(PK).and_then(|pk| pk.as_s().ok()).map_or("", String::as_str);
    let key = RecordKey::from_partition_key(pk);
    if key.is_none() {
        tracing::error!(key = %KeyHash::of(pk), "a key in the index cannot be read");
    }
    key
}

/// The records among these items. One that cannot be read is counted, and does not hide the others.
fn readable(items: Vec<Attributes>) -> Page {
    let all = items.len();
    let records: Vec<_> = items.into_iter().filter_map(read_or_log).collect();
    Page { unreadable: all - records.len(), records, ..Page::default() }
}

fn read_or_log(item: Attributes) -> Option<Record> {
    let pk = item.get(PK).and_then(|pk| pk.as_s().ok()).cloned().unwrap_or_default();
    read(item)
        .inspect_err(|error| {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::error!(key = %KeyHash::of(&pk), cause, "a record cannot be read");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_partition_stands_behind_the_others() {
        assert_eq!(in_turn(vec![vec![1, 4, 6], vec![], vec![2], vec![3, 5]]), [1, 2, 3, 4, 5, 6]);
    }
}
