//! Two hosts of an API that share a function and a table.

use axum::{Router, routing::post};
use lambda_idempotency::{
    Execution, Idempotency, JwtClaim, MemoryStore, Operation, SingleTenant,
    http::{PerHost, PerStage, TenantResolver},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{
    http::Counter,
    lambda::{Function, deliver, function},
    logs::Logs,
};

const REST_API: &str = include_str!("../fixtures/rest_api_cognito.json");
const HTTP_API: &str = include_str!("../fixtures/http_api_jwt.json");

/// A request by this domain, with a `Host` that the client chose.
fn event(front: &str, domain: &str) -> Value {
    let mut event: Value = serde_json::from_str(front).expect("JSON");
    event["requestContext"]["domainName"] = json!(domain);
    event["headers"]["host"] = json!("chosen.example.com");
    event
}

/// A function that says which run this is, and its tenant.
fn api(operation: &str, tenant: impl TenantResolver) -> (Function, Counter) {
    let runs = Counter::default();
    let counter = runs.clone();
    let guard = Idempotency::new(MemoryStore::new(), Operation::new(operation)).tenant(tenant);
    let create = move |execution: Execution| async move {
        format!("{} {}", counter.add(), execution.tenant().as_str())
    };
    let create = post(create).route_layer(guard);
    (function(Router::new().route("/payments", create.clone()).route("/prod/payments", create)), runs)
}

// T45: a retry may come by another domain of the same API.
#[tokio::test]
async fn by_default_hosts_share_records_and_the_log_says_so() {
    let (logs, operation) = (Logs::capture(), format!("shared-by-hosts-{}", Uuid::new_v4()));
    let (api, runs) = api(&operation, JwtClaim("sub"));
    let warned = || {
        let lines = logs.lines_with("requests to two hosts");
        lines.iter().filter(|line| line.text.contains(&operation)).count()
    };
    let first = deliver(&api, &event(HTTP_API, "a.example.com")).await;
    for (domain, warnings) in [
        ("a.example.com", 0),
        ("A.Example.com", 0),
        ("abc.execute-api.eu-central-1.amazonaws.com", 0),
        ("abc.lambda-url.eu-central-1.on.aws", 0),
        ("b.example.com", 1),
        ("c.example.com", 1),
    ] {
        let replay = deliver(&api, &event(HTTP_API, domain)).await;
        assert_eq!((replay.header("idempotent-replayed"), replay.text()), (Some("true"), first.text()));
        assert_eq!(warned(), warnings, "{domain}");
    }
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_tenant_per_host_keeps_two_shops_apart() {
    // A warning names its operation: other tests' warnings are in this log, too.
    let (logs, name) = (Logs::capture(), format!("kept-apart-{}", Uuid::new_v4()));
    for front in [HTTP_API, REST_API] {
        let (api, runs) = api(&name, PerHost(JwtClaim("sub")));
        for (run, domain) in ["a.example.com", "b.example.com"].into_iter().enumerate() {
            let first = deliver(&api, &event(front, domain)).await;
            assert_eq!(first.text(), format!("{} {domain}|acme", run + 1));
            let replay = deliver(&api, &event(front, &domain.to_uppercase())).await;
            assert_eq!((replay.header("idempotent-replayed"), replay.text()), (Some("true"), first.text()));
        }
        assert_eq!(runs.count(), 2);
    }
    let (both, _) = api(&name, PerStage(PerHost(JwtClaim("sub"))));
    for domain in ["a.example.com", "b.example.com"] {
        let answer = deliver(&both, &event(HTTP_API, domain)).await;
        assert!(answer.text().ends_with(&format!("$default|{domain}|acme")), "{answer:?}");
    }
    let lines = logs.lines_with("requests to two hosts");
    assert!(lines.iter().all(|line| !line.text.contains(&name)), "{lines:?}");
}

// A client chooses the `Host` that it sends to a load balancer.
#[tokio::test]
async fn a_host_that_no_front_verified_is_no_tenant() {
    let balanced: Value = serde_json::from_str(include_str!("../fixtures/load_balancer.json")).expect("JSON");
    let long = "x".repeat(252);
    for (event, tenant) in [
        (balanced, "all"),
        (event(HTTP_API, ""), "all"),
        (event(HTTP_API, "a|b"), "all"),
        (event(HTTP_API, "a.example.com"), &*long),
    ] {
        let (api, runs) = api("hostless", PerHost(SingleTenant::new(tenant)));
        let refused = deliver(&api, &event).await;
        assert_eq!((refused.status(), &refused.json()["code"]), (401, &json!("tenant-missing")));
        assert_eq!(runs.count(), 0);
    }
}
