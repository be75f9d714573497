//! What operators have set for tenants.
//!
//! 1. A rule is kept as it was written if this version cannot read all of it, whatever is changed for other tenants.
//! 2. Until an operator sets it again, what can be read of it applies. A stop of an unknown kind stops accepted work too: to let go of a tenant that
//!    operators have stopped could do harm that cannot be undone, and the others are as they were.

use std::collections::BTreeMap;

use protocol::limits::Limits;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    key::{OperationName, Tenant},
    record::{Revision, Standing},
};

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
#[serde(from = "Value", into = "Value")]
pub struct TenantRule {
    /// Whether it is stopped.
    pub stop: Option<Stop>,
    /// Its limits in place of those that the program sets, by operation.
    pub limits: BTreeMap<String, Limits>,
    /// The whole rule as it was written, if this version cannot read all of it.
    pub unread: Option<Value>,
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

impl From<Value> for TenantRule {
    fn from(written: Value) -> Self {
        let stop = written.get("stop").filter(|stop| !stop.is_null());
        let stop = stop.map(|stop| Stop::deserialize(stop).unwrap_or(Stop::NewAndWork));
        let limits = written.get("limits").and_then(Value::as_object);
        let limits = limits.into_iter().flatten().filter_map(|(operation, limits)| {
            let limits = Limits::deserialize(limits).ok()?;
            limits.check().is_ok().then(|| (operation.clone(), limits))
        });
        let rule = Self { stop, limits: limits.collect(), unread: None };
        // What this version does not know would be missing.
        let is_read = Value::from(rule.clone()) == written;
        Self { unread: (!is_read).then_some(written), ..rule }
    }
}

impl From<TenantRule> for Value {
    fn from(TenantRule { stop, limits, unread }: TenantRule) -> Self {
        unread.unwrap_or_else(|| {
            let mut written = Map::new();
            if let Some(stop) = stop {
                written.insert("stop".to_owned(), serde_json::json!(stop));
            }
            if !limits.is_empty() {
                written.insert("limits".to_owned(), serde_json::json!(limits));
            }
            Self::Object(written)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(written: &Value) -> TenantRule {
        serde_json::from_value(written.clone()).expect("a rule")
    }

    #[test]
    fn what_this_version_does_not_know_is_kept_as_it_was_written() {
        for (written, stop, limited) in [
            (json!({ "stop": "until_noon" }), Some(Stop::NewAndWork), 0),
            (json!({ "stop": { "at": 1 } }), Some(Stop::NewAndWork), 0),
            (json!({ "stop": "new", "because": "a loop" }), Some(Stop::New), 0),
            (
                json!({ "limits": { "pay": { "new_keys": "10/s+20" }, "ship": { "new_keys": "10/day" } } }),
                None,
                1,
            ),
            (json!({ "limits": { "pay": { "new_keys": "10/s+20", "cost": 7 } } }), None, 1),
            (json!({ "limits": { "pay": { "open_records": 0 } } }), None, 0),
            (json!({ "limits": { "pay": { "open_records": -1 } } }), None, 0),
            (json!({ "limits": 7 }), None, 0),
            (json!("stopped"), None, 0),
            (json!(null), None, 0),
        ] {
            let rule = read(&written);
            assert_eq!((rule.stop, rule.limits.len()), (stop, limited), "{written}");
            assert_eq!(rule.unread.as_ref(), Some(&written));
            assert_eq!(serde_json::to_value(rule).expect("JSON"), written);
        }
    }

    #[test]
    fn what_this_version_writes_it_reads() {
        let limits = Limits { open_records: Some(7), ..Limits::default() };
        for stop in [None, Some(Stop::New), Some(Stop::NewAndWork)] {
            for limits in [BTreeMap::new(), [("pay".to_owned(), limits)].into()] {
                let rule = TenantRule { stop, limits, unread: None };
                assert_eq!(read(&serde_json::to_value(&rule).expect("JSON")), rule);
            }
        }
    }
}
