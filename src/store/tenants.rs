//! What a store knows of each tenant: the rules that operators set for it, and how much it uses.

use std::collections::BTreeMap;

use async_trait::async_trait;
use protocol::limits::{Level, Limits};
use serde::{Deserialize, Serialize};

use super::{AuditLine, Result, Store};
use crate::{
    key::{OperationName, Tenant},
    record::{Revision, Standing},
    time::Timestamp,
};

/// The longest form of the rules, in bytes: each process reads them [every few seconds](crate::time_budget::RULES_FOR), and each read costs by
/// their size.
pub const MAX_RULES: usize = 64 * 1024;

/// A store that keeps what [bounds](crate::bounds::Bounds) need. [`DynamoDbStore`](crate::DynamoDbStore) and
/// [`MemoryStore`](crate::MemoryStore) do.
#[async_trait]
pub trait Tenants: Store {
    /// The rules that operators have set; `None` if there never were any. Strongly consistent.
    async fn rules(&self) -> Result<Option<TenantRules>>;

    /// Writes `rules` with this audit line, if the current ones' revision is still `seen`, or if there are none and `seen` is `None`, in one
    /// transaction. Otherwise returns `false`.
    async fn write_rules(
        &self,
        seen: Option<Revision>,
        rules: &TenantRules,
        line: &AuditLine,
    ) -> Result<bool>;

    /// The audit lines of the rules, oldest first.
    async fn rules_lines(&self) -> Result<Vec<AuditLine>>;

    /// Raises buckets of this tenant and operation, in one write. Returns their levels after it, in the same order.
    async fn fill(&self, tenant: &Tenant, operation: &OperationName, fills: &[Fill]) -> Result<Vec<Level>>;

    /// Sets a bucket's level to this, if it is still `seen`.
    async fn raise(
        &self,
        tenant: &Tenant,
        operation: &OperationName,
        bucket: &str,
        seen: Level,
        level: Level,
    ) -> Result<()>;

    /// How many records of this tenant have an unknown outcome or are between workers, of all operations; counted up to `at_most`.
    async fn open_records(&self, tenant: &Tenant, at_most: usize) -> Result<usize>;
}

/// What is put into a bucket: see [`Tenants::fill`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The bucket's name. It names its bound too, so that a changed bound has a new bucket.
    pub bucket: String,
    /// By how much its level rises.
    pub by: Level,
    /// The level from which it rises, if the bucket is new.
    pub from: Level,
    /// When the bucket may be deleted.
    pub expires_at: Timestamp,
}

/// What operators have set for tenants. It is one item of the table of records, under a key that no record can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRules {
    /// The id of the last write.
    pub revision: Revision,
    /// The rules of each tenant that has any.
    pub tenants: BTreeMap<String, TenantRule>,
}

/// What operators have set for one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRule {
    /// Whether it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// Its limits in place of those that the program sets, by operation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Limits>,
}

/// What a stopped tenant may not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// Begin anything new.
    New,
    /// Begin anything new, or have accepted work executed.
    NewAndWork,
}

impl TenantRules {
    /// The rule of this tenant, if it has one.
    pub fn of(&self, tenant: &Tenant) -> Option<&TenantRule> {
        self.tenants.get(tenant.as_str())
    }

    /// These rules, with another one for this tenant. A rule that says nothing is left out.
    #[must_use]
    pub fn with(mut self, tenant: &Tenant, rule: TenantRule) -> Self {
        match rule == TenantRule::default() {
            true => self.tenants.remove(tenant.as_str()),
            false => self.tenants.insert(tenant.as_str().to_owned(), rule),
        };
        self
    }
}

impl TenantRule {
    /// How its tenant stands with operators.
    pub fn standing(&self) -> Standing {
        match self.stop {
            None => Standing::Within,
            Some(Stop::New) => Standing::Stopped,
            Some(Stop::NewAndWork) => Standing::WorkStopped,
        }
    }

    /// Its limits for this operation.
    pub fn limits(&self, operation: &OperationName) -> Option<&Limits> {
        self.limits.get(operation.as_str())
    }
}
