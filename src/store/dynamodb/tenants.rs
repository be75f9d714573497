//! The rules of tenants, and how much each uses.
//!
//! The rules are an item with their name as partition key and `rules` as sort key, beside their audit lines. The use of a tenant and
//! operation is an item `<tenant>#use` with the operation as sort key. That partition key begins as those of the tenant's records do, and no record
//! can have it, because theirs have two `#` at least. The index contains neither, and the stream's filters leave both out.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use aws_sdk_dynamodb::{
    error::SdkError,
    operation::update_item::UpdateItemError,
    types::{AttributeValue, ReturnValue, Select},
};
use protocol::bucket::Level;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteArray;

use super::{DynamoDbStore, Result, StoreError, attributes::form, audit, index::SHARDS};
use crate::{
    key::{OperationName, RecordKey, Tenant},
    record::{Revision, StateName},
    store::{
        AuditLine, Bucket, Fill, MAX_RULES, TenantRules, Tenants,
        item::{PK, SCHEMA, SK, check_version},
        shards::places_of,
    },
};

/// The name of the rules in the table.
const TENANT_RULES: &str = "tenant-rules";

/// The sort key of the rules.
const RULES: &str = "rules";

/// What follows the tenant in the partition key of its use.
const USE: &str = "use";

/// The rules as an item.
#[derive(Serialize, Deserialize)]
struct RulesItem {
    pk: String,
    sk: String,
    schema: u32,
    revision: ByteArray<16>,
    /// As JSON.
    tenants: String,
}

fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn partition_key(tenant: &Tenant) -> AttributeValue {
    text(RecordKey::partition_key_prefix(tenant) + USE)
}

#[async_trait]
impl Tenants for DynamoDbStore {
    /// Needs `dynamodb:GetItem`. Strongly consistent: a stop that is known is not forgotten.
    async fn rules(&self) -> Result<Option<TenantRules>> {
        let Some(item) = self.item(TENANT_RULES, RULES).await? else { return Ok(None) };
        let RulesItem { schema, revision, tenants, .. } =
            serde_dynamo::from_item(item).map_err(StoreError::unreadable)?;
        check_version(schema)?;
        let tenants = serde_json::from_str(&tenants).map_err(StoreError::unreadable)?;
        Ok(Some(TenantRules { revision: Revision::from(*revision), tenants }))
    }

    /// Needs `dynamodb:PutItem`.
    async fn write_rules(
        &self,
        seen: Option<Revision>,
        rules: &TenantRules,
        line: &AuditLine,
    ) -> Result<bool> {
        let tenants = serde_json::to_string(&rules.tenants).map_err(StoreError::refused)?;
        if tenants.len() > MAX_RULES {
            return Err(StoreError::refused("the rules of tenants are longer than 64 KB: remove some"));
        }
        let item = form(&RulesItem {
            pk: TENANT_RULES.to_owned(),
            sk: RULES.to_owned(),
            schema: SCHEMA,
            revision: ByteArray::new(*rules.revision.as_bytes()),
            tenants,
        })?;
        let line = audit::to_item(TENANT_RULES, rules.revision, line)?;
        self.put_both(rules.revision, (seen, item), line).await
    }

    /// Needs `dynamodb:Query` on the table.
    async fn rules_lines(&self) -> Result<Vec<AuditLine>> {
        audit::lines(&self.client, &self.table, TENANT_RULES).await
    }

    /// Needs `dynamodb:UpdateItem`. One try: a second one could count twice.
    async fn fill(&self, tenant: &Tenant, operation: &OperationName, fills: &[Fill]) -> Result<Vec<Level>> {
        let mut update = self.writes.update_item().table_name(&*self.table);
        let mut sets = Vec::new();
        for (place, fill) in fills.iter().enumerate() {
            sets.push(format!("#b{place} = if_not_exists(#b{place}, :from{place}) + :by{place}"));
            update = update
                .expression_attribute_names(format!("#b{place}"), &fill.bucket)
                .expression_attribute_values(format!(":from{place}"), number(fill.from.0))
                .expression_attribute_values(format!(":by{place}"), number(fill.by.0));
        }
        let expires_at = fills.iter().map(|fill| fill.expires_at.as_secs_rounded_up()).max();
        let filled = update
            .key(PK, partition_key(tenant))
            .key(SK, text(operation.as_str()))
            .update_expression(format!("SET {}, expires_at = :expires_at", sets.join(", ")))
            .expression_attribute_values(":expires_at", number(expires_at.unwrap_or_default()))
            .return_values(ReturnValue::UpdatedNew)
            .send()
            .await?;
        let levels = filled.attributes.unwrap_or_default();
        let level = |fill: &Fill| levels.get(&fill.bucket)?.as_n().ok()?.parse().ok().map(Level);
        let levels: Option<_> = fills.iter().map(level).collect();
        levels.ok_or_else(|| StoreError::unreadable("the level of a bucket is no number"))
    }

    /// Needs `dynamodb:UpdateItem`.
    async fn raise(
        &self,
        tenant: &Tenant,
        operation: &OperationName,
        bucket: &str,
        seen: Level,
        level: Level,
    ) -> Result<()> {
        let raised = self
            .writes
            .update_item()
            .table_name(&*self.table)
            .key(PK, partition_key(tenant))
            .key(SK, text(operation.as_str()))
            .update_expression("SET #bucket = :level")
            .condition_expression("#bucket = :seen")
            .expression_attribute_names("#bucket", bucket)
            .expression_attribute_values(":seen", number(seen.0))
            .expression_attribute_values(":level", number(level.0))
            .send()
            .await;
        match raised {
            Ok(_) => Ok(()),
            Err(SdkError::ServiceError(refused))
                if matches!(refused.err(), UpdateItemError::ConditionalCheckFailedException(_)) =>
            {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// All pages of one query, which are one if the tenant has less than some thousand operations. Needs `dynamodb:Query` on the table.
    async fn used(&self, tenant: &Tenant) -> Result<Vec<Bucket>> {
        let mut pages = self
            .client
            .query()
            .table_name(&*self.table)
            .consistent_read(true)
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", partition_key(tenant))
            .into_paginator()
            .items()
            .send();
        let mut used = Vec::new();
        while let Some(item) = pages.next().await {
            let item = item?;
            // What is no name is no use, and hides no other.
            let operation = item.get(SK).and_then(|name| OperationName::parse(name.as_s().ok()?).ok());
            let Some(operation) = operation else { continue };
            let buckets = item.into_iter().filter(|(name, _)| name.contains(':'));
            let mut buckets: Vec<_> = buckets
                .filter_map(|(name, level)| {
                    let level = Level(level.as_n().ok()?.parse().ok()?);
                    Some(Bucket { operation: operation.clone(), name, level })
                })
                .collect();
            buckets.sort_by(|one, other| one.name.cmp(&other.name));
            used.extend(buckets);
        }
        Ok(used)
    }

    /// All pages of each partition of the index, until there are enough. Needs `dynamodb:Query` on the index. Costs eight read units, and one
    /// more for each 8 KB of the tenant's records in it.
    async fn open_records(&self, tenant: &Tenant, at_most: usize) -> Result<usize> {
        let limit = i32::try_from(at_most).unwrap_or(i32::MAX);
        // Of all partitions.
        let all = AtomicUsize::new(0);
        let counted = SHARDS.iter().map(|shard| async {
            let query = self
                .in_shard(shard)
                .select(Select::Count)
                .limit(limit)
                .key_condition_expression(
                    "reconcile_shard = :shard AND begins_with(reconcile_place, :places)",
                )
                // Two tenants may have one hash.
                .filter_expression("begins_with(pk, :tenant) AND #state IN (:unknown, :between_workers)")
                .expression_attribute_names("#state", "state")
                .expression_attribute_values(":places", text(places_of(tenant)))
                .expression_attribute_values(":tenant", text(RecordKey::partition_key_prefix(tenant)))
                .expression_attribute_values(":unknown", text(StateName::Unknown.name()))
                .expression_attribute_values(":between_workers", text(StateName::BetweenWorkers.name()));
            let mut start = None;
            loop {
                // Records with an alarm are in the index too: a page may count fewer than it has.
                let page = query.clone().set_exclusive_start_key(start).send().await?;
                let counted = usize::try_from(page.count).unwrap_or_default();
                let before = all.fetch_add(counted, Ordering::Relaxed);
                start = page.last_evaluated_key;
                if start.is_none() || before + counted >= at_most {
                    return Ok::<_, StoreError>(());
                }
            }
        });
        futures_util::future::try_join_all(counted).await?;
        Ok(all.into_inner().min(at_most))
    }
}
