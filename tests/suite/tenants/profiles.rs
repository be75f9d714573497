//! What clients of each contract get of a tenant that is over a bound, and of one that is stopped: exactly this, and nothing about others.

use std::collections::BTreeMap;

use axum::http::Response;
use bytes::Bytes;
use lambda_idempotency::{bounds::Rate, http::Profile, store::memory::MemoryStore};
use serde_json::{Value, json};

use super::*;
use crate::support::http::{Answer, clock, pay, send};

/// One in a minute, and two at once.
const FEW: Rate = Rate::per_minute(1).burst(2);

const OTHER: &str = "globex";

const OVER: &str = "Too many new operations, or too many are open";
const OVER_ADVICE: &str = "This request did nothing; an earlier one with the same key may have. Do not use a new key: send the same request \
                           with the same key after the time in Retry-After.";
const STOPPED: &str = "New operations of this account are stopped";
const STOPPED_ADVICE: &str = "This request did nothing; an earlier one with the same key may have. Do not use a new key: ask the operator of \
                              this service, and send the same request with the same key once operations are allowed again.";

fn rfc9457(name: &str, status: u16, title: &str, detail: &str) -> Value {
    let r#type = format!("urn:lambda-idempotency:{name}");
    json!({ "type": r#type, "title": title, "status": status, "detail": detail, "code": name })
}

fn error(r#type: &str, code: &str, title: &str, detail: &str) -> Value {
    json!({ "type": r#type, "code": code, "message": format!("{title}. {detail}") })
}

/// Words of an API's own, and no header.
fn own() -> Profile {
    Profile::custom(|problem, standard| {
        let words = json!({ "is": problem.problem_type().name(), "says": problem.message() });
        let mut response = Response::new(Bytes::from(words.to_string()));
        *response.status_mut() = standard.status();
        response
    })
}

/// Each contract, with its documents for both problems, their media type, and whether it echoes the key.
fn contracts() -> [(Profile, Value, Value, Option<&'static str>, bool); 4] {
    let over = |r#type, code| error(r#type, code, OVER, OVER_ADVICE);
    let stopped = |r#type| error(r#type, "tenant-stopped", STOPPED, STOPPED_ADVICE);
    let own_words = |name, title, detail| json!({ "is": name, "says": format!("{title}. {detail}") });
    [
        (
            Profile::ietf_draft(),
            rfc9457("over-bound", 429, OVER, OVER_ADVICE),
            rfc9457("tenant-stopped", 403, STOPPED, STOPPED_ADVICE),
            Some("application/problem+json"),
            false,
        ),
        (
            Profile::stripe(),
            json!({ "error": over("invalid_request_error", "rate_limit") }),
            json!({ "error": stopped("invalid_request_error") }),
            Some("application/json"),
            true,
        ),
        (
            Profile::acp(),
            over("service_unavailable", "too_many_requests"),
            stopped("invalid_request"),
            Some("application/json"),
            true,
        ),
        (
            own(),
            own_words("over-bound", OVER, OVER_ADVICE),
            own_words("tenant-stopped", STOPPED, STOPPED_ADVICE),
            None,
            false,
        ),
    ]
}

/// Fails unless the answer has this status, this document, and these headers alone.
#[track_caller]
fn assert_is(answer: &Answer, status: u16, document: &Value, headers: &[(&str, Option<&str>)]) {
    assert_eq!((answer.status, &answer.json()), (status, document));
    let length = answer.body.len().to_string();
    let headers = headers.iter().filter_map(|(name, value)| Some((*name, (*value)?)));
    let expected: BTreeMap<_, _> = headers.chain([("content-length", &*length)]).collect();
    let found = answer.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("text")));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), expected);
}

async fn set(store: &MemoryStore, name: &str, rule: TenantRule) {
    let seen = store.rules().await.unwrap();
    let revision = seen.as_ref().map(|seen| seen.revision);
    let tenants = seen.map(|seen| seen.tenants).unwrap_or_default();
    let rules = TenantRules { revision: fresh(), tenants }.with(&tenant(name), rule);
    let line = AuditLine::new(["op", "a rule", "a test"], fresh_time(), None, None);
    assert!(store.write_rules(revision, &rules, &line).await.unwrap());
}

#[tokio::test]
async fn each_contract_tells_of_a_bound_and_a_stop_in_its_shape() {
    for (profile, over, is_stopped, media_type, echoes) in contracts() {
        let (store, clock) = (MemoryStore::new(), clock());
        let guard = guard_of(store.clone(), Operation::new(PAY)).profile(profile).world(clock.clone());
        let app = api(guard.bounds(Bounds::of(store.clone()).new_keys(FEW)), |_, _| async {});
        let send_as = async |name: &str, key: &str| {
            let mut request = pay(key);
            request.extensions_mut().insert(tenant(name));
            send(&app, request).await
        };
        // Another tenant has other limits, is far more over them, and is stopped later.
        let limits = Limits { new_keys: Some(Rate::per_minute(1).burst(1)), ..Limits::default() };
        let mut limited_other = limited(limits);
        set(&store, OTHER, limited_other.clone()).await;
        for (name, number) in [(OTHER, 2), (TENANT, 3)] {
            for key in 0..number {
                assert_eq!(send_as(name, &format!("k-{key}")).await.status, 200);
            }
        }
        let echo = |key| echoes.then_some(key);
        let headers = |key, wait, limit| {
            [
                ("content-type", media_type),
                ("cache-control", Some("no-store")),
                ("retry-after", Some(wait)),
                ("ratelimit", limit),
                ("idempotency-key", echo(key)),
                ("idempotency-retention", Some("86400")),
            ]
        };
        let limit = Some("\"new-operations\";r=0;t=60");
        assert_is(&send_as(TENANT, "k-3").await, 429, &over, &headers("k-3", "60", limit));
        limited_other.stop = Some(Stop::New);
        set(&store, OTHER, limited_other).await;
        clock.advance(RULES_FOR);
        let left = Some("\"new-operations\";r=0;t=55");
        assert_is(&send_as(TENANT, "k-3").await, 429, &over, &headers("k-3", "55", left));
        let wait = "300";
        assert_is(&send_as(OTHER, "k-3").await, 403, &is_stopped, &headers("k-3", wait, None));
        set(&store, OTHER, TenantRule::default()).await;
        set(&store, TENANT, stopped(Stop::NewAndWork)).await;
        clock.advance(RULES_FOR);
        // A stop counts more than a bound, and says nothing of it.
        assert_is(&send_as(TENANT, "k-3").await, 403, &is_stopped, &headers("k-3", wait, None));
    }
}
