//! Two stages of an API that share a function and a table (T58).

use axum::{Router, http::request::Parts, routing::post};
use lambda_idempotency::{
    Execution, Idempotency, JwtClaim, MemoryStore, Operation, SingleTenant,
    http::{PerStage, TenantResolver},
    store::Store,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{
    http::{Counter, dynamodb, record_key},
    lambda::{Function, deliver, function},
    logs::Logs,
    on_each_store,
};

fn event(stage: &str) -> Value {
    let mut event: Value = serde_json::from_str(include_str!("../fixtures/http_api_jwt.json")).expect("JSON");
    event["requestContext"]["stage"] = json!(stage);
    event
}

/// A function that says which run this is, and its tenant.
fn api(store: impl Store, operation: &str, tenant: impl TenantResolver) -> (Function, Counter) {
    let runs = Counter::default();
    let counter = runs.clone();
    let guard = Idempotency::new(store, Operation::new(operation)).tenant(tenant);
    let create = move |execution: Execution| async move {
        format!("{} {}", counter.add(), execution.tenant().as_str())
    };
    // At its own domain, an HTTP API has the stage in the path.
    let create = post(create).route_layer(guard);
    (function(Router::new().route("/payments", create.clone()).route("/{stage}/payments", create)), runs)
}

// T45: a retry may come through another front of the same API.
#[apply(on_each_store)]
async fn by_default_stages_share_records_and_the_log_says_so(endpoint: &str) {
    let (logs, operation) = (Logs::capture(), format!("shared-by-stages-{}", Uuid::new_v4()));
    let (api, runs) = api(dynamodb(endpoint).await, &operation, JwtClaim("sub"));
    let first = deliver(&api, &event("sandbox")).await;
    let warned = || {
        logs.lines_with("requests of two stages").iter().filter(|line| line.text.contains(&operation)).count()
    };
    let before = warned();
    for stage in ["live", "sandbox", "live", "test"] {
        let replay = deliver(&api, &event(stage)).await;
        assert_eq!((replay.header("idempotent-replayed"), replay.text()), (Some("true"), first.text()));
    }
    assert_eq!((runs.count(), warned() - before), (1, 1), "once");
}

#[apply(on_each_store)]
async fn a_tenant_per_stage_keeps_environments_apart(endpoint: &str) {
    let (logs, store) = (Logs::capture(), dynamodb(endpoint).await);
    let (api, runs) = api(store.clone(), "apart", PerStage(JwtClaim("sub")));
    for (run, stage) in ["sandbox", "live", "$default"].into_iter().enumerate() {
        let first = deliver(&api, &event(stage)).await;
        assert_eq!(first.text(), format!("{} {stage}|acme", run + 1));
        let replay = deliver(&api, &event(stage)).await;
        assert_eq!((replay.header("idempotent-replayed"), replay.text()), (Some("true"), first.text()));
        assert!(
            store.load(&record_key(&format!("{stage}|acme"), "apart", "order-1")).await.unwrap().is_some()
        );
    }
    assert_eq!(runs.count(), 3);
    assert!(logs.lines_with("requests of two stages").iter().all(|line| !line.text.contains("apart")));
}

#[tokio::test]
async fn a_request_without_a_stage_or_a_caller_has_no_tenant() {
    let balanced: Value = serde_json::from_str(include_str!("../fixtures/load_balancer.json")).expect("JSON");
    let mut anonymous = event("live");
    anonymous["requestContext"].as_object_mut().expect("a context").remove("authorizer");
    for (event, tenant) in [
        (balanced, Box::new(SingleTenant::new("all")) as Box<dyn TenantResolver>),
        (anonymous, Box::new(JwtClaim("sub"))),
    ] {
        let within = move |parts: &Parts| tenant.tenant(parts);
        let (api, runs) = api(MemoryStore::new(), "stageless", PerStage(within));
        let refused = deliver(&api, &event).await;
        assert_eq!(
            (refused.status(), &refused.json()["code"], runs.count()),
            (401, &json!("tenant-missing"), 0)
        );
    }
}
