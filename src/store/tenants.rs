//! What a store knows of each tenant: the rules that operators set for it, and how much it uses.

use std::time::Duration;

use async_trait::async_trait;
use protocol::{
    bucket::{self, Level},
    limits::Rate,
};

use super::{AuditLine, Result, Store, TenantRules};
use crate::{
    key::{OperationName, Tenant},
    record::Revision,
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

    /// How full the buckets of this tenant are, of all operations. Strongly consistent. Buckets of a former bound are among them.
    async fn used(&self, tenant: &Tenant) -> Result<Vec<Bucket>>;

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

/// How full a bucket of a tenant is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// What the tenant uses.
    pub operation: OperationName,
    /// Its name: see [`Fill::bucket`].
    pub name: String,
    /// Its level.
    pub level: Level,
}

/// How much of its burst a tenant has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fullness {
    /// So many percent; less than one is none.
    Percent(u64),
    /// All of it, and what is new is refused for so long.
    Over(Duration),
}

impl Bucket {
    /// The name of the bucket of this bound.
    pub fn name_of(bounded: &str, rate: Rate) -> String {
        format!("{bounded}:{rate}")
    }

    /// What it bounds, such as `new_keys`, and how; `None` if this version does not know such a bound.
    pub fn bound(&self) -> Option<(&str, Rate)> {
        let (bounded, rate) = self.name.split_once(':')?;
        Some((bounded, rate.parse().ok()?))
    }

    /// How full it is now; `None` if this version does not know such a bound.
    pub fn fullness(&self, now: Timestamp) -> Option<Fullness> {
        let (_, rate) = self.bound()?;
        if let Some(over) = bucket::over(self.level, now) {
            return Some(Fullness::Over(over));
        }
        let (empty, full) = (bucket::empty(rate, now).0, bucket::full(now).0);
        let used = u128::from(self.level.0.saturating_sub(empty)) * 100;
        let percent = used / u128::from(full.saturating_sub(empty).max(1));
        Some(Fullness::Percent(u64::try_from(percent).unwrap_or(100)))
    }
}
