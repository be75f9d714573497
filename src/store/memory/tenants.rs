//! The rules of tenants, and how much each uses.

use std::collections::HashMap;

use protocol::bucket::Level;

use crate::{
    key::{OperationName, Tenant},
    record::Revision,
    store::{AuditLine, Bucket, Fill, TenantRules},
};

/// The rules, their audit lines, and the buckets of each tenant and operation.
#[derive(Default)]
pub(super) struct TenantTables {
    pub(super) rules: Option<TenantRules>,
    pub(super) lines: Vec<AuditLine>,
    buckets: HashMap<(Tenant, OperationName, String), Level>,
}

impl TenantTables {
    pub(super) fn write(&mut self, seen: Option<Revision>, rules: &TenantRules, line: &AuditLine) -> bool {
        let is_seen = self.rules.as_ref().map(|rules| rules.revision) == seen;
        if is_seen {
            self.rules = Some(rules.clone());
            self.lines.push(line.clone());
        }
        is_seen
    }

    pub(super) fn fill(&mut self, tenant: &Tenant, operation: &OperationName, fills: &[Fill]) -> Vec<Level> {
        let fill = |fill: &Fill| {
            let of = (tenant.clone(), operation.clone(), fill.bucket.clone());
            let level = self.buckets.entry(of).or_insert(fill.from);
            level.0 = level.0.saturating_add(fill.by.0);
            *level
        };
        fills.iter().map(fill).collect()
    }

    pub(super) fn raise(&mut self, of: (Tenant, OperationName, String), seen: Level, level: Level) {
        if let Some(current) = self.buckets.get_mut(&of).filter(|current| **current == seen) {
            *current = level;
        }
    }

    pub(super) fn used(&self, tenant: &Tenant) -> Vec<Bucket> {
        let of_tenant = self.buckets.iter().filter(|((of, ..), _)| of == tenant);
        let bucket = |((_, operation, name), level): (&(Tenant, OperationName, String), &Level)| Bucket {
            operation: operation.clone(),
            name: name.clone(),
            level: *level,
        };
        let mut used: Vec<_> = of_tenant.map(bucket).collect();
        used.sort_by_key(|bucket| (bucket.operation.as_str().to_owned(), bucket.name.clone()));
        used
    }
}
