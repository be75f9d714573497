//! A contract of one's own, as agents' APIs have it: `cargo run --example own_words`.
//!
//! As in the Ad Context Protocol (AdCP), the key is a member of the body, a replay has `replayed: true` in its body, and all errors have one
//! shape: those of the guard, of axum's extractors and of the handler.

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{FromRequest, Request, rejection::JsonRejection},
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::post,
};
use lambda_idempotency::{
    Idempotency, KeyFrom, MemoryStore, NotBegun, Operation, SingleTenant,
    fingerprint::FingerprintRule,
    http::{Guarded, OrNotBegun, ProblemType, Profile},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tower::ServiceExt;

/// The one shape of errors.
fn error(code: &str, message: &str) -> String {
    json!({ "adcp_error": { "code": code, "message": message } }).to_string()
}

/// The guard's problems in the protocol's words. The response has its status and its headers, such as `Retry-After`.
fn contract() -> Profile {
    Profile::custom(|problem, mut response| {
        let code = match problem.problem_type() {
            ProblemType::KeyReused => "IDEMPOTENCY_CONFLICT",
            ProblemType::KeyTooOld | ProblemType::OperationExpired => "IDEMPOTENCY_EXPIRED",
            ProblemType::KeyMissing | ProblemType::KeyMalformed => "INVALID_REQUEST",
            _ => "SERVICE_UNAVAILABLE",
        };
        *response.body_mut() = error(code, &problem.message()).into();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    })
    .status(ProblemType::KeyReused, StatusCode::CONFLICT)
    .key_from(KeyFrom::body("/idempotency_key"))
}

#[derive(Deserialize)]
struct Buy {
    budget: u64,
}

/// An error of an extractor, or of the handler.
struct Refused(StatusCode, String);

impl From<JsonRejection> for Refused {
    fn from(rejection: JsonRejection) -> Self {
        Self(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, [(CONTENT_TYPE, "application/json")], error("INVALID_REQUEST", &self.1)).into_response()
    }
}

/// `Json`, with its errors in that shape.
struct Checked<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Checked<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let Json(value) = Json::from_request(request, state).await?;
        Ok(Self(value))
    }
}

async fn create(OrNotBegun(Checked(buy)): OrNotBegun<Checked<Buy>>) -> Response {
    if buy.budget == 0 {
        // Nothing was done: a corrected request may have the same key.
        return NotBegun(Refused(StatusCode::BAD_REQUEST, "the budget is 0".to_owned())).into_response();
    }
    Json(json!({ "media_buy_id": "mb-1", "budget": buy.budget })).into_response()
}

/// Says in its body that an answer is a replay: outside of the guard, so that it is not kept.
async fn say_replayed(response: Response) -> Response {
    let is_replay = |guarded: &Guarded| guarded.how().is_some_and(|how| how.is_replay());
    if !response.extensions().get().is_some_and(is_replay) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let body = match serde_json::from_slice(&body) {
        Ok(Value::Object(mut answer)) => {
            answer.insert("replayed".to_owned(), true.into());
            parts.headers.remove("content-length");
            Value::from(answer).to_string().into()
        }
        _ => body,
    };
    Response::from_parts(parts, Body::from(body))
}

fn app() -> Router {
    // The key does not count: a retry with the same one is the same request.
    let operation =
        Operation::new("create-media-buy").fingerprint(FingerprintRule::new().leave_out("/idempotency_key"));
    let guard = Idempotency::new(MemoryStore::new(), operation)
        .tenant(SingleTenant::new("buyer"))
        .profile(contract());
    let route = post(create).route_layer(guard).route_layer(map_response(say_replayed));
    Router::new().route("/media-buys", route)
}

async fn send(app: &Router, body: &str) -> (StatusCode, String) {
    let request = Request::post("/media-buys")
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_owned()));
    let response = app.clone().oneshot(request.expect("a request")).await.expect("the router answers");
    let (status, body) = (response.status(), to_bytes(response.into_body(), usize::MAX).await);
    (status, String::from_utf8_lossy(&body.expect("a body")).into_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let app = app();
    for body in [
        r#"{"idempotency_key":"k-1","budget":0}"#,
        r#"{"idempotency_key":"k-1","budget":100}"#,
        r#"{"idempotency_key":"k-1","budget":100}"#,
        r#"{"idempotency_key":"k-1","budget":200}"#,
        r#"{"idempotency_key":"k-2","budget":"many"}"#,
        r#"{"idempotency_key":17,"budget":100}"#,
        r#"{"budget":100}"#,
    ] {
        let (status, answer) = send(&app, body).await;
        println!("{body}\n  {}: {answer}", status.as_u16());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn code(app: &Router, body: &str) -> (u16, String) {
        let (status, body) = send(app, body).await;
        let body: Value = serde_json::from_str(&body).expect("each error is JSON");
        (status.as_u16(), body["adcp_error"]["code"].as_str().unwrap_or_default().to_owned())
    }

    #[tokio::test]
    async fn a_replay_says_so_in_its_body() {
        let app = app();
        let buy = r#"{"idempotency_key":"k-1","budget":100}"#;
        let first = send(&app, buy).await;
        assert_eq!(first, (StatusCode::OK, r#"{"budget":100,"media_buy_id":"mb-1"}"#.to_owned()));
        let replay = send(&app, buy).await;
        let said = r#"{"budget":100,"media_buy_id":"mb-1","replayed":true}"#;
        assert_eq!(replay, (StatusCode::OK, said.to_owned()));
    }

    #[tokio::test]
    async fn all_errors_have_one_shape() {
        let app = app();
        let refused = |code: &str| (400, code.to_owned());
        assert_eq!(code(&app, r#"{"budget":1}"#).await, refused("INVALID_REQUEST"));
        assert_eq!(code(&app, r#"{"idempotency_key":17,"budget":1}"#).await, refused("INVALID_REQUEST"));
        assert_eq!(code(&app, r#"{"idempotency_key":"k","budget":0}"#).await, refused("INVALID_REQUEST"));
        let wrong = code(&app, r#"{"idempotency_key":"k","budget":"many"}"#).await;
        assert_eq!(wrong, (422, "INVALID_REQUEST".to_owned()));
        // Neither has used the key.
        assert_eq!(code(&app, r#"{"idempotency_key":"k","budget":1}"#).await, (200, String::new()));
        let reused = code(&app, r#"{"idempotency_key":"k","budget":2}"#).await;
        assert_eq!(reused, (409, "IDEMPOTENCY_CONFLICT".to_owned()));
    }
}
