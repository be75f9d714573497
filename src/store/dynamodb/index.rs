//! Finds records that are not settled: unknown outcomes by the sparse index, everything else by a scan.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};

use super::{
    DynamoDbStore, StoreError, StoreErrorKind,
    conditions::Attributes,
    error::Read,
    read,
    table::{INDEX, RECONCILE_AT, RECONCILE_SHARD},
};
use crate::{
    key::{RecordKey, Tenant},
    record::{Record, State},
    store::{
        Cursor, Page, Unsettled,
        item::{PK, RECORD, SHARDS, SK},
    },
    time::Timestamp,
};

/// How many unknown outcomes one page lists.
const PAGE: i32 = 100;

#[async_trait]
impl Unsettled for DynamoDbStore {
    /// Needs `dynamodb:Query` on the index.
    async fn due(&self, now: Timestamp, limit: usize) -> Read<Vec<RecordKey>> {
        let each = i32::try_from(limit).unwrap_or(i32::MAX);
        let shards = (0..SHARDS).map(|shard| async move {
            let query = self
                .in_shard(shard)
                .key_condition_expression("reconcile_shard = :shard AND reconcile_at <= :now");
            let now = AttributeValue::N(now.as_millis().to_string());
            let query = query.expression_attribute_values(":now", now).projection_expression(PK).limit(each);
            let items = query.send().await?.items.unwrap_or_default();
            let keys =
                items.iter().filter_map(|item| RecordKey::from_partition_key(item.get(PK)?.as_s().ok()?));
            Ok::<_, StoreError>(keys.collect::<Vec<_>>())
        });
        Ok(futures_util::future::try_join_all(shards).await?.into_iter().flatten().collect())
    }

    /// Partition after partition of the index. Needs `dynamodb:Query` on it.
    async fn unknown(&self, tenant: Option<&Tenant>, from: Option<&Cursor>) -> Read<Page> {
        let (shard, after) = from.map_or(Ok((0, None)), place_in_index)?;
        let query = self.in_shard(shard).key_condition_expression("reconcile_shard = :shard");
        let mut query = query.set_exclusive_start_key(after).limit(PAGE);
        if let Some(tenant) = tenant {
            let prefix = AttributeValue::S(RecordKey::partition_key_prefix(tenant));
            query = query
                .filter_expression("begins_with(pk, :tenant)")
                .expression_attribute_values(":tenant", prefix);
        }
        let page = query.send().await?;
        let next = match &page.last_evaluated_key {
            Some(last) => Some(cursor(shard, last)?),
            None if shard + 1 < SHARDS => Some(Cursor::new([(shard + 1).to_string()])),
            None => None,
        };
        let items = page.items.unwrap_or_default();
        Ok(Page { next, scanned: u64::try_from(page.scanned_count).unwrap_or_default(), ..readable(items) })
    }

    /// At half the price of a consistent read: what a scan finds is read again before it is changed. Needs
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
        // If the store does not say: half a unit for each 4 KB, and no item is smaller than a tenth of that.
        let units = units.unwrap_or(scanned as f64 / 20.0);
        Ok(Page { scanned, units, next, ..readable(page.items.unwrap_or_default()) })
    }
}

impl DynamoDbStore {
    fn in_shard(&self, shard: u8) -> aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder {
        let query = self.client.query().table_name(&*self.table).index_name(INDEX);
        query.expression_attribute_values(":shard", AttributeValue::S(shard.to_string()))
    }
}

/// Where a page of the index begins: in which partition, and after which item.
fn place_in_index(from: &Cursor) -> Read<(u8, Option<Attributes>)> {
    let shard = |text: &str| text.parse().ok().filter(|shard| *shard < SHARDS).ok_or_else(no_cursor);
    match from.parts() {
        [first] => Ok((shard(first)?, None)),
        [first, pk, sk, reconcile_at] => {
            let text = |text: &str| AttributeValue::S(text.to_owned());
            let after = [
                (RECONCILE_SHARD, text(first)),
                (PK, text(pk)),
                (SK, text(sk)),
                (RECONCILE_AT, AttributeValue::N(reconcile_at.clone())),
            ];
            let after = after.into_iter().map(|(name, value)| (name.to_owned(), value));
            Ok((shard(first)?, Some(after.collect())))
        }
        _ => Err(no_cursor()),
    }
}

fn cursor(shard: u8, last: &Attributes) -> Read<Cursor> {
    let text = |name| last.get(name).and_then(|value: &AttributeValue| value.as_s().ok()).cloned();
    let reconcile_at = last.get(RECONCILE_AT).and_then(|value| value.as_n().ok()).cloned();
    let parts = [Some(shard.to_string()), text(PK), text(SK), reconcile_at];
    parts.into_iter().collect::<Option<Vec<_>>>().map(Cursor::new).ok_or_else(no_cursor)
}

fn no_cursor() -> StoreError {
    StoreError::new(StoreErrorKind::Refused, "the cursor is none of this store's")
}

/// The records among these items. One that cannot be read does not hide the others.
fn readable(items: Vec<Attributes>) -> Page {
    let all = items.len();
    let records: Vec<_> = items.into_iter().filter_map(read_or_log).collect();
    Page { unreadable: all - records.len(), records, ..Page::default() }
}

fn read_or_log(item: Attributes) -> Option<Record> {
    let pk = item.get(PK).and_then(|pk| pk.as_s().ok()).cloned().unwrap_or_default();
    read(item)
        .inspect_err(|error| {
            let key = RecordKey::from_partition_key(&pk).map(|key| key.hash());
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::error!(key = key.map(tracing::field::display), cause, "a record cannot be read");
        })
        .ok()
}
