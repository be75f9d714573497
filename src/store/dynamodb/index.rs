//! Finds unsettled records: unknown outcomes, operations between workers and alarms by the sparse index, everything else by a scan.
//!
//! The index has two kinds of partitions: `0` to `7` for records that reconciliation asks about, or escalates, and `escalated-0` to
//! `escalated-7` for those that only wait for an operator. A partition is ordered by tenant, then by the time when reconciliation looks at
//! the record.

use std::collections::HashSet;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};

use super::{
    DynamoDbStore, Result, StoreError, body_item,
    checkpoint::{self, CHECKPOINT},
    conditions::{self, Attributes},
    shard::{BEFORE_ALL, behind, foreign_cursor, key_or_log, pk, place_of},
    table::{RECONCILE_PLACE, RECONCILE_SHARD},
};
use crate::{
    key::{KeyHash, RecordKey, Tenant},
    record::{Record, Revision, StateName},
    store::{
        AuditLine, Checkpoint, Cursor, Due, NotFoundSwitch, Page, Survey, Unsettled,
        item::{MESSAGE, PK, RECORD, SK, from_attributes},
        shards::{ASKED_SHARDS, ESCALATED_SHARDS, places_of},
    },
    time::Timestamp,
    time_budget::DELIVERY_GRACE,
};

/// How many records of a partition one page lists.
const PAGE: i32 = 100;

/// Every partition of the index, those of escalated records first.
pub(super) const SHARDS: &[&str] = [ESCALATED_SHARDS, ASKED_SHARDS].as_flattened();

/// The key attributes of the table and of the index. A cursor holds their values after the last item of a page.
const TABLE_KEY: [&str; 2] = [PK, SK];
const INDEX_KEY: [&str; 4] = [RECONCILE_SHARD, PK, SK, RECONCILE_PLACE];

const IN_SHARD: &str = "reconcile_shard = :shard";

/// How many pages a survey reads of a partition: one, and one more behind the tenant that fills it.
const SURVEYED: usize = 2;

/// The attribute with the time when reconciliation looks at a record.
const RECONCILE_AT: &str = "reconcile_at";

/// The attribute with the time since when a record is in the index.
const SINCE: &str = "since";

/// The attribute with the record's alarms.
const ALARMS: &str = "alarms";

/// The attribute with the state's name.
const STATE: &str = "state";

#[async_trait]
impl Unsettled for DynamoDbStore {
    /// Needs `dynamodb:Query` on the index.
    async fn due(
        &self,
        now: Timestamp,
        from: Option<&Cursor>,
        limit: usize,
        taken: &HashSet<RecordKey>,
    ) -> Result<Due> {
        self.due_in_part(now, from, limit, taken).await
    }

    /// A page of each partition of the index at once. Of one tenant it reads no other's records. Needs `dynamodb:Query` on the index.
    async fn unresolved(&self, tenant: Option<&Tenant>, from: Option<&Cursor>) -> Result<Page> {
        let starts = match from {
            None => SHARDS.iter().map(|shard| (*shard, None)).collect(),
            Some(cursor) => starts_of(cursor)?,
        };
        let pages = starts.into_iter().map(|(shard, after)| self.listed(shard, tenant, after));
        let (mut whole, mut rest) = (Page::default(), Vec::new());
        for page in futures_util::future::try_join_all(pages).await? {
            whole.records.extend(page.records);
            whole.unreadable += page.unreadable;
            whole.scanned += page.scanned;
            rest.extend(page.next.iter().flat_map(Cursor::parts).cloned());
        }
        whole.next = (!rest.is_empty()).then(|| Cursor::new(rest));
        Ok(whole)
    }

    /// Its stream, time to live on `expires_at`, and point-in-time recovery. Needs `dynamodb:DescribeTable`, `dynamodb:DescribeTimeToLive`
    /// and `dynamodb:DescribeContinuousBackups`.
    async fn settings_off(&self) -> Vec<&'static str> {
        super::settings::off(&self.client, &self.table).await
    }

    /// A page of each of the sixteen partitions, and a second one if that is not all: of the tenants after the one with which the first
    /// ended. Costs eight read units while the index is empty, and one more for each 8 KB of records in it, up to 4,096. Needs
    /// `dynamodb:Query` on the index.
    async fn survey(&self) -> Result<Survey> {
        let shards = SHARDS.iter().map(|shard| self.surveyed(shard));
        let mut survey = Survey::NOTHING;
        for (items, whole) in futures_util::future::try_join_all(shards).await? {
            survey.whole &= whole;
            for item in items {
                let at = |name| item.get(name)?.as_n().ok()?.parse().ok().map(Timestamp::from_millis);
                let state = item.get(STATE).and_then(|state| StateName::parse(state.as_s().ok()?));
                let is_alarmed = item.contains_key(ALARMS);
                let (since, reconcile_at) = (at(SINCE), at(RECONCILE_AT));
                let is_open = state.is_some_and(StateName::is_open);
                survey.whole &= is_alarmed || is_open;
                survey.whole &= !is_open || since.is_some() && reconcile_at.is_some();
                survey.count(state, since, reconcile_at, is_alarmed);
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
            .set_exclusive_start_key(from.map(|from| key_of(&TABLE_KEY, from.parts())).transpose()?)
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
            .expression_attribute_values(":pending", text(StateName::Pending.name()))
            .expression_attribute_values(":in_progress", text(StateName::InProgress.name()))
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

    async fn not_found_switch(&self) -> Result<Option<NotFoundSwitch>> {
        self.load_switch().await
    }

    async fn switch_not_found(&self, seen: Option<Revision>, switch: &NotFoundSwitch) -> Result<bool> {
        self.write_switch(seen, switch).await
    }

    /// Needs `dynamodb:Query` on the table.
    async fn not_found_lines(&self) -> Result<Vec<AuditLine>> {
        self.switch_lines().await
    }

    async fn write_checkpoint(&self, seen: Option<Revision>, checkpoint: &Checkpoint) -> Result<bool> {
        let item = checkpoint::to_item(checkpoint)?;
        Ok(match conditions::put(&self.writes, &self.table, seen, item).await? {
            Ok(()) => true,
            // It is ours if an earlier try was applied and its answer was lost.
            Err(current) => current
                .and_then(|item| checkpoint::from_item(item).ok())
                .is_some_and(|current| current.revision == checkpoint.revision),
        })
    }
}

impl DynamoDbStore {
    /// A page of a partition.
    async fn listed(&self, shard: &str, tenant: Option<&Tenant>, after: Option<Attributes>) -> Result<Page> {
        let query = self.in_shard(shard).set_exclusive_start_key(after).limit(PAGE);
        let query = match tenant {
            None => query.key_condition_expression(IN_SHARD),
            Some(tenant) => query
                .key_condition_expression(
                    "reconcile_shard = :shard AND begins_with(reconcile_place, :places)",
                )
                .expression_attribute_values(":places", AttributeValue::S(places_of(tenant)))
                // Two tenants may have one hash.
                .filter_expression("begins_with(pk, :tenant)")
                .expression_attribute_values(
                    ":tenant",
                    AttributeValue::S(RecordKey::partition_key_prefix(tenant)),
                ),
        };
        let page = query.send().await?;
        let next = page.last_evaluated_key.map(|last| cursor(&INDEX_KEY, &last)).transpose()?;
        Ok(page_of(page.items, page.scanned_count, next))
    }

    /// The items of a partition, and whether these are all.
    async fn surveyed(&self, shard: &str) -> Result<(Vec<Attributes>, bool)> {
        let (mut items, mut after) = (Vec::new(), BEFORE_ALL.to_owned());
        for page in 1..=SURVEYED {
            let query = self.in_shard(shard);
            let query = query
                .key_condition_expression("reconcile_shard = :shard AND reconcile_place > :after")
                .expression_attribute_values(":after", AttributeValue::S(after))
                .projection_expression("#since, #state, reconcile_at, alarms")
                .expression_attribute_names("#since", SINCE)
                .expression_attribute_names("#state", STATE);
            let read = query.send().await?;
            items.extend(read.items.unwrap_or_default());
            let Some(last) = read.last_evaluated_key else { return Ok((items, page == 1)) };
            after = behind(&place_of(&last).0);
        }
        Ok((items, false))
    }
}

/// The partitions of the index that a page has not ended, each with the key after which it goes on.
fn starts_of(cursor: &Cursor) -> Result<Vec<(&'static str, Option<Attributes>)>> {
    let start = |values: &[String]| {
        let after = key_of(&INDEX_KEY, values)?;
        let shard = SHARDS.iter().find(|shard| **shard == values[0]).ok_or_else(foreign_cursor)?;
        Ok((*shard, Some(after)))
    };
    cursor.parts().chunks(INDEX_KEY.len()).map(start).collect()
}

/// The key with these values.
fn key_of(names: &[&str], values: &[String]) -> Result<Attributes> {
    if values.len() != names.len() {
        return Err(foreign_cursor());
    }
    let attribute = |(name, value): (&&str, &String)| ((*name).to_owned(), AttributeValue::S(value.clone()));
    Ok(names.iter().zip(values).map(attribute).collect())
}

fn cursor(key: &[&str], last: &Attributes) -> Result<Cursor> {
    let value = |name: &&str| last.get(*name)?.as_s().ok().cloned();
    let values: Option<Vec<_>> = key.iter().map(value).collect();
    values.map(Cursor::new).ok_or_else(foreign_cursor)
}

fn sk(item: &Attributes) -> &str {
    item.get(SK).and_then(|sk| sk.as_s().ok()).map_or("", String::as_str)
}

fn is(item: &Attributes, prefix: &str) -> bool {
    sk(item).starts_with(prefix)
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
