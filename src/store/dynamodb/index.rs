//! Finds unsettled records: unknown outcomes and operations between workers by the sparse index, everything else by a scan.
//!
//! The index has two kinds of partitions: `0` to `7` for records that reconciliation asks about, or escalates, by the time when it
//! does, and `escalated-0` to `escalated-7` for those that wait for an operator.

use async_trait::async_trait;
use aws_sdk_dynamodb::{
    operation::query::builders::QueryFluentBuilder,
    types::{AttributeValue, ReturnConsumedCapacity},
};

use super::{
    DynamoDbStore, Result, StoreError, body_item,
    checkpoint::{self, CHECKPOINT},
    conditions::{self, Attributes},
    table::{INDEX, RECONCILE_AT, RECONCILE_SHARD},
};
use crate::{
    key::{KeyHash, RecordKey, Tenant},
    record::{Record, Revision, State},
    store::{
        Checkpoint, Cursor, Page, Survey, Unsettled,
        item::{ASKED_SHARDS, ESCALATED_SHARDS, MESSAGE, PK, RECORD, SK, from_attributes},
    },
    time::Timestamp,
    time_budget::DELIVERY_GRACE,
};

/// How many records one page lists.
const PAGE: i32 = 100;

/// Every partition of the index, those of escalated records first.
const SHARDS: &[&str] = [ESCALATED_SHARDS, ASKED_SHARDS].as_flattened();

/// The key attributes of the table and of the index. A cursor holds their values after the last item of a page.
const TABLE_KEY: [&str; 2] = [PK, SK];
const INDEX_KEY: [&str; 4] = [RECONCILE_SHARD, PK, SK, RECONCILE_AT];

const IN_SHARD: &str = "reconcile_shard = :shard";

/// The attribute with the time since when a record is in the index.
const SINCE: &str = "since";

/// The attribute with the state's name.
const STATE: &str = "state";

#[async_trait]
impl Unsettled for DynamoDbStore {
    /// Needs `dynamodb:Query` on the index.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordKey>> {
        let shards = ASKED_SHARDS.map(|shard| self.due_in_shard(shard, now, limit));
        Ok(in_turn(futures_util::future::try_join_all(shards).await?))
    }

    /// Lists one partition of the index after another, those of escalated records first. Needs `dynamodb:Query` on the index.
    async fn unresolved(&self, tenant: Option<&Tenant>, from: Option<&Cursor>) -> Result<Page> {
        let place = |shard: &str| SHARDS.iter().position(|known| *known == shard).ok_or_else(foreign_cursor);
        let (place, after) = match from.map(Cursor::parts) {
            None => (0, None),
            Some([shard]) => (place(shard)?, None),
            Some([shard, ..]) => (place(shard)?, start(&INDEX_KEY, from)?),
            Some([]) => return Err(foreign_cursor()),
        };
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
            Some(last) => Some(cursor(&INDEX_KEY, last)?),
            None => SHARDS.get(place + 1).map(|shard| Cursor::new([(*shard).to_owned()])),
        };
        Ok(page_of(page.items, page.scanned_count, next))
    }

    /// One query for each of the sixteen partitions. Costs eight read units while the index is empty, and one more for each
    /// 8 KB of records in it, up to 2,048. Needs `dynamodb:Query` on the index.
    async fn survey(&self) -> Result<Survey> {
        let shards = SHARDS.iter().map(|shard| async move {
            let query = self.in_shard(shard).key_condition_expression(IN_SHARD);
            let query = query.projection_expression("#since, #state, reconcile_at");
            let query = query.expression_attribute_names("#since", SINCE);
            let page = query.expression_attribute_names("#state", STATE).send().await?;
            Ok::<_, StoreError>((page.items.unwrap_or_default(), page.last_evaluated_key.is_none()))
        });
        let mut survey = Survey::NOTHING;
        for (items, whole) in futures_util::future::try_join_all(shards).await? {
            survey.whole &= whole;
            for item in items {
                let at = |name| item.get(name)?.as_n().ok()?.parse().ok().map(Timestamp::from_millis);
                let state = item.get(STATE).and_then(|state| state.as_s().ok());
                let between_workers = state.is_some_and(|state| state == State::BETWEEN_WORKERS);
                match (at(SINCE), at(RECONCILE_AT)) {
                    (_, Some(reconcile_at)) if between_workers => survey.count_between_workers(reconcile_at),
                    (Some(since), Some(reconcile_at)) => survey.count(since, reconcile_at),
                    _ => survey.whole = false,
                }
            }
        }
        Ok(survey)
    }

    /// Reads without consistency, at half the price: a record that a scan finds is read again before it is changed. Needs
    /// `dynamodb:Scan`.
    async fn scan(
        &self,
        (segment, segments): (u32, u32),
        from: Option<&Cursor>,
        now: Timestamp,
        limit: u32,
    ) -> Result<Page> {
        let signed = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let delivered = now.minus(DELIVERY_GRACE);
        let page = self
            .client
            .scan()
            .table_name(&*self.table)
            .segment(signed(segment))
            .total_segments(signed(segments))
            .limit(signed(limit))
            .set_exclusive_start_key(start(&TABLE_KEY, from)?)
            .filter_expression(
                "(sk = :record AND (#state = :pending OR (#state = :in_progress AND NOT lease_until > :now))) \
                 OR (begins_with(sk, :message) AND NOT published_at > :delivered) \
                 OR (begins_with(sk, :body) AND kept_at <= :delivered)",
            )
            .expression_attribute_names("#state", "state")
            .expression_attribute_values(":record", text(RECORD))
            .expression_attribute_values(":message", text(MESSAGE))
            .expression_attribute_values(":body", text(body_item::PREFIX))
            .expression_attribute_values(":delivered", AttributeValue::N(delivered.as_millis().to_string()))
            .expression_attribute_values(":pending", text(State::PENDING))
            .expression_attribute_values(":in_progress", text(State::IN_PROGRESS))
            .expression_attribute_values(":now", AttributeValue::N(now.as_millis().to_string()))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await?;
        let units = page.consumed_capacity.and_then(|consumed| consumed.capacity_units);
        let next = page.last_evaluated_key.map(|last| cursor(&TABLE_KEY, &last)).transpose()?;
        // If the store does not report units: half a unit for each 4 KB, which hold at most ten items.
        let units = units.unwrap_or(f64::from(page.scanned_count) / 20.0);
        let items = page.items.unwrap_or_default();
        let (messages, items): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| is(item, MESSAGE));
        let (requests, records): (Vec<_>, _) =
            items.into_iter().partition(|item| is(item, body_item::PREFIX));
        let undelivered = messages.iter().filter_map(key_or_log).collect();
        let requests = requests.iter().filter_map(|item| Some((key_or_log(item)?, body_item::id(sk(item))?)));
        let requests = requests.collect();
        Ok(Page { units, undelivered, requests, ..page_of(Some(records), page.scanned_count, next) })
    }

    async fn load_checkpoint(&self, name: &str) -> Result<Option<Checkpoint>> {
        self.item(name, CHECKPOINT).await?.map(checkpoint::from_item).transpose()
    }

    async fn write_checkpoint(&self, seen: Option<Revision>, checkpoint: &Checkpoint) -> Result<bool> {
        let item = checkpoint::to_item(checkpoint)?;
        Ok(match conditions::put(&self.client, &self.table, seen, item).await? {
            Ok(()) => true,
            // It is ours if an earlier try was applied and its answer was lost.
            Err(current) => current
                .and_then(|item| checkpoint::from_item(item).ok())
                .is_some_and(|current| current.revision == checkpoint.revision),
        })
    }
}

impl DynamoDbStore {
    fn in_shard(&self, shard: &str) -> QueryFluentBuilder {
        let query = self.client.query().table_name(&*self.table).index_name(INDEX);
        query.expression_attribute_values(":shard", AttributeValue::S(shard.to_owned()))
    }

    /// Reads more keys in place of those that cannot be read. Those stay due for ever, and would block the others.
    async fn due_in_shard(&self, shard: &str, now: Timestamp, limit: usize) -> Result<Vec<RecordKey>> {
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

/// Takes one of each partition in turn, so that a caller that has time for only some of them skips no partition.
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

/// The key after which a page begins; `None` for the first page.
fn start(key: &[&str], from: Option<&Cursor>) -> Result<Option<Attributes>> {
    let Some(values) = from.map(Cursor::parts) else { return Ok(None) };
    if values.len() != key.len() {
        return Err(foreign_cursor());
    }
    let attribute = |(name, value): (&&str, &String)| match *name {
        RECONCILE_AT => (RECONCILE_AT.to_owned(), AttributeValue::N(value.clone())),
        name => (name.to_owned(), AttributeValue::S(value.clone())),
    };
    Ok(Some(key.iter().zip(values).map(attribute).collect()))
}

fn cursor(key: &[&str], last: &Attributes) -> Result<Cursor> {
    let value = |name: &&str| match last.get(*name)? {
        AttributeValue::S(value) | AttributeValue::N(value) => Some(value.clone()),
        _ => None,
    };
    let values: Option<Vec<_>> = key.iter().map(value).collect();
    values.map(Cursor::new).ok_or_else(foreign_cursor)
}

fn foreign_cursor() -> StoreError {
    StoreError::refused("the cursor was not made by this store")
}

fn pk(item: &Attributes) -> &str {
    item.get(PK).and_then(|pk| pk.as_s().ok()).map_or("", String::as_str)
}

fn sk(item: &Attributes) -> &str {
    item.get(SK).and_then(|sk| sk.as_s().ok()).map_or("", String::as_str)
}

fn is(item: &Attributes, prefix: &str) -> bool {
    sk(item).starts_with(prefix)
}

fn key_or_log(item: &Attributes) -> Option<RecordKey> {
    let pk = pk(item);
    let key = RecordKey::from_partition_key(pk);
    if key.is_none() {
        tracing::error!(key = %KeyHash::of(pk), "a key in the table cannot be read");
    }
    key
}

/// The page of these items. One that cannot be read is counted, and does not hide the others.
fn page_of(items: Option<Vec<Attributes>>, scanned: i32, next: Option<Cursor>) -> Page {
    let items = items.unwrap_or_default();
    let (all, scanned) = (items.len(), u64::try_from(scanned).unwrap_or_default());
    let records: Vec<_> = items.into_iter().filter_map(read_or_log).collect();
    Page { unreadable: all - records.len(), records, scanned, next, ..Page::default() }
}

fn read_or_log(item: Attributes) -> Option<Record> {
    let key = KeyHash::of(pk(&item));
    let unreadable =
        |error: &StoreError| tracing::error!(%key, cause = error.cause(), "a record cannot be read");
    from_attributes(item).inspect_err(unreadable).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_take_turns() {
        assert_eq!(in_turn(vec![vec![1, 4, 6], vec![], vec![2], vec![3, 5]]), [1, 2, 3, 4, 5, 6]);
    }
}
