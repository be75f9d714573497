//! What a worker gets of an accepted request, and what it never gets.

use axum::{
    Router,
    body::Body,
    http::{Method, Request, StatusCode, Uri},
    middleware::{self, Next},
    response::IntoResponse,
    routing::post,
};
use lambda_http::{
    RequestExt,
    aws_lambda_events::apigw::{
        ApiGatewayProxyRequestContext, ApiGatewayRequestAuthorizer,
        ApiGatewayRequestAuthorizerJwtDescription, ApiGatewayV2httpRequestContext,
    },
    request::RequestContext,
};
use lambda_idempotency::{
    Execution, Idempotency, JwtClaim, Operation, SingleTenant,
    engine::SingleTransaction,
    event::{Consumer, MemorySource},
    http::{IamAccount, IamCaller, PerHost, Profile, TenantResolver},
    store::Store,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use std::{collections::HashMap, time::Duration};

use super::{MINUTE, Reports, operation};
use crate::support::{
    guarded::Guarded,
    http::{self, Answer, Counter, PAY, guard_of, record_key, send},
    messages::{QUEUE, deliver_within, message},
    on_each_store,
};
use lambda_idempotency::world::World;

/// The claims of a token that an HTTP API has verified.
fn http_api() -> RequestContext {
    let mut jwt = ApiGatewayRequestAuthorizerJwtDescription::default();
    jwt.claims = [("sub".to_owned(), "acme".to_owned()), ("role".to_owned(), "buyer".to_owned())].into();
    let mut authorizer = ApiGatewayRequestAuthorizer::default();
    authorizer.jwt = Some(jwt);
    let mut context = ApiGatewayV2httpRequestContext::default();
    context.authorizer = Some(authorizer);
    context.account_id = Some("123456789012".to_owned());
    context.stage = Some("live".to_owned());
    RequestContext::ApiGatewayV2(context)
}

/// The same from a REST API.
fn rest_api() -> RequestContext {
    let mut context = ApiGatewayProxyRequestContext::default();
    let claims = json!({ "sub": "acme", "role": "buyer" });
    context.authorizer.fields = [("claims".to_owned(), claims)].into();
    context.account_id = Some("123456789012".to_owned());
    context.stage = Some("live".to_owned());
    RequestContext::ApiGatewayV1(context)
}

/// Says what it got.
async fn report(execution: Execution, request: Request<Body>) -> impl IntoResponse {
    let context = serde_json::to_value(request.request_context_ref()).expect("JSON");
    let headers: Vec<_> = request.headers().keys().map(ToString::to_string).collect();
    let uri = request.extensions().get::<axum::extract::OriginalUri>().map(|uri| uri.0.to_string());
    let seen = json!({
        "tenant": execution.tenant().as_str(),
        "role": role(&context),
        "uri": uri,
        "headers": headers,
        "account": context["accountId"],
        "stage": context["stage"],
        "deadline": execution.deadline().is_some(),
        "note": request.query_string_parameters().first("note"),
        "shop": request.path_parameters().first("shop"),
    });
    (StatusCode::CREATED, seen.to_string())
}

fn role(context: &Value) -> &Value {
    let [rest, http] =
        ["/authorizer/claims/role", "/authorizer/jwt/claims/role"].map(|role| context.pointer(role));
    rest.or(http).unwrap_or(&Value::Null)
}

fn router(guarded: &Guarded) -> Router {
    let guard = Idempotency::new(guarded.store(), operation()).tenant(JwtClaim("sub"));
    let route = post(report).route_layer(guard.world(guarded.clock.clone()));
    // Another route of the same name is at the root.
    let wrong = || async { StatusCode::IM_A_TEAPOT };
    Router::new().nest("/v1/{shop}", Router::new().route("/reports", route)).route("/reports", post(wrong))
}

fn order(context: RequestContext) -> Request<Body> {
    let order = Request::post("/v1/tea/reports?year=2026&note=a%20b")
        .header("idempotency-key", "r-1")
        .header("authorization", "Bearer secret")
        .header("cookie", "session=secret")
        .header("x-api-key", "secret")
        .header("content-type", "application/json")
        .extension(context);
    let path = HashMap::from([("shop".to_owned(), "tea".to_owned())]);
    order.body(r#""Sales""#.into()).map(|order| order.with_path_parameters(path)).expect("a request")
}

async fn work(guarded: &Guarded, router: Router) -> (Vec<String>, MemorySource) {
    let queue = MemorySource::new(QUEUE);
    let record = guarded.record(&record_key("acme", PAY, "r-1")).await.expect("a record");
    let request = record.accepted.expect("it was accepted").request.to_string();
    let asked =
        json!({ "version": 1, "kind": "work", "key": record.key.partition_key(), "request": request });
    let worker = Consumer::worker(queue.clone()).world(guarded.clock.clone()).work(guarded.store(), router);
    let now = std::time::UNIX_EPOCH + Duration::from_millis(guarded.clock.now().as_millis());
    (deliver_within(&worker, &[message("m-1", asked)], now, MINUTE).await.expect("an answer"), queue)
}

// Behind a nested router, whose prefix axum has stripped from the URI when the guard sees it.
#[apply(on_each_store)]
async fn a_worker_gets_the_request_without_its_credentials(endpoint: &str) {
    for context in [http_api(), rest_api()] {
        let guarded = Guarded::on(endpoint).await;
        let router = router(&guarded);
        assert_eq!(send(&router, order(context)).await.status, 202);
        // Nothing that authenticates lies in the table, in any item.
        let items = format!("{:?}", guarded.collection(&record_key("acme", PAY, "r-1")).await);
        assert!(!items.contains("secret") && !items.contains(&format!("{:?}", b"secret")), "{items}");
        let (back, queue) = work(&guarded, router.clone()).await;
        assert_eq!((back.len(), queue.take_dead().len()), (0, 0));
        let store = guarded.undisturbed_store();
        let record =
            store.load(&record_key("acme", PAY, "r-1")).await.expect("the store answers").expect("a record");
        // The client's retry gets the worker's answer.
        let retry = send(&router, order(http_api())).await;
        let seen = retry.json();
        assert_eq!((retry.status, record.state.name()), (201, "completed"));
        assert_eq!(
            seen,
            json!({
                "tenant": "acme",
                "role": "buyer",
                "uri": "/v1/tea/reports?year=2026&note=a%20b",
                "headers": ["content-type"],
                "account": null,
                "stage": "live",
                "deadline": true,
                "note": "a b",
                "shop": "tea",
            })
        );
    }
}

// A layer that verifies callers stands around the router. A worker has no caller.
#[apply(on_each_store)]
async fn a_layer_that_refuses_the_worker_is_named(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let verified = |request: axum::extract::Request, next: Next| async move {
        match request.headers().contains_key("authorization") {
            true => next.run(request).await,
            false => StatusCode::UNAUTHORIZED.into_response(),
        }
    };
    let router = router(&guarded).layer(middleware::from_fn(verified));
    assert_eq!(send(&router, order(http_api())).await.status, 202);
    let (back, queue) = work(&guarded, router).await;
    let [dead] = &queue.take_dead()[..] else { panic!("not one dead letter") };
    assert_eq!((back.len(), &*dead.reason), (0, "the route is not guarded: it answered 401"));
}

// A deployment has put another operation on the route, whose keys are optional: without a key it would run unguarded.
#[apply(on_each_store)]
async fn accepted_work_runs_behind_its_own_guard_alone(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let runs = Counter::default();
    let counted = runs.clone();
    let another = guard_of(reports.guarded.store(), Operation::new("another"));
    let moved = reports.guarded_by(another.profile(Profile::ietf_draft().key_optional()), move |_, _| {
        counted.add();
        async {}
    });
    assert!(moved.work(&reports.asked("r-1").await).await);
    let [dead] = &reports.queue.take_dead()[..] else { panic!("not one dead letter") };
    assert_eq!((runs.count(), &*dead.reason), (0, "not-guarded (500): This operation is not guarded"));
    assert_eq!(reports.state("r-1").await, "pending");
}

// A deployment guards the method no more. It would run without its guard, and again with each message.
#[apply(on_each_store)]
async fn an_accepted_put_is_guarded_whatever_the_route_guards_now(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    let guarded_put = guard_of(reports.guarded.store(), reports.operation.clone()).guard_also(Method::PUT);
    let before = reports.guarded_by(guarded_put, super::report);
    let put = http::order("r-1").method(Method::PUT).body(r#""report""#.into()).expect("a request");
    assert_eq!(send(&before.app, put).await.status, 202);
    let asked = before.asked("r-1").await;
    for _ in 0..2 {
        assert!(reports.work(&asked).await);
    }
    let answer = reports.polled("r-1").await;
    assert_eq!((answer.status, reports.runs.count(), reports.queue.take_dead().len()), (201, 1, 0));
}

// T58: a guard within the handler may keep stages apart.
#[apply(on_each_store)]
async fn a_worker_knows_the_stage_of_a_request_without_a_caller(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let guard = Idempotency::new(guarded.store(), operation()).tenant(SingleTenant::new("acme"));
    let route = post(report).route_layer(guard.world(guarded.clock.clone()));
    let router = Router::new().route("/v1/{shop}/reports", route);
    let mut context = ApiGatewayV2httpRequestContext::default();
    context.stage = Some("live".to_owned());
    let order = || order(RequestContext::ApiGatewayV2(context.clone()));
    assert_eq!(send(&router, order()).await.status, 202);
    work(&guarded, router.clone()).await;
    assert_eq!(send(&router, order()).await.json()["stage"], "live");
}

// T58: or hosts, or signers.
#[apply(on_each_store)]
async fn a_worker_knows_the_host_and_the_signer_of_a_request(endpoint: &str) {
    let mut rest = ApiGatewayProxyRequestContext::default();
    rest.identity.account_id = Some("123456789012".to_owned());
    rest.identity.user_arn = Some("arn:aws:iam::123456789012:user/jane".to_owned());
    rest.domain_name = Some("a.example.com".to_owned());
    let mut http = ApiGatewayV2httpRequestContext::default();
    http.domain_name = Some("a.example.com".to_owned());
    for (context, expected) in [
        (
            RequestContext::ApiGatewayV1(rest),
            ["a.example.com|all", "arn:aws:iam::123456789012:user/jane", "123456789012"],
        ),
        (RequestContext::ApiGatewayV2(http), ["a.example.com|all", "", ""]),
    ] {
        let guarded = Guarded::on(endpoint).await;
        let report = async |request: Request<Body>| {
            let (parts, _) = request.into_parts();
            let all = PerHost(SingleTenant::new("all"));
            let tenants = [all.tenant(&parts), IamCaller.tenant(&parts), IamAccount.tenant(&parts)];
            (
                StatusCode::CREATED,
                json!(
                    tenants.map(|tenant| tenant.map_or(String::new(), |tenant| tenant.as_str().to_owned()))
                )
                .to_string(),
            )
        };
        let guard = Idempotency::new(guarded.store(), operation()).tenant(SingleTenant::new("acme"));
        let route = post(report).route_layer(guard.world(guarded.clock.clone()));
        let router = Router::new().route("/v1/{shop}/reports", route);
        assert_eq!(send(&router, order(context.clone())).await.status, 202);
        work(&guarded, router.clone()).await;
        assert_eq!(send(&router, order(context)).await.json(), json!(expected));
    }
}

// The answer would be kept, and its client, which polls, would never get the report.
#[apply(on_each_store)]
async fn a_handler_that_cannot_be_called_leaves_the_work_pending(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", r#""report""#).await;
    let takes_another = async |_: SingleTransaction| StatusCode::CREATED;
    let guard = guard_of(reports.guarded.store(), reports.operation.clone());
    let route = post(takes_another).route_layer(guard.world(reports.guarded.clock.clone()));
    let app = Router::new().route("/payments", route);
    let wrong = Reports { app, ..reports.with(super::report) };
    assert!(!wrong.work(&reports.asked("r-1").await).await);
    assert_eq!(reports.state("r-1").await, "pending");
    reports.guarded.clock.advance(MINUTE);
    assert!(reports.work(&reports.asked("r-1").await).await);
    assert_eq!(reports.polled("r-1").await.status, 201);
}

// A later deployment takes shorter bodies.
#[apply(on_each_store)]
async fn what_was_accepted_is_not_refused_for_its_length(endpoint: &str) {
    let reports = Reports::on(endpoint).await;
    reports.post("r-1", &format!("\"{}\"", "x".repeat(2000))).await;
    let shorter = guard_of(reports.guarded.store(), reports.operation.clone()).longest_bodies(1000, 100_000);
    let worker = reports.guarded_by(shorter, super::report);
    assert!(worker.work(&reports.asked("r-1").await).await);
    assert_eq!((reports.state("r-1").await, reports.queue.take_dead().len()), ("completed", 0));
}

// Only a worker's own extension is a claim.
#[apply(on_each_store)]
async fn nothing_that_a_client_sends_is_a_claim(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let router = router(&guarded);
    assert_eq!(send(&router, order(http_api())).await.status, 202);
    let mut forged = order(http_api());
    for header in ["idempotency-request", "x-request-id"] {
        forged.headers_mut().insert(header, "00000000000000000000000000000000".parse().expect("a header"));
    }
    let answer: Answer = send(&router, forged).await;
    assert_eq!(answer.status, 202);
    let mut other = order(http_api());
    *other.uri_mut() = Uri::from_static("/v1/tea/reports?year=2027");
    send(&router, other).await.assert_problem(422, "key-reused");
    let state = guarded.record(&record_key("acme", PAY, "r-1")).await.expect("a record").state;
    assert_eq!(state.name(), "pending");
}
