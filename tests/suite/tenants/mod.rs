//! Bounds of each tenant, and the operators' brake.

mod bounded;
mod changed;
mod entrances;
mod profiles;
mod stopped;
mod unread;
mod used;

use std::time::Duration;

use axum::{Router, http::StatusCode};
use lambda_idempotency::{
    bounds::{Bounds, Limits},
    operation::{Operation, ServerErrors},
    store::{AuditLine, Stop, Store, TenantRule, TenantRules, Tenants, dynamodb::DynamoDbStore},
    time_budget::RULES_FOR,
    world::World,
};

use crate::support::{
    guarded::{Guarded, fresh},
    http::{Counter, PAY, TENANT, api, guard_of, tenant},
};

const MINUTE: Duration = Duration::from_secs(60);

/// An API whose handler answers with the status that the body asks for.
fn app(guarded: &Guarded, bounds: Bounds, runs: &Counter) -> Router {
    let operation = Operation::new(PAY).server_errors(ServerErrors::RetryFresh);
    let guard = guard_of(guarded.store(), operation).world(guarded.clock.clone()).bounds(bounds);
    let runs = runs.clone();
    api(guard, move |_, body| {
        runs.add();
        async move {
            match &*body {
                b"\"fails\"" => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::CREATED,
            }
        }
    })
}

/// Sets this rule for the caller, as operators do.
async fn set(store: &DynamoDbStore, rule: TenantRule) {
    let seen = store.rules().await.unwrap();
    let revision = seen.as_ref().map(|seen| seen.revision);
    let tenants = seen.map(|seen| seen.tenants).unwrap_or_default();
    let rules = TenantRules { revision: fresh(), tenants }.with(&tenant(TENANT), rule);
    let line = AuditLine::new(["op", "a rule", "a test"], fresh_time(), None, None);
    assert!(store.write_rules(revision, &rules, &line).await.unwrap());
}

fn fresh_time() -> lambda_idempotency::time::Timestamp {
    lambda_idempotency::world::SystemWorld.now()
}

fn stopped(stop: Stop) -> TenantRule {
    TenantRule { stop: Some(stop), ..TenantRule::default() }
}

/// Limits the caller so.
fn limited(limits: Limits) -> TenantRule {
    TenantRule { limits: [(PAY.to_owned(), limits)].into(), ..TenantRule::default() }
}

/// Lets the rules that a process has read become too old.
fn outdate(guarded: &Guarded) {
    guarded.clock.advance(RULES_FOR);
}

/// How many items the caller's table has of this key's record.
async fn is_recorded(store: &impl Store, key: &str) -> bool {
    crate::support::http::record(store, key).await.is_some()
}
