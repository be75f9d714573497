//! Keys that are not in the header `Idempotency-Key`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use axum::{Router, body::Body, http::Request, routing::any};
use lambda_http::service_fn;
use lambda_idempotency::{
    Execution, Idempotency, JwtClaim, KeyFrom, Operation,
    fingerprint::FingerprintRule,
    http::Profile,
    key::IdempotencyKey,
    store::{Store, memory::MemoryStore},
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use tower::Layer;

use crate::support::{
    guarded::Guarded,
    http::{Answer, Counter, PAY, Resolver, TENANT, caller, clock, execution, record_key, send, tenant},
    lambda::{deliver, function},
    on_each_store,
};

/// An API whose every path is one guarded route, with the key there.
fn api_with(store: impl Store, profile: Profile, operation: Operation, runs: &Counter) -> Router {
    let guard = Idempotency::new(store, operation).tenant(caller as Resolver).world(clock()).profile(profile);
    let runs = runs.clone();
    let handler = async move |request: Request<Body>| {
        runs.add();
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        // It gets the body that the key was looked for in.
        format!("{} {}", execution(&parts).idempotency_key().as_str(), body.len())
    };
    Router::new().route("/{*path}", any(handler).layer(guard))
}

fn api(store: impl Store, from: KeyFrom, runs: &Counter) -> Router {
    api_with(store, Profile::ietf_draft().key_from(from), Operation::new(PAY), runs)
}

/// A request of these headers and this body.
async fn post(app: &Router, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
    let request = Request::post(path).header("content-type", "application/json").extension(tenant(TENANT));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    send(app, request.body(body.into()).unwrap()).await
}

const ELSEWHERE: &str = "/payments";

/// Where it is; path, headers and body of a request; the key.
type Case = (KeyFrom, &'static str, &'static [(&'static str, &'static str)], Value, &'static [&'static str]);

fn cases() -> Vec<Case> {
    let header = || KeyFrom::header("PayPal-Request-Id");
    let body = || KeyFrom::body("/payment/idempotency_key");
    let keyed = || json!({ "payment": { "idempotency_key": "b-1" }, "amount": 5 });
    let both = || KeyFrom::first([KeyFrom::header("Idempotency-Key"), body()]);
    let of_function = KeyFrom::function(|parts, body| {
        let path = parts.uri.path().rsplit('/').next()?;
        Some(format!("{path}-{}", body.len()))
    });
    vec![
        (header(), ELSEWHERE, &[("paypal-request-id", "p-1")], json!({}), &["p-1"]),
        (header(), ELSEWHERE, &[("paypal-request-id", "\"p-1\"")], json!({}), &["p-1"]),
        (body(), ELSEWHERE, &[], keyed(), &["b-1"]),
        // Nothing else is looked at.
        (body(), ELSEWHERE, &[("idempotency-key", "h-1")], keyed(), &["b-1"]),
        (KeyFrom::query("request_id"), "/payments?request_id=q%231&b=2", &[], json!({}), &["q#1"]),
        (
            KeyFrom::path("/orders/{order}/captures/{key}"),
            "/orders/7/captures/c%201",
            &[],
            json!({}),
            &["c 1"],
        ),
        (both(), ELSEWHERE, &[("idempotency-key", "h-1")], json!({}), &["h-1"]),
        (both(), ELSEWHERE, &[], keyed(), &["b-1"]),
        (both(), ELSEWHERE, &[("idempotency-key", "b-1")], keyed(), &["b-1"]),
        (
            KeyFrom::all([header(), KeyFrom::query("shop")]),
            "/payments?shop=tea",
            &[("paypal-request-id", "p-1")],
            json!({}),
            &["p-1", "tea"],
        ),
        (of_function, "/payments/f-1", &[], json!({}), &["f-1-2"]),
    ]
}

#[apply(on_each_store)]
async fn a_request_is_kept_under_its_key_wherever_that_is(endpoint: &str) {
    for (from, path, headers, body, key) in cases() {
        let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
        let app = api(guarded.store(), from.clone(), &runs);
        let first = post(&app, path, headers, body.to_string()).await;
        assert_eq!(first.status, 200, "{from:?} {first:?}");
        let key = IdempotencyKey::of(key).unwrap();
        let kept = format!("{} {}", key.as_str(), body.to_string().len());
        assert_eq!(first.body, kept.as_bytes(), "{from:?}");
        post(&app, path, headers, body.to_string()).await.assert_replay_of(&first);
        assert_eq!(runs.count(), 1, "{from:?}");
        assert!(guarded.record(&record_key(TENANT, PAY, key.as_str())).await.is_some(), "{from:?}");
    }
}

/// Where it is; path, headers and body of a request; reason and detail of its refusal.
type Refused = (KeyFrom, &'static str, &'static [(&'static str, &'static str)], String, &'static str, String);

// T34: nothing is begun, and nothing that the client sent comes back.
#[tokio::test]
async fn a_bad_key_is_refused_with_its_place_and_reason() {
    let (store, runs) = (MemoryStore::new(), Counter::default());
    let body = || KeyFrom::body("/key");
    let long = "secret".repeat(700);
    let hash = IdempotencyKey::of(&["shop", "1"]).unwrap().as_str().to_owned();
    let at = "The body's key at /key";
    let refused: &[Refused] = &[
        (body(), "/a", &[], json!({ "other": "secret" }).to_string(), "missing", format!("{at} is missing")),
        (
            body(),
            "/a",
            &[],
            json!({ "key": null }).to_string(),
            "not-a-string",
            format!("{at} is not a string"),
        ),
        (
            body(),
            "/a",
            &[],
            json!({ "key": 17 }).to_string(),
            "not-a-string",
            format!("{at} is not a string"),
        ),
        (
            body(),
            "/a",
            &[],
            json!({ "key": ["secret"] }).to_string(),
            "not-a-string",
            format!("{at} is not a string"),
        ),
        (body(), "/a", &[], json!({ "key": "" }).to_string(), "empty", format!("{at} is empty")),
        (
            body(),
            "/a",
            &[],
            json!({ "key": long }).to_string(),
            "too-long",
            format!("{at} is longer than 255 characters"),
        ),
        (
            body(),
            "/a",
            &[],
            json!({ "key": "a\nsecret" }).to_string(),
            "character",
            format!("{at} contains a control character"),
        ),
        (
            body(),
            "/a",
            &[],
            json!({ "key": hash }).to_string(),
            "reserved",
            format!("{at} has a form that the service makes itself: sha256: and 43 digits"),
        ),
        (
            body(),
            "/a",
            &[],
            r#"{"key":"secret","key":"secret"}"#.into(),
            "repeated",
            format!("{at} is there more than once"),
        ),
        (body(), "/a", &[], "key=secret".into(), "missing", format!("{at} is missing: the body is not JSON")),
        (body(), "/a", &[], String::new(), "missing", format!("{at} is missing: the body is not JSON")),
        (body(), "/a", &[], r#"["secret"]"#.into(), "missing", format!("{at} is missing")),
        (
            KeyFrom::header("X-Request-Id"),
            "/a",
            &[("x-request-id", "a"), ("x-request-id", "b")],
            String::new(),
            "repeated",
            "The header X-Request-Id is there more than once".into(),
        ),
        (
            KeyFrom::header("X-Request-Id"),
            "/a",
            &[("idempotency-key", "secret")],
            String::new(),
            "missing",
            "The header X-Request-Id is missing".into(),
        ),
        (
            KeyFrom::query("id"),
            "/a?id=secret&id=secret",
            &[],
            String::new(),
            "repeated",
            "The query parameter id is there more than once".into(),
        ),
        (
            KeyFrom::query("id"),
            "/a?id=",
            &[],
            String::new(),
            "empty",
            "The query parameter id is empty".into(),
        ),
        // Behind a load balancer, all bytes that are no text would be one key.
        (
            KeyFrom::query("id"),
            "/a?id=%E9",
            &[],
            String::new(),
            "character",
            "The query parameter id is not valid UTF-8".into(),
        ),
        (
            KeyFrom::path("/a/{key}"),
            "/a",
            &[],
            String::new(),
            "missing",
            "The key in the path, /a/{key}, is missing".into(),
        ),
        (
            KeyFrom::path("/a/{key}"),
            "/a/b/secret",
            &[],
            String::new(),
            "missing",
            "The key in the path, /a/{key}, is missing".into(),
        ),
        (
            KeyFrom::claim("jti"),
            "/a",
            &[],
            String::new(),
            "missing",
            "The claim jti of the token is missing".into(),
        ),
        (
            KeyFrom::function(|_, _| None),
            "/a",
            &[],
            String::new(),
            "missing",
            "The idempotency key is missing".into(),
        ),
        (
            KeyFrom::first([KeyFrom::header("Idempotency-Key"), body()]),
            "/a",
            &[("idempotency-key", "secret-1")],
            json!({ "key": "secret-2" }).to_string(),
            "different",
            "The request has two idempotency keys that differ".into(),
        ),
        (
            KeyFrom::first([KeyFrom::header("Idempotency-Key"), body()]),
            "/a",
            &[],
            "{}".into(),
            "missing",
            format!("The header Idempotency-Key is missing; {at} is missing"),
        ),
        // What is there must be a key, also beside another one.
        (
            KeyFrom::first([KeyFrom::header("Idempotency-Key"), body()]),
            "/a",
            &[("idempotency-key", "secret-1")],
            r#"{"key":7}"#.into(),
            "not-a-string",
            format!("{at} is not a string"),
        ),
        (
            KeyFrom::all([KeyFrom::header("Idempotency-Key"), body()]),
            "/a",
            &[("idempotency-key", "secret-1")],
            "{}".into(),
            "missing",
            format!("{at} is missing"),
        ),
    ];
    for (from, path, headers, body, reason, detail) in refused {
        let answer = post(&api(store.clone(), from.clone(), &runs), path, headers, body.clone()).await;
        answer.assert_problem(400, if *reason == "missing" { "key-missing" } else { "key-malformed" });
        let problem = answer.json();
        assert_eq!(problem["reason"], *reason, "{from:?}");
        let said = problem["detail"].as_str().unwrap();
        assert!(said.starts_with(&format!("{detail}. ")), "{from:?}: {said}");
        assert!(!problem.to_string().contains("secret"), "{problem}");
    }
    assert_eq!(runs.count(), 0);
}

// As the authorizers of API Gateway pass it on.
#[tokio::test]
async fn a_claim_that_was_verified_is_the_key_of_a_request() {
    for (event, claims) in [
        (include_str!("../fixtures/http_api_jwt.json"), "/requestContext/authorizer/jwt/claims"),
        (include_str!("../fixtures/rest_api_cognito.json"), "/requestContext/authorizer/claims"),
    ] {
        let runs = Counter::default();
        let guard = Idempotency::new(MemoryStore::new(), Operation::new(PAY)).tenant(JwtClaim("sub"));
        let guard = guard.world(clock()).profile(Profile::ietf_draft().key_from(KeyFrom::claim("jti")));
        let counted = runs.clone();
        let pay = move |request: lambda_http::Request| {
            let execution: &Execution = request.extensions().get().expect("it is guarded");
            let answer = format!("{} {}", counted.add(), execution.idempotency_key().as_str());
            async { Ok::<_, lambda_http::Error>(lambda_http::Response::new(lambda_http::Body::from(answer))) }
        };
        let function = function(guard.layer(service_fn(pay)));
        let with = |jti: Value| {
            let mut event: Value = serde_json::from_str(event).expect("a fixture is JSON");
            event.pointer_mut(claims).expect("claims")["jti"] = jti;
            event
        };
        for (jti, answer) in [("t-1", "1 t-1"), ("t-2", "2 t-2"), ("t-1", "1 t-1")] {
            assert_eq!(deliver(&function, &with(jti.into())).await.text(), answer);
        }
        // The fixture's header says `order-1`, and any client can set it.
        for (jti, status, reason) in [
            (Value::Null, 400, "missing"),
            (json!(""), 400, "empty"),
            (json!("x".repeat(256)), 400, "too-long"),
        ] {
            let refused = deliver(&function, &with(jti)).await;
            assert_eq!((refused.status(), &refused.json()["reason"]), (status, &json!(reason)));
        }
        assert_eq!(runs.count(), 2);
    }
}

// The body of a request that its head refuses is not waited for.
#[tokio::test]
async fn a_request_without_its_header_is_refused_before_its_body_comes() {
    let app = api(MemoryStore::new(), KeyFrom::header("X-Request-Id"), &Counter::default());
    let never = Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    post(&app, "/a", &[], never).await.assert_problem(400, "key-missing");
}

#[tokio::test]
async fn a_key_in_the_body_counts_unless_the_rule_leaves_it_out() {
    let from = || KeyFrom::first([KeyFrom::header("Idempotency-Key"), KeyFrom::body("/key")]);
    let keyed = json!({ "amount": 5, "key": "k-1" }).to_string();
    for (rule, status) in [(FingerprintRule::new(), 422), (FingerprintRule::new().leave_out("/key"), 200)] {
        let profile = Profile::ietf_draft().key_from(from());
        let operation = Operation::new(PAY).fingerprint(rule);
        let app = api_with(MemoryStore::new(), profile, operation, &Counter::default());
        assert_eq!(post(&app, "/a", &[("idempotency-key", "k-1")], r#"{"amount":5}"#).await.status, 200);
        assert_eq!(post(&app, "/a", &[], keyed.clone()).await.status, status);
    }
}

#[tokio::test]
async fn the_contracts_echo_the_key_in_its_own_header() {
    let runs = Counter::default();
    for (profile, echoes) in
        [(Profile::ietf_draft(), false), (Profile::stripe(), true), (Profile::acp(), true)]
    {
        let from = KeyFrom::first([KeyFrom::header("X-Request-Id"), KeyFrom::body("/key")]);
        let app = api_with(MemoryStore::new(), profile.key_from(from), Operation::new(PAY), &runs);
        let answer = post(&app, "/a", &[("x-request-id", "k-1")], "{}").await;
        assert_eq!((answer.status, answer.header("x-request-id")), (200, Some("k-1").filter(|_| echoes)));
        assert_eq!(answer.header("idempotency-key"), None);
        let in_body = post(&app, "/b", &[], r#"{"key":"k-2"}"#).await;
        assert_eq!((in_body.status, in_body.header("x-request-id")), (200, None));
    }
}

// T34: such a request has no key in its header, and runs.
#[tokio::test]
async fn an_optional_key_is_looked_for_in_its_header() {
    let runs = Counter::default();
    let profile = Profile::stripe().key_optional().key_from(KeyFrom::header("X-Request-Id"));
    let guard = Idempotency::new(MemoryStore::new(), Operation::new(PAY)).tenant(caller as Resolver);
    let counted = runs.clone();
    let handler = any(async move || format!("{}", counted.add()));
    let app = Router::new().route("/a", handler.layer(guard.world(clock()).profile(profile)));
    for answers in ["1", "2"] {
        assert_eq!(post(&app, "/a", &[("idempotency-key", "k")], "{}").await.body, answers);
    }
    for _ in 0..2 {
        assert_eq!(post(&app, "/a", &[("x-request-id", "k")], "{}").await.body, "3");
    }
}

#[test]
fn a_key_that_a_request_cannot_have_is_found_at_start_up() {
    let refused = |start: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(start)).expect_err("a panic");
        panic.downcast_ref::<String>().cloned().expect("a message")
    };
    let in_profile = |from: &dyn Fn() -> KeyFrom| refused(&|| drop(Profile::ietf_draft().key_from(from())));
    for (text, panic) in [
        ("for messages", in_profile(&KeyFrom::envelope)),
        ("for messages", in_profile(&|| KeyFrom::first([KeyFrom::query("a"), KeyFrom::content()]))),
        ("KeyFrom::header(\"a b\")", refused(&|| drop(KeyFrom::header("a b")))),
        ("begins with /", refused(&|| drop(KeyFrom::path("{key}")))),
        ("one segment {key}", refused(&|| drop(KeyFrom::path("/orders/{id}")))),
        ("one segment {key}", refused(&|| drop(KeyFrom::path("/{key}/{key}")))),
        ("key_optional", refused(&|| drop(Profile::stripe().key_from(KeyFrom::query("key")).key_optional()))),
        ("key_optional", refused(&|| drop(Profile::stripe().key_optional().key_from(KeyFrom::body("/key"))))),
    ] {
        assert!(panic.contains(text), "{text}: {panic}");
    }
}
