//! The rules of tenants, and how much each uses.

use std::collections::HashMap;

use async_trait::async_trait;
use protocol::limits::Level;

use super::MemoryStore;
use crate::{
    key::{OperationName, Tenant},
    record::{Revision, State},
    store::{AuditLine, Fill, Result, TenantRules, Tenants},
};

/// The rules, their audit lines, and the buckets of each tenant and operation.
#[derive(Default)]
pub(super) struct TenantTables {
    rules: Option<TenantRules>,
    lines: Vec<AuditLine>,
    buckets: HashMap<(Tenant, OperationName, String), Level>,
}

#[async_trait]
impl Tenants for MemoryStore {
    async fn rules(&self) -> Result<Option<TenantRules>> {
        Ok(self.tables().tenants.rules.clone())
    }

    async fn write_rules(
        &self,
        seen: Option<Revision>,
        rules: &TenantRules,
        line: &AuditLine,
    ) -> Result<bool> {
        let tenants = &mut self.tables().tenants;
        let is_seen = tenants.rules.as_ref().map(|rules| rules.revision) == seen;
        if is_seen {
            tenants.rules = Some(rules.clone());
            tenants.lines.push(line.clone());
        }
        Ok(is_seen)
    }

    async fn rules_lines(&self) -> Result<Vec<AuditLine>> {
        Ok(self.tables().tenants.lines.clone())
    }

    async fn fill(&self, tenant: &Tenant, operation: &OperationName, fills: &[Fill]) -> Result<Vec<Level>> {
        let buckets = &mut self.tables().tenants.buckets;
        let fill = |fill: &Fill| {
            let level =
                buckets.entry((tenant.clone(), operation.clone(), fill.bucket.clone())).or_insert(fill.from);
            level.0 += fill.by.0;
            *level
        };
        Ok(fills.iter().map(fill).collect())
    }

    async fn raise(
        &self,
        tenant: &Tenant,
        operation: &OperationName,
        bucket: &str,
        seen: Level,
        level: Level,
    ) -> Result<()> {
        let of = (tenant.clone(), operation.clone(), bucket.to_owned());
        if let Some(current) = self.tables().tenants.buckets.get_mut(&of).filter(|current| **current == seen)
        {
            *current = level;
        }
        Ok(())
    }

    async fn open_records(&self, tenant: &Tenant, at_most: usize) -> Result<usize> {
        let tables = self.tables();
        let records = tables.records.values().filter(|record| record.key.tenant() == tenant);
        let is_open = |state: &State| matches!(state, State::Unknown { .. } | State::BetweenWorkers { .. });
        Ok(records.filter(|record| is_open(&record.state)).take(at_most).count())
    }
}
