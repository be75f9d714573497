//! What operators set for tenants: stops, and limits.
//!
//! 1. A change applies to the rules that the operator has seen. If they were changed meanwhile, nothing is written.
//! 2. Each change is written together with its audit line, or not at all.
//! 3. Only [`Resume`](TenantChange::Resume) lets go of a stop, in whole or in part.
//! 4. A rule that this version cannot read is replaced by what it can read of it, and the change.

use std::sync::Arc;

use serde_json::json;

use crate::{
    bounds::Limits,
    engine::Engine,
    key::{OperationName, Tenant},
    store::{AuditLine, Bucket, Fullness, MAX_RULES, Stop, StoreError, TenantRule, TenantRules, Tenants},
    world::{SystemWorld, World},
};

/// The longest form of the rules after a limit is set, in bytes. The rest of [`MAX_RULES`] is for stops, which must not wait.
const MAX_WITH_LIMITS: usize = MAX_RULES * 3 / 4;

/// A change of what operators have set for a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantChange {
    /// Stops it. A weaker stop than the one that it has changes nothing.
    Stop(Stop),
    /// Lets it go on.
    Resume,
    /// Sets limits of an operation. Those that are not named stay as they are.
    Limit(OperationName, Limits),
    /// Takes all limits of an operation away: those of the program apply.
    Unlimit(OperationName),
}

/// Why a change was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TenantChangeError {
    /// There is nothing to change.
    #[error("nothing was changed: it is so already")]
    AlreadySo,
    /// There is no place for more limits: the last quarter of [`MAX_RULES`] is for stops.
    #[error("the limits of all tenants together are too long: take some away with `tenant limit --none`")]
    Full,
    /// The rules were changed since they were seen.
    #[error("nothing was changed: the rules were changed meanwhile, look again")]
    Changed,
    /// The store failed. Whether the rules were changed is not known, unless the error's kind says so.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

impl TenantChange {
    /// The rule after this change.
    #[must_use]
    pub fn of(&self, rule: &TenantRule) -> TenantRule {
        let mut rule = TenantRule { unread: None, ..rule.clone() };
        match self {
            Self::Stop(Stop::New) if rule.stop == Some(Stop::NewAndWork) => {}
            Self::Stop(stop) => rule.stop = Some(*stop),
            Self::Resume => rule.stop = None,
            Self::Limit(operation, limits) => {
                let before = rule.limits.remove(operation.as_str()).unwrap_or_default();
                let after = Limits {
                    new_keys: limits.new_keys.or(before.new_keys),
                    accepted_bytes: limits.accepted_bytes.or(before.accepted_bytes),
                    open_records: limits.open_records.or(before.open_records),
                };
                rule.limits.insert(operation.as_str().to_owned(), after);
            }
            Self::Unlimit(operation) => drop(rule.limits.remove(operation.as_str())),
        }
        rule
    }

    /// What is done to this tenant, as audit lines say it.
    pub fn what(&self, tenant: &Tenant) -> String {
        let (name, tenant) = (self.name(), quoted(tenant));
        match self {
            Self::Stop(_) | Self::Resume => format!("{name} {tenant}"),
            Self::Limit(operation, limits) => format!("{name} {tenant} {operation} {}", in_words(limits)),
            Self::Unlimit(operation) => {
                format!("{name} {tenant} {operation} {}", in_words(&Limits::default()))
            }
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Stop(Stop::New) => STOP,
            Self::Stop(Stop::NewAndWork) => STOP_WORK,
            Self::Resume => RESUME,
            Self::Limit(..) | Self::Unlimit(_) => LIMIT,
        }
    }
}

const STOP: &str = "stop";
const STOP_WORK: &str = "stop --work";
const RESUME: &str = "resume";
const LIMIT: &str = "limit";

/// Limits in words.
pub fn in_words(Limits { new_keys, accepted_bytes, open_records }: &Limits) -> String {
    let limits = [
        new_keys.map(|rate| format!("new keys {rate}")),
        accepted_bytes.map(|rate| format!("accepted bytes {rate}")),
        open_records.map(|number| format!("open records {number}")),
    ];
    let limits: Vec<_> = limits.into_iter().flatten().collect();
    if limits.is_empty() { "as the program".to_owned() } else { limits.join(", ") }
}

/// The line by which a tenant was stopped, of the lines about it, if it was not let go on after that.
pub fn stopped_by(lines: &[AuditLine]) -> Option<&AuditLine> {
    let is = |line: &AuditLine, what: &str| {
        line.what.strip_prefix(what).is_some_and(|tenant| tenant.starts_with(" \""))
    };
    let mut since = None;
    for line in lines {
        if is(line, RESUME) {
            since = None;
        } else if is(line, STOP) || is(line, STOP_WORK) {
            since = since.or(Some(line));
        }
    }
    since
}

/// Stops and limits tenants for an operator. It does not check who that is: the audit line has the name that the caller gives.
#[must_use]
pub struct TenantOperator {
    engine: Engine,
    tenants: Arc<dyn Tenants>,
}

impl TenantOperator {
    /// Changes the rules in `store`.
    pub fn new(store: impl Tenants) -> Self {
        let tenants: Arc<dyn Tenants> = Arc::new(store);
        Self { engine: Engine { store: tenants.clone(), world: Arc::new(SystemWorld) }, tenants }
    }

    /// Takes clocks and randomness from `world`.
    pub fn world(mut self, world: impl World) -> Self {
        self.engine.world = Arc::new(world);
        self
    }

    /// What is set for all tenants; `None` if nothing ever was.
    ///
    /// # Errors
    /// If the store fails, or this version cannot read them at all.
    pub async fn rules(&self) -> Result<Option<TenantRules>, StoreError> {
        self.engine.bounded(None, self.tenants.rules()).await
    }

    /// The audit lines about this tenant, oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn lines(&self, tenant: &Tenant) -> Result<Vec<AuditLine>, StoreError> {
        let mut lines = self.engine.bounded(None, self.tenants.rules_lines()).await?;
        lines.retain(|line| is_about(line, tenant));
        Ok(lines)
    }

    /// How full the buckets of this tenant are, without those that are empty.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn used(&self, tenant: &Tenant) -> Result<Vec<(Bucket, Fullness)>, StoreError> {
        let used = self.engine.bounded(None, self.tenants.used(tenant)).await?;
        let now = self.engine.world.now();
        let used = used.into_iter().filter_map(|bucket| Some((bucket.fullness(now)?, bucket)));
        let used = used.filter(|(fullness, _)| *fullness != Fullness::Percent(0));
        Ok(used.map(|(fullness, bucket)| (bucket, fullness)).collect())
    }

    /// Writes this change of the tenant's rule, if the rules are still as they were `seen`. Returns the new rule.
    ///
    /// # Errors
    /// If nothing would change, the rules were changed meanwhile, or the store fails.
    pub async fn change(
        &self,
        seen: Option<&TenantRules>,
        tenant: &Tenant,
        change: &TenantChange,
        who: &str,
        reason: &str,
    ) -> Result<TenantRule, TenantChangeError> {
        let before = seen.and_then(|seen| seen.of(tenant)).cloned().unwrap_or_default();
        let after = change.of(&before);
        if before == after {
            return Err(TenantChangeError::AlreadySo);
        }
        let (revision, now) = (self.engine.world.nonce().into(), self.engine.world.now());
        let tenants = seen.map(|seen| seen.tenants.clone()).unwrap_or_default();
        let rules = TenantRules { revision, tenants }.with(tenant, after.clone());
        let length =
            |rules: &TenantRules| serde_json::to_string(&rules.tenants).map_or(0, |written| written.len());
        let (before, after_it) = (seen.map_or(0, length), length(&rules));
        // A tighter limit in place of another has its place.
        let is_longer = after_it > before.max(MAX_WITH_LIMITS);
        if matches!(change, TenantChange::Limit(..)) && is_longer {
            return Err(TenantChangeError::Full);
        }
        let line = AuditLine::new([who, &change.what(tenant), reason], now, None, None);
        let seen = seen.map(|seen| seen.revision);
        match self.engine.sent_again(|| self.tenants.write_rules(seen, &rules, &line)).await? {
            true => Ok(after),
            false => Err(TenantChangeError::Changed),
        }
    }
}

/// The tenant in an audit line: nothing that follows can look like a part of it.
fn quoted(tenant: &Tenant) -> String {
    json!(tenant.as_str()).to_string()
}

fn is_about(line: &AuditLine, tenant: &Tenant) -> bool {
    let tenant = quoted(tenant);
    [LIMIT, STOP, STOP_WORK, RESUME].iter().any(|what| {
        let rest = line.what.strip_prefix(what).and_then(|rest| rest.strip_prefix(' '));
        let rest = rest.and_then(|rest| rest.strip_prefix(&*tenant));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bounds::Rate, store::memory::MemoryStore};

    #[test]
    fn only_a_resume_lets_go_of_a_stop() {
        let pay = OperationName::parse("pay").expect("a name");
        let stopped = TenantRule { stop: Some(Stop::NewAndWork), ..TenantRule::default() };
        let limits = Limits { new_keys: Some(Rate::per_second(1)), ..Limits::default() };
        for change in [
            TenantChange::Stop(Stop::New),
            TenantChange::Stop(Stop::NewAndWork),
            TenantChange::Limit(pay.clone(), limits),
            TenantChange::Unlimit(pay),
        ] {
            assert_eq!(change.of(&stopped).stop, Some(Stop::NewAndWork), "{change:?}");
        }
        assert_eq!(TenantChange::Resume.of(&stopped), TenantRule::default());
    }

    #[tokio::test]
    async fn limits_leave_place_for_stops() {
        let operator = TenantOperator::new(MemoryStore::new());
        let tenant = |number: usize| Tenant::parse(&format!("{number:0200}")).expect("a tenant");
        let limits = Limits { new_keys: Some(Rate::per_second(1)), ..Limits::default() };
        let limit = TenantChange::Limit(OperationName::parse("pay").expect("a name"), limits);
        let change = async |number: usize, change: &TenantChange| {
            let seen = operator.rules().await.expect("the store answers");
            operator.change(seen.as_ref(), &tenant(number), change, "op", "a test").await
        };
        let mut number = 0;
        let full = loop {
            match change(number, &limit).await {
                Ok(_) => number += 1,
                Err(error) => break error,
            }
        };
        assert!(number > 100 && matches!(full, TenantChangeError::Full), "{number}: {full}");
        for stopped in 0..10 {
            change(number + stopped, &TenantChange::Stop(Stop::New))
                .await
                .expect("there is place for a stop");
        }
        // Two operators at once.
        let seen = operator.rules().await.expect("the store answers");
        change(0, &TenantChange::Stop(Stop::New)).await.expect("it is written");
        let late =
            operator.change(seen.as_ref(), &tenant(1), &TenantChange::Stop(Stop::New), "op", "a test").await;
        assert!(matches!(late, Err(TenantChangeError::Changed)), "{late:?}");
    }

    #[test]
    fn a_change_replaces_what_cannot_be_read_by_the_rest() {
        let newer = json!({ "stop": "until_noon", "limits": { "pay": { "new_keys": "1/s+2" }, "ship": 7 } });
        let before: TenantRule = serde_json::from_value(newer).expect("a rule");
        assert!(before.unread.is_some());
        let stopped = TenantChange::Stop(Stop::New).of(&before);
        assert_eq!((stopped.stop, stopped.unread), (Some(Stop::NewAndWork), None));
        let resumed = TenantChange::Resume.of(&before);
        assert_eq!((resumed.stop, resumed.unread), (None, None));
        let pay = Limits { new_keys: Some(Rate::per_second(1).burst(2)), ..Limits::default() };
        assert_eq!([stopped.limits, resumed.limits], [(); 2].map(|()| [("pay".to_owned(), pay)].into()));
    }

    #[test]
    fn a_stop_stands_since_its_first_line_after_a_resume() {
        let tenant = Tenant::parse("acme").expect("a tenant");
        let of = |changes: &[TenantChange]| {
            let line = |(at, change): (usize, &TenantChange)| {
                let now = crate::time::Timestamp::from_millis(at as u64);
                AuditLine::new(["op", &change.what(&tenant), "a test"], now, None, None)
            };
            let lines: Vec<_> = changes.iter().enumerate().map(line).collect();
            stopped_by(&lines).map(|line| line.at)
        };
        let [stop, work] = [Stop::New, Stop::NewAndWork].map(TenantChange::Stop);
        let resume = TenantChange::Resume;
        let unlimit = TenantChange::Unlimit(OperationName::parse("stop").expect("a name"));
        assert_eq!(of(&[stop.clone(), work.clone(), unlimit.clone()]), Some(0));
        assert_eq!(of(&[stop.clone(), resume.clone(), unlimit, work]), Some(3));
        assert_eq!(of(&[stop, resume]), None);
    }
}
