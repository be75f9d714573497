//! Every HTTP front of Lambda, with its real events and answers, through `lambda_http`'s conversions. Each is tested with an axum router
//! and with a plain `service_fn` handler.

use std::sync::Arc;

use aws_smithy_types::base64;
use axum::{Router, http::request::Parts, response::IntoResponse, routing::post};
use lambda_http::{Body, Context, Request, service_fn};
use lambda_idempotency::{
    engine::Execution,
    http::{
        IamAccount, IamCaller, Idempotency, JwtClaim, LambdaAuthorizer, PerHost, PerStage, SingleTenant,
        Tenant, TenantResolver, context_tenant,
    },
    operation::Operation,
    store::{Store, memory::MemoryStore},
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use tower::Layer;

use crate::support::{
    http::{Counter, Guard, PAY, dynamodb, record_key, send},
    lambda::{Function, deliver, deliver_in, function},
    logs::Logs,
    on_each_store,
};

struct Front {
    event: &'static str,
    tenant: Arc<dyn TenantResolver>,
    name: &'static str,
}

fn fronts() -> Vec<Front> {
    macro_rules! front {
        ($event:literal, $tenant:expr, $name:literal) => {
            Front {
                event: include_str!(concat!("../fixtures/", $event, ".json")),
                tenant: Arc::new($tenant),
                name: $name,
            }
        };
    }
    vec![
        front!("rest_api_cognito", JwtClaim("sub"), "acme"),
        front!("rest_api_lambda_authorizer", LambdaAuthorizer("tenantId"), "acme"),
        front!("rest_api_lambda_authorizer", LambdaAuthorizer("principalId"), "user-1"),
        front!("rest_api_iam", IamAccount, "210987654321"),
        front!("rest_api_iam", IamCaller, "arn:aws:iam::210987654321:user/acme"),
        front!("http_api_jwt", JwtClaim("sub"), "acme"),
        front!("http_api_lambda_authorizer", LambdaAuthorizer("tenantId"), "acme"),
        front!("http_api_iam", IamAccount, "210987654321"),
        front!("http_api_iam", IamCaller, "arn:aws:sts::210987654321:assumed-role/acme"),
        front!("function_url_iam", IamAccount, "210987654321"),
        front!("function_url_iam", IamCaller, "arn:aws:sts::210987654321:assumed-role/acme"),
        front!("function_url", SingleTenant::new("all"), "all"),
        front!("load_balancer", SingleTenant::new("all"), "all"),
        front!("load_balancer_multi_value", SingleTenant::new("all"), "all"),
    ]
}

impl Front {
    fn event(&self) -> Value {
        serde_json::from_str(self.event).expect("a fixture is JSON")
    }

    /// The same event without the result of the caller's authentication.
    fn anonymous(&self) -> Value {
        let mut event = self.event();
        let context = event["requestContext"].as_object_mut().expect("every event has a context");
        context.remove("authorizer");
        if let Some(identity) = context.get_mut("identity") {
            // An API key alone authenticates no caller, but its event has the account of the key's owner.
            *identity = json!({ "accountId": "210987654321", "apiKey": "k-1", "sourceIp": "192.0.2.7" });
        }
        event
    }

    /// The guarded function, in both kinds.
    fn functions(&self, store: &(impl Store + Clone)) -> [(Function, Counter); 2] {
        let tenant = self.tenant.clone();
        let by = move |parts: &Parts| tenant.tenant(parts);
        let guard = Idempotency::new(store.clone(), Operation::new(PAY)).tenant(by);
        [of_a_router(guard.clone()), of_a_plain_handler(guard)]
    }
}

fn of_a_router(guard: Guard) -> (Function, Counter) {
    let runs = Counter::default();
    let counter = runs.clone();
    let create = move |execution: Execution, body: String| async move {
        let run = counter.add();
        let headers = [("content-type", "application/json"), ("location", "/payments/1")];
        let answer = json!({ "run": run, "tenant": execution.tenant().as_str(), "body": body });
        (axum::http::StatusCode::CREATED, headers, answer.to_string()).into_response()
    };
    // A REST API's stage is in the path.
    let guarded = post(create).layer(guard);
    (function(Router::new().route("/payments", guarded.clone()).route("/prod/payments", guarded)), runs)
}

fn of_a_plain_handler(guard: Guard) -> (Function, Counter) {
    let runs = Counter::default();
    let counter = runs.clone();
    let create = move |request: Request| {
        let run = counter.add();
        async move {
            let execution = request.extensions().get::<Execution>().expect("an execution");
            let (text, body) = match request.body() {
                Body::Text(text) => (true, text.clone()),
                Body::Binary(bytes) => (false, String::from_utf8(bytes.clone())?),
                other => panic!("{other:?}"),
            };
            let answer =
                json!({ "run": run, "tenant": execution.tenant().as_str(), "body": body, "text": text });
            let response = lambda_http::Response::builder().status(201).header("location", "/payments/1");
            let response = response.header("content-type", "application/json");
            Ok::<_, lambda_http::Error>(response.body(Body::Text(answer.to_string()))?)
        }
    };
    (function(guard.layer(service_fn(create))), runs)
}

#[apply(on_each_store)]
async fn every_front_pays_once_and_replays_byte_for_byte(endpoint: &str) {
    for front in fronts() {
        for kind in 0..2 {
            let store = dynamodb(endpoint).await;
            let (function, runs) = front.functions(&store)[kind].clone();
            let what = format!("{} {kind}", front.event);

            let first = deliver(&function, &front.event()).await;
            assert_eq!((first.status(), first.header("location")), (201, Some("/payments/1")), "{what}");
            assert_eq!(first.header("idempotent-replayed"), None);
            assert!(first.header("idempotency-expires").is_some());
            assert_eq!(first.json()["tenant"], front.name, "{what}");
            assert_eq!(first.json()["body"], front.event()["body"], "{what}");
            assert_ne!(first.json()["text"], false, "text stays text until it reaches the handler: {what}");

            let replay = deliver(&function, &front.event()).await;
            assert_eq!(replay.header("idempotent-replayed"), Some("true"), "{what}");
            assert_eq!((replay.status(), replay.text()), (201, first.text()));
            assert_eq!(replay.header("location"), Some("/payments/1"));

            // The same body in base64 is the same request.
            let mut encoded = front.event();
            encoded["body"] = base64::encode(front.event()["body"].as_str().unwrap()).into();
            encoded["isBase64Encoded"] = true.into();
            assert_eq!(deliver(&function, &encoded).await.text(), first.text(), "{what}");
            assert_eq!(runs.count(), 1, "{what}");

            let key = record_key(front.name, PAY, "order-1");
            assert_eq!(store.load(&key).await.unwrap().unwrap().state.name(), "completed");
        }
    }
}

#[tokio::test]
async fn an_unverified_caller_is_refused_through_every_front() {
    for front in fronts().iter().filter(|front| front.name != "all") {
        for (function, runs) in front.functions(&MemoryStore::new()) {
            let refused = deliver(&function, &front.anonymous()).await;
            assert_eq!(refused.status(), 401, "{}", front.event);
            assert_eq!(refused.json()["type"], "urn:lambda-idempotency:tenant-missing");
            assert_eq!(refused.header("content-type"), Some("application/problem+json"));
            assert_eq!(runs.count(), 0);
        }
    }
}

struct ApiKey;

impl TenantResolver for ApiKey {
    fn tenant(&self, _: &Parts) -> Option<Tenant> {
        None
    }

    fn challenge(&self) -> &'static str {
        "ApiKey realm=\"shop\""
    }
}

// RFC 9110, section 11.6.1
#[tokio::test]
async fn a_401_challenges_for_what_verifies_the_caller() {
    async fn challenged(tenant: impl TenantResolver, challenge: &str) {
        let guard = Idempotency::new(MemoryStore::new(), Operation::new(PAY)).tenant(tenant);
        let anonymous = fronts()[0].anonymous();
        let refused = deliver(&of_a_router(guard).0, &anonymous).await;
        assert_eq!((refused.status(), refused.header("www-authenticate")), (401, Some(challenge)));
    }
    challenged(JwtClaim("sub"), "Bearer").await;
    challenged(JwtClaim("sub").with_issuer(), "Bearer").await;
    challenged(LambdaAuthorizer("tenantId"), "Bearer").await;
    challenged(IamAccount, "AWS4-HMAC-SHA256").await;
    challenged(IamCaller, "AWS4-HMAC-SHA256").await;
    challenged(PerStage(PerHost(IamCaller)), "AWS4-HMAC-SHA256").await;
    challenged(ApiKey, "ApiKey realm=\"shop\"").await;
}

#[tokio::test]
async fn what_an_authorizer_says_in_a_number_is_a_tenant_too() {
    let logs = Logs::capture();
    for (name, place) in [
        ("rest_api_lambda_authorizer", "/requestContext/authorizer/tenantId"),
        ("http_api_lambda_authorizer", "/requestContext/authorizer/lambda/tenantId"),
        ("rest_api_cognito", "/requestContext/authorizer/claims/sub"),
    ] {
        let front = fronts().into_iter().find(|front| front.event == event_of(name)).expect("a front");
        for (value, tenant) in [
            (json!(42), Some("42")),
            (json!(18_446_744_073_709_551_615_u64), Some("18446744073709551615")),
            (json!(1.5), None),
            (json!(-1), None),
            (json!(true), None),
            (json!(null), None),
            (json!(["acme"]), None),
            (json!({ "id": "acme" }), None),
        ] {
            let mut event = front.event();
            *event.pointer_mut(place).expect("the field") = value.clone();
            for (function, _) in front.functions(&MemoryStore::new()) {
                let answer = deliver(&function, &event).await;
                match tenant {
                    Some(tenant) => assert_eq!(answer.json()["tenant"], tenant, "{name} {value}"),
                    None => assert_eq!(answer.status(), 401, "{name} {value}"),
                }
            }
        }
    }
    // Six values of each of the three, to two functions; others may refuse callers too.
    let lines = logs.lines_with("what the authorizer verified names no tenant");
    assert!(lines.len() >= 36 && lines[0].text.contains("tenantId"), "{}", lines.len());
}

fn event_of(name: &str) -> &'static str {
    match name {
        "rest_api_lambda_authorizer" => include_str!("../fixtures/rest_api_lambda_authorizer.json"),
        "http_api_lambda_authorizer" => include_str!("../fixtures/http_api_lambda_authorizer.json"),
        "rest_api_cognito" => include_str!("../fixtures/rest_api_cognito.json"),
        _ => panic!("{name}"),
    }
}

#[tokio::test]
async fn nothing_that_a_client_sends_chooses_a_tenant() {
    let forged = json!({
        "sub": "mallory", "tenantId": "mallory", "principalId": "mallory", "accountId": "666666666666",
        "userArn": "arn:aws:iam::666666666666:user/mallory",
        "requestContext": { "authorizer": { "claims": { "sub": "mallory" } } },
    });
    let headers = ["x-tenant-id", "sub", "tenantid", "authorization", "x-amzn-request-context"];
    let forge = |mut event: Value| {
        event["body"] = forged.to_string().into();
        for header in headers {
            if event["headers"].is_object() {
                event["headers"][header] = forged.to_string().into();
            }
            if event["multiValueHeaders"].is_object() {
                event["multiValueHeaders"][header] = json!([forged.to_string()]);
            }
        }
        event["pathParameters"] = json!({ "sub": "mallory", "tenantId": "mallory" });
        event["queryStringParameters"] = json!({ "sub": "mallory" });
        event
    };
    for front in fronts() {
        let store = MemoryStore::new();
        for (function, _) in front.functions(&store) {
            assert_eq!(deliver(&function, &forge(front.event())).await.json()["tenant"], front.name);
            if front.name != "all" {
                assert_eq!(deliver(&function, &forge(front.anonymous())).await.status(), 401);
            }
        }
    }
}

#[tokio::test]
async fn a_function_in_tenant_isolation_mode_takes_the_tenant_of_its_context() {
    let tenant: Arc<dyn TenantResolver> = Arc::new(context_tenant);
    let front = Front { event: include_str!("../fixtures/function_url.json"), tenant, name: "" };
    for kind in 0..2 {
        let (function, runs) = front.functions(&MemoryStore::new())[kind].clone();
        let in_context = |tenant: Option<&str>| {
            let mut context = Context::default();
            context.tenant_id = tenant.map(str::to_owned);
            context
        };
        for tenant in ["acme", "globex"] {
            let answer = deliver_in(&function, &front.event(), in_context(Some(tenant))).await;
            assert_eq!((answer.status(), &answer.json()["tenant"]), (201, &json!(tenant)));
        }
        assert_eq!(deliver_in(&function, &front.event(), in_context(None)).await.status(), 401);
        assert_eq!(runs.count(), 2);
    }
}

#[tokio::test]
async fn a_binary_answer_is_replayed_unchanged() {
    let answer = |_: Request| async {
        let response = lambda_http::Response::builder().header("content-type", "image/png");
        Ok::<_, lambda_http::Error>(response.body(Body::Binary(vec![0x89, b'P', 0, 0xff]))?)
    };
    let guard = Idempotency::new(MemoryStore::new(), Operation::new(PAY)).tenant(SingleTenant::new("all"));
    let function = function(guard.layer(service_fn(answer)));
    let event = serde_json::from_str(include_str!("../fixtures/http_api_jwt.json")).unwrap();
    for replayed in [None, Some("true")] {
        let answer = deliver(&function, &event).await;
        assert_eq!(answer.header("idempotent-replayed"), replayed);
        assert_eq!(answer.0["isBase64Encoded"], true);
        assert_eq!(answer.0["body"], base64::encode([0x89, b'P', 0, 0xff]));
    }
}

// T26: `lambda_http` reads in it whether the body is text.
#[tokio::test]
async fn a_body_that_is_declared_as_text_is_replayed_as_text() {
    let answer = |_: Request| async {
        let response = lambda_http::Response::builder().header("content-type", "application/graphql");
        let response = response.header("x-lambda-http-content-encoding", "text");
        Ok::<_, lambda_http::Error>(response.body(axum::body::Body::from("{ payment }"))?)
    };
    let guard = Idempotency::new(MemoryStore::new(), Operation::new(PAY)).tenant(SingleTenant::new("all"));
    let function = function(guard.layer(service_fn(answer)));
    let event = serde_json::from_str(include_str!("../fixtures/rest_api_iam.json")).unwrap();
    for replayed in [None, Some("true")] {
        let answer = deliver(&function, &event).await;
        assert_eq!((answer.header("idempotent-replayed"), answer.text()), (replayed, "{ payment }"));
    }
}

// A plain handler's text in another charset is decoded once.
#[tokio::test]
async fn text_of_another_charset_is_delivered_as_utf_8() {
    let answer = |_: Request| async {
        let response =
            lambda_http::Response::builder().header("content-type", "text/plain; charset=iso-8859-1");
        Ok::<_, lambda_http::Error>(response.body(axum::body::Body::from(&b"caf\xe9"[..]))?)
    };
    let event = serde_json::from_str(include_str!("../fixtures/rest_api_iam.json")).unwrap();
    assert_eq!(deliver(&function(service_fn(answer)), &event).await.text(), "caf\u{e9}");
}

#[tokio::test]
async fn two_keys_in_one_request_are_refused_as_each_front_shows_them() {
    // An HTTP API and a function URL join the lines. A load balancer keeps them if it sends all values.
    let mut joined: Value = serde_json::from_str(include_str!("../fixtures/http_api_jwt.json")).unwrap();
    joined["headers"]["idempotency-key"] = "order-1,order-2".into();
    let mut kept: Value =
        serde_json::from_str(include_str!("../fixtures/load_balancer_multi_value.json")).unwrap();
    kept["multiValueHeaders"]["idempotency-key"] = json!(["order-1", "order-2"]);
    for (event, reason) in [(joined, "list"), (kept, "repeated")] {
        let guard =
            Idempotency::new(MemoryStore::new(), Operation::new(PAY)).tenant(SingleTenant::new("all"));
        for (function, runs) in [of_a_router(guard.clone()), of_a_plain_handler(guard.clone())] {
            let refused = deliver(&function, &event).await;
            assert_eq!((refused.status(), &refused.json()["reason"]), (400, &json!(reason)));
            assert_eq!(runs.count(), 0);
        }
    }
}

#[tokio::test]
async fn parameter_order_that_a_front_has_lost_does_not_count() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let values: Value = names.iter().map(|name| (name.to_string(), json!([name, "2"]))).collect();
    for event in
        [include_str!("../fixtures/rest_api_iam.json"), include_str!("../fixtures/load_balancer.json")]
    {
        let mut event: Value = serde_json::from_str(event).unwrap();
        event["multiValueQueryStringParameters"] = values.clone();
        let mut other = event.clone();
        other["multiValueQueryStringParameters"]["a"] = json!(["2", "a"]);
        let guard =
            Idempotency::new(MemoryStore::new(), Operation::new(PAY)).tenant(SingleTenant::new("all"));
        let (function, runs) = of_a_router(guard);
        for _ in 0..10 {
            assert_eq!(deliver(&function, &event).await.status(), 201);
        }
        assert_eq!(deliver(&function, &other).await.status(), 422, "the order of one name's values counts");
        assert_eq!(runs.count(), 1);
    }
}

// A REST API also sends one value of each header, and `lambda_http` replaces all values by it. The code behind it cannot see that there
// were two.
#[tokio::test]
async fn of_two_keys_in_a_rest_apis_request_the_last_counts() {
    let mut event = fronts()[0].event();
    event["multiValueHeaders"]["Idempotency-Key"] = json!(["order-0", "order-1"]);
    let store = MemoryStore::new();
    let (function, _) = fronts()[0].functions(&store)[0].clone();
    assert_eq!(deliver(&function, &event).await.status(), 201);
    assert!(store.load(&record_key("acme", PAY, "order-1")).await.unwrap().is_some());
}

#[tokio::test]
async fn one_subject_of_two_issuers_is_two_tenants_if_the_issuer_counts() {
    let token = |front: &Front, issuer: Option<&str>, subject: &str| {
        let mut event = front.event();
        let claims = match event["requestContext"]["authorizer"].get("jwt") {
            Some(_) => &mut event["requestContext"]["authorizer"]["jwt"]["claims"],
            None => &mut event["requestContext"]["authorizer"]["claims"],
        };
        *claims = json!({ "sub": subject });
        if let Some(issuer) = issuer {
            claims["iss"] = issuer.into();
        }
        event
    };
    let (a, b) = ("https://a.example.com", "https://b.example.com");
    for event in
        [include_str!("../fixtures/http_api_jwt.json"), include_str!("../fixtures/rest_api_cognito.json")]
    {
        let front = Front { event, tenant: Arc::new(JwtClaim("sub").with_issuer()), name: "" };
        for kind in 0..2 {
            let (function, runs) = front.functions(&MemoryStore::new())[kind].clone();
            for (issuer, subject, tenant, run) in [
                (a, "1", "https://a.example.com|1", 1),
                (b, "1", "https://b.example.com|1", 2),
                (a, "1|2", "https://a.example.com|1|2", 3),
                (a, "1", "https://a.example.com|1", 1),
            ] {
                let answer = deliver(&function, &token(&front, Some(issuer), subject)).await.json();
                assert_eq!((&answer["tenant"], &answer["run"]), (&json!(tenant), &json!(run)));
            }
            let long = "x".repeat(256);
            for (issuer, subject) in [
                (None, "1"),
                (Some(""), "1"),
                (Some("https://a.example.com|1"), "2"),
                (Some(a), ""),
                (Some(a), &*long),
            ] {
                let refused = deliver(&function, &token(&front, issuer, subject)).await;
                assert_eq!(refused.status(), 401, "{issuer:?} {subject}");
            }
            assert_eq!(runs.count(), 3);
        }
    }
}

// This happens if another major version of `lambda_http` made the request.
#[tokio::test]
async fn a_request_without_a_context_is_refused_with_one_log_line() {
    let logs = Logs::capture();
    let guard =
        Idempotency::new(MemoryStore::new(), Operation::new("without-context")).tenant(JwtClaim("sub"));
    let app = Router::new().route("/payments", post(async || "paid").route_layer(guard));
    for _ in 0..3 {
        let request = axum::http::Request::post("/payments").header("idempotency-key", "order-1");
        let refused = send(&app, request.body(axum::body::Body::empty()).unwrap()).await;
        refused.assert_problem(401, "tenant-missing");
    }
    // An anonymous caller does not cause that line.
    let front = &fronts()[5];
    let guard =
        Idempotency::new(MemoryStore::new(), Operation::new("with-a-context")).tenant(JwtClaim("sub"));
    assert_eq!(deliver(&of_a_router(guard).0, &front.anonymous()).await.status(), 401);
    let others = logs.lines_with("with-a-context");
    assert!(others.iter().all(|line| !line.text.contains("lambda_http")), "{others:?}");
    let mut lines = logs.lines_with("without-context");
    lines.retain(|line| line.text.contains("lambda_http"));
    assert_eq!(lines.iter().map(|line| line.level()).collect::<Vec<_>>(), ["ERROR"]);
}
