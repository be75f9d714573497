//! Finds records that are not settled: unknown outcomes by the sparse index, everything else by a scan.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};

use super::{
    DynamoDbStore, StoreError,
    conditions::Attributes,
    error::Read,
    item::{PK, RECORD, SHARDS, SK},
    read,
};
use crate::{
    key::{RecordKey, Tenant},
    record::Record,
    time::Timestamp,
};

/// The sparse index that holds unknown outcomes and nothing else: `reconcile_shard`, then `reconcile_at`.
pub const RECONCILE_INDEX: &str = "reconcile";

/// How many partitions that index has.
pub const RECONCILE_SHARDS: usize = SHARDS as usize;

/// How many unknown outcomes one page lists.
const PAGE: i32 = 100;

/// One page of unknown outcomes.
#[derive(Debug)]
pub struct UnknownPage {
    /// The outcomes, in each partition of the index by the time at which they are asked about next. As the index has
    /// them: read a record again before you decide anything.
    pub records: Vec<Record>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<UnknownCursor>,
}

/// Where a page of unknown outcomes begins. The default is the beginning.
#[derive(Clone, Debug, Default)]
pub struct UnknownCursor {
    shard: u8,
    after: Option<Attributes>,
}

/// A part of a scan.
#[derive(Debug)]
pub struct ScanPage {
    /// Records that are pending, or in progress with a lease that is over, or unknown and not in the index.
    pub found: Vec<Record>,
    /// How many items look like such a record and cannot be read; each is logged.
    pub unreadable: usize,
    /// How many items were looked at.
    pub scanned: u64,
    /// How many read units that took.
    pub units: f64,
    /// After which partition and sort key the next part begins; `None` at the end of the segment.
    pub next: Option<(String, String)>,
}

impl DynamoDbStore {
    /// The keys of unknown outcomes that reconciliation is to ask about by `now`: the longest overdue of each partition
    /// of the index first, about `limit` in all. Needs `dynamodb:Query` on the index.
    pub async fn due(&self, now: Timestamp, limit: usize) -> Read<Vec<RecordKey>> {
        let each = i32::try_from(limit.div_ceil(SHARDS.into())).unwrap_or(i32::MAX);
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

    /// Unknown outcomes, of one tenant or of all, page by page. Needs `dynamodb:Query` on the index.
    pub async fn unknown(&self, tenant: Option<&Tenant>, from: UnknownCursor) -> Read<UnknownPage> {
        let query = self.in_shard(from.shard).key_condition_expression("reconcile_shard = :shard");
        let mut query = query.set_exclusive_start_key(from.after).limit(PAGE);
        if let Some(tenant) = tenant {
            let prefix = AttributeValue::S(RecordKey::partition_key_prefix(tenant));
            query = query
                .filter_expression("begins_with(pk, :tenant)")
                .expression_attribute_values(":tenant", prefix);
        }
        let page = query.send().await?;
        let next = match page.last_evaluated_key {
            Some(after) => Some(UnknownCursor { shard: from.shard, after: Some(after) }),
            None if from.shard + 1 < SHARDS => Some(UnknownCursor { shard: from.shard + 1, after: None }),
            None => None,
        };
        let mut records = Vec::new();
        for item in page.items.unwrap_or_default() {
            records.extend(read_or_log(item));
        }
        Ok(UnknownPage { records, next })
    }

    /// Looks at up to `limit` items of one of `segments` parts of the table, after the item of this partition and sort key.
    ///
    /// At half the price of a consistent read: what a scan finds is read again before it is changed. Needs
    /// `dynamodb:Scan`.
    pub async fn scan_unsettled(
        &self,
        (segment, segments): (u32, u32),
        after: Option<(String, String)>,
        now: Timestamp,
        limit: u32,
    ) -> Read<ScanPage> {
        let signed = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let start =
            after.map(|(pk, sk)| HashMap::from([(PK.to_owned(), text(&pk)), (SK.to_owned(), text(&sk))]));
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
            .expression_attribute_values(":pending", text("pending"))
            .expression_attribute_values(":unknown", text("unknown"))
            .expression_attribute_values(":in_progress", text("in_progress"))
            .expression_attribute_values(":now", AttributeValue::N(now.as_millis().to_string()))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await?;
        let scanned = u64::try_from(page.scanned_count).unwrap_or_default();
        let units = page.consumed_capacity.and_then(|consumed| consumed.capacity_units);
        let items = page.items.unwrap_or_default();
        let found: Vec<_> = items.iter().cloned().filter_map(read_or_log).collect();
        let mut last = page.last_evaluated_key;
        let mut part = |name| last.as_mut()?.remove(name)?.as_s().ok().cloned();
        Ok(ScanPage {
            unreadable: items.len() - found.len(),
            found,
            scanned,
            // Where the store does not say: half a unit for each 4 KB, and no item is smaller than a tenth of that.
            units: units.unwrap_or(scanned as f64 / 20.0),
            next: part(PK).zip(part(SK)),
        })
    }

    fn in_shard(&self, shard: u8) -> aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder {
        let query = self.client.query().table_name(&*self.table).index_name(RECONCILE_INDEX);
        query.expression_attribute_values(":shard", AttributeValue::S(shard.to_string()))
    }
}

/// One unreadable record does not hide the others.
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
