//! The address that callers use: API Gateway's routes, Lambda's Invoke API, and views of the provider, the environments, the
//! queues and the event bus.

use crate::{
    cloud::Cloud,
    environment::Outcome,
    events,
    faults::TableFault,
    gateway,
    journal::Journal,
    log::{self, Level},
    messages, page,
    routes::Matched,
    runtime_api::{PAYLOAD_LIMIT, read},
    visitors,
};
use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{Path, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};
use tokio::time::{self, Instant};
use uuid::Uuid;

/// API Gateway's limit for a request body. Lambda's limit for the event is lower, and is checked after it.
const BODY_LIMIT: usize = 10 * 1024 * 1024;

pub fn router(cloud: Arc<Cloud>) -> Router {
    let rest = Router::new().fallback(rest);
    Router::new()
        .merge(page::router())
        .route("/health", get(|| async { Json(json!({ "status": "ok" })) }))
        .route("/environments", get(environments))
        .route("/metrics", get(metrics))
        .route("/operate", get(operate))
        .route("/provider/charges", get(provider_charges))
        .route("/provider/refunds", get(provider_refunds))
        .route("/provider/deliver", post(provider_deliver))
        .route("/provider/away", post(provider_away))
        .route("/provider/back", post(provider_back))
        .route("/dynamodb/away", post(dynamodb_away))
        .route("/dynamodb/back", post(dynamodb_back))
        .route("/2015-03-31/functions/{name}/invocations", post(invoke))
        .merge(messages::router(cloud.queues.clone(), &cloud.stack))
        .merge(events::router(cloud.events.clone()))
        .route_layer(from_fn(visitors::from_here))
        .merge(rest)
        .layer(from_fn_with_state(cloud.clone(), own))
        .layer(from_fn(visitors::for_here))
        .with_state(cloud)
}

/// Requests for functions, before all routes of this cloud.
async fn own(State(cloud): State<Arc<Cloud>>, request: Request, next: Next) -> Response {
    match cloud.routes.before_cloud(request.method(), request.uri().path()) {
        Some(route) => answer(&cloud, request, Some(&route)).await,
        None => next.run(request).await,
    }
}

/// What nothing else takes.
async fn rest(State(cloud): State<Arc<Cloud>>, request: Request) -> Response {
    answer(&cloud, request, cloud.routes.default().as_ref()).await
}

/// API Gateway: every answer names its request. The invocation has the same id, while AWS uses two, so that an answer can be
/// found in the log.
async fn answer(cloud: &Cloud, request: Request, route: Option<&Matched>) -> Response {
    let (request_id, begun) = (Uuid::new_v4(), Instant::now());
    let (parts, body) = request.into_parts();
    let body = read(body, BODY_LIMIT).await;
    let id = request_id.to_string();
    let mut open = gateway::client(&parts.headers).map(|(client, key)| {
        let sent = gateway::sent(&parts, client, body.as_ref().ok());
        let timeline = cloud.journal.asked(&id, (client, &key), route.map_or("", |route| &route.key), sent);
        OpenRequest {
            journal: &cloud.journal,
            timeline,
            answer: "has no answer for it: it is gone".to_owned(),
        }
    });
    let mut response = forward(cloud, &parts, body, request_id, route).await;
    if let Some(open) = &mut open {
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        open.answer = gateway::described(&parts, &body);
        response = Response::from_parts(parts, body.into());
    }
    drop(open);
    let header = HeaderValue::from_str(&id).expect("an id is plain ASCII");
    response.headers_mut().insert(HeaderName::from_static("apigw-requestid"), header);
    let status = response.status();
    let (method, path, millis) = (&parts.method, parts.uri.path(), begun.elapsed().as_millis());
    let message = format!("{method} {path} → {}, {millis} ms", status.as_u16());
    let level = if status.is_server_error() { Level::Warn } else { Level::Info };
    log::note("gateway", level, &message, &[("request", &id)]);
    response
}

/// A request that the journal has, until it is answered. Its client may leave before it has an answer.
struct OpenRequest<'a> {
    journal: &'a Journal,
    timeline: u64,
    answer: String,
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.journal.answered(self.timeline, &self.answer);
    }
}

/// Translates request and answer.
async fn forward(
    cloud: &Cloud,
    parts: &Parts,
    body: Result<Bytes, StatusCode>,
    request_id: Uuid,
    route: Option<&Matched>,
) -> Response {
    let Some(route) = route else { return gateway::message(StatusCode::NOT_FOUND, "Not Found") };
    let too_large = || gateway::message(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large");
    let body = match body {
        Ok(body) => body,
        Err(StatusCode::PAYLOAD_TOO_LARGE) => return too_large(),
        Err(status) => return gateway::message(status, "Bad Request"),
    };
    let event = gateway::event(parts, &body, request_id, route, &cloud.claims);
    if event.len() > PAYLOAD_LIMIT {
        return too_large();
    }
    let invocation = route.function.invoke_as(request_id, event);
    let outcome = match time::timeout(cloud.gateway_timeout, invocation).await {
        Ok(outcome) => outcome,
        // The function continues; only its caller has gone.
        Err(_) => return gateway::message(StatusCode::GATEWAY_TIMEOUT, "Endpoint request timed out"),
    };
    let failed = || gateway::message(StatusCode::BAD_GATEWAY, "Internal Server Error");
    match outcome {
        Ok(Outcome::Response(payload)) => gateway::response(&payload).unwrap_or_else(failed),
        // An HTTP API turns Lambda's 429 into this.
        Ok(Outcome::Throttled) => gateway::message(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable"),
        Ok(Outcome::Error(_)) | Err(_) => failed(),
    }
}

/// Lambda's Invoke API. Unlike Lambda, it does not retry an asynchronous invocation that fails.
async fn invoke(
    State(cloud): State<Arc<Cloud>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(function) = cloud.functions.iter().find(|function| function.definition.name == name) else {
        let message = format!("Function not found: {name}");
        return lambda_error(StatusCode::NOT_FOUND, "ResourceNotFoundException", &message);
    };
    let payload = match read(body, PAYLOAD_LIMIT).await {
        Ok(payload) if payload.is_empty() => Bytes::from_static(b"{}"),
        Ok(payload) => payload,
        Err(status) => {
            let message = format!(
                "Request must be smaller than {PAYLOAD_LIMIT} bytes for the InvokeFunction operation"
            );
            return lambda_error(status, "RequestTooLargeException", &message);
        }
    };
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(&payload) {
        let message = format!("Could not parse request body into json: {error}");
        return lambda_error(StatusCode::BAD_REQUEST, "InvalidRequestContentException", &message);
    }
    match headers.get("x-amz-invocation-type").map_or(&b"RequestResponse"[..], |kind| kind.as_bytes()) {
        b"RequestResponse" => {}
        b"Event" => {
            function.invoke(payload);
            return StatusCode::ACCEPTED.into_response();
        }
        _ => {
            let message = "InvocationType must be RequestResponse or Event";
            return lambda_error(StatusCode::BAD_REQUEST, "InvalidParameterValueException", message);
        }
    }
    let executed = [("content-type", "application/json"), ("x-amz-executed-version", "$LATEST")];
    match function.invoke(payload).await {
        Ok(Outcome::Response(payload)) => (executed, payload).into_response(),
        Ok(Outcome::Error(payload)) => {
            (executed, [("x-amz-function-error", "Unhandled")], payload).into_response()
        }
        Ok(Outcome::Throttled) => {
            lambda_error(StatusCode::TOO_MANY_REQUESTS, "TooManyRequestsException", "Rate Exceeded.")
        }
        Err(error) => lambda_error(StatusCode::INTERNAL_SERVER_ERROR, "ServiceException", &error.to_string()),
    }
}

async fn environments(State(cloud): State<Arc<Cloud>>) -> Response {
    let rows: Vec<_> = cloud.functions.iter().flat_map(|function| function.environments()).collect();
    Json(BTreeMap::from([("environments", rows)])).into_response()
}

async fn metrics(State(cloud): State<Arc<Cloud>>) -> Response {
    Json(cloud.metrics.shown()).into_response()
}

async fn operate(State(cloud): State<Arc<Cloud>>) -> String {
    cloud.operate.clone()
}

async fn provider_charges(State(cloud): State<Arc<Cloud>>) -> Response {
    relay(cloud.http.get(format!("{}/charges", cloud.provider.url))).await
}

async fn provider_refunds(State(cloud): State<Arc<Cloud>>) -> Response {
    relay(cloud.http.get(format!("{}/refunds", cloud.provider.url))).await
}

async fn provider_deliver(State(cloud): State<Arc<Cloud>>) -> Response {
    relay(cloud.http.post(format!("{}/deliver", cloud.provider.url))).await
}

/// An outage of the provider: its connections are refused.
async fn provider_away(State(cloud): State<Arc<Cloud>>) -> Response {
    cloud.provider.leave().await;
    Json(json!({ "provider": "away" })).into_response()
}

async fn provider_back(State(cloud): State<Arc<Cloud>>) -> Response {
    match cloud.provider.come_back().await {
        Ok(()) => Json(json!({ "provider": "back" })).into_response(),
        Err(error) => gateway::message(StatusCode::BAD_GATEWAY, &format!("provider: {error}")),
    }
}

/// An outage of the embedded DynamoDB: it fails for functions and operators.
async fn dynamodb_away(State(cloud): State<Arc<Cloud>>) -> Response {
    dynamodb(&cloud, Some(TableFault::Away), "away")
}

async fn dynamodb_back(State(cloud): State<Arc<Cloud>>) -> Response {
    dynamodb(&cloud, None, "back")
}

fn dynamodb(cloud: &Cloud, fault: Option<TableFault>, now: &str) -> Response {
    if !cloud.sees_writes {
        return gateway::message(StatusCode::CONFLICT, "DYNAMODB_ENDPOINT names another DynamoDB");
    }
    cloud.queues.faults.break_table(fault);
    log::note("dynamodb", Level::Warn, now, &[]);
    Json(json!({ "dynamodb": now })).into_response()
}

async fn relay(request: reqwest::RequestBuilder) -> Response {
    let answer = async {
        let answer = request.send().await?;
        let status = answer.status();
        let kind = answer.headers().get(header::CONTENT_TYPE).cloned();
        let mut body = answer.bytes().await?.to_vec();
        // So that a terminal's prompt begins a line of its own.
        body.push(b'\n');
        let mut response = (status, body).into_response();
        if let Some(kind) = kind {
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        Ok::<_, reqwest::Error>(response)
    };
    answer
        .await
        .unwrap_or_else(|error| gateway::message(StatusCode::BAD_GATEWAY, &format!("provider: {error}")))
}

fn lambda_error(status: StatusCode, kind: &'static str, message: &str) -> Response {
    let body =
        json!({ "Type": if status.is_client_error() { "User" } else { "Service" }, "Message": message });
    (status, [("x-amzn-errortype", kind)], Json(body)).into_response()
}
