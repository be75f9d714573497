//! The status of an operation, for clients that poll.

use bytes::Bytes;
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use http_body_util::Full;
use serde::Serialize;

use super::{Problem, ProblemType, Profile, date::http_date};
use crate::{
    key::{IdempotencyKey, OperationName, RecordKey},
    record::{Head, State},
    store::{Store, StoreErrorKind},
    time::Timestamp,
    time_budget::DEFAULT_RETRY_AFTER,
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    operation: &'a str,
    state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

/// Answers `GET /operations/{key}?operation={name}` for the caller whose tenant is in `key`.
///
/// 200 with the state; 404 for an operation never seen (and for another tenant's, which is as unknown); 410 for one past
/// its time; 503 if the store does not answer. Costs one consistent read.
pub async fn operation_status(
    store: &dyn Store,
    key: &RecordKey,
    now: Timestamp,
    profile: &Profile,
) -> Response<Full<Bytes>> {
    let problem = |problem| Problem::new(problem).into_response(profile);
    let record = match store.load(key).await {
        Ok(Some(record)) => record,
        Ok(None) => return problem(ProblemType::OperationNotFound),
        Err(error) => {
            let (key, operation, kind) = (key.hash(), key.operation(), error.kind());
            tracing::error!(%key, %operation, ?kind, "the status of an operation could not be read");
            let unreadable = kind == StoreErrorKind::Unreadable;
            let kind = if unreadable { ProblemType::RecordUnreadable } else { ProblemType::StoreUnavailable };
            return Problem::new(kind).retry_after(DEFAULT_RETRY_AFTER).into_response(profile);
        }
    };
    if record.expired(now) {
        return problem(ProblemType::OperationExpired);
    }
    let response_status = match &record.state {
        State::Completed { answer, .. } => match &answer.head {
            Head::Abandoned => Some(profile.status_of(ProblemType::Abandoned).as_u16()),
            head => head.status(),
        },
        _ => None,
    };
    json(&Status {
        operation: record.key.operation().as_str(),
        state: record.state.name(),
        created_at: Some(http_date(record.created_at)),
        attempts: Some(record.attempts),
        response_status,
        expires_at: record.state.expires_at().map(http_date),
    })
}

/// What a duplicate of an accepted operation is told.
pub(super) fn in_progress(operation: &OperationName) -> Response<Full<Bytes>> {
    json(&Status {
        operation: operation.as_str(),
        state: State::IN_PROGRESS,
        created_at: None,
        attempts: None,
        response_status: None,
        expires_at: None,
    })
}

/// Where the status of an operation is: `<path>/<key>?operation=<name>`, the key percent-encoded (RFC 3986).
pub(super) fn url(path: &str, operation: &OperationName, key: &IdempotencyKey) -> String {
    let mut url = format!("{path}/");
    for byte in key.as_str().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => url.push(byte.into()),
            other => url.push_str(&format!("%{other:02X}")),
        }
    }
    url.push_str("?operation=");
    url.push_str(operation.as_str());
    url
}

fn json(status: &Status<'_>) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(status).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // It changes by itself.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
