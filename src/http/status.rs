//! The status of an operation, for clients that poll.

use bytes::Bytes;
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
    request::Parts,
};
use http_body_util::Full;
use serde::Serialize;

use super::{
    Problem, ProblemType, Profile,
    problem_response::seconds,
    replay::{self, http_date},
    target,
};
use crate::{
    engine::{Replay, body_in},
    key::{IdempotencyKey, OperationName, RecordKey, Scope, Tenant},
    record::{Answer, Head, State, StateName},
    store::{Store, StoreErrorKind},
    telemetry::{self, LOOK_UP_EMPTY},
    time::Timestamp,
    time_budget::{DEFAULT_RETRY_AFTER, MAX_RETRY_AFTER},
};

#[derive(Default, Serialize)]
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

/// Parses which record of `tenant` a client asks about: `GET <path>?key=<key>&operation=<name>`, or `GET
/// <path>/<key>?operation=<name>`. `default` is the operation if the request names none. `None` if the key or the operation
/// is invalid: such a record was never seen ([`ProblemType::OperationNotFound`]).
///
/// `path` is where your API serves statuses, as in [`Idempotency::status_path`](super::Idempotency::status_path). The key
/// is taken from the event, so that no client gets another key's status: HTTP APIs decode `%23` and `%2F`, and a router
/// then sees the path end at the `#`. They are reported to cut it at an encoded `?`. So the guard's URLs have the first form,
/// and yours should too.
///
/// ```
/// use http::Request;
/// use lambda_idempotency::{http::operation_key, key::{OperationName, Tenant}};
///
/// let (request, ()) = Request::get("/operations?key=order%231").body(()).unwrap().into_parts();
/// let tenant = Tenant::parse("acme").unwrap();
/// let key = operation_key(&request, tenant, "/operations", &OperationName::parse("pay").unwrap()).unwrap();
/// assert_eq!(key.idempotency_key().as_str(), "order#1");
/// ```
pub fn operation_key(
    request: &Parts,
    tenant: Tenant,
    path: &str,
    default: &OperationName,
) -> Option<RecordKey> {
    let query = target::query(request);
    // A repeated parameter is invalid: gateways do not agree on which one counts.
    let parameter = |wanted: &str| {
        let mut values = query.iter().filter(|(name, _)| name == wanted).map(|(_, value)| &**value);
        match (values.next(), values.next()) {
            (value, None) => Some(value),
            _ => None,
        }
    };
    let operation = match parameter("operation")? {
        Some(name) => OperationName::parse(name).ok()?,
        None => default.clone(),
    };
    let called = target::path(request);
    let in_path = called.strip_prefix(path.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
    let key = match (parameter("key")?, in_path) {
        (Some(key), None | Some(b"")) => IdempotencyKey::parse(key).ok()?,
        (None, Some(key)) => IdempotencyKey::parse(std::str::from_utf8(key).ok()?).ok()?,
        _ => return None,
    };
    let record = RecordKey::new(tenant, operation, key);
    match parameter("scope")? {
        Some(scope) => Some(record.within(Scope::parse(scope)?)),
        None => Some(record),
    }
}

/// Answers a client that polls the status of an operation: see [`operation_key`].
///
/// Returns 200 with the state, and when to ask again if it may change. An [asynchronous](crate::Operation::asynchronous) operation that has
/// ended returns its answer instead. Returns 404 for an operation that was never seen (another
/// tenant's included) or was refused before it began; 410 for an expired one; 503 if the store does not answer or the
/// record cannot be read. Costs one consistent read.
///
/// [`LookUps`](super::LookUps) bounds how often a tenant may ask. If an answer may be large, pass it to [`deliverable`](super::deliverable).
pub async fn operation_status(
    store: &dyn Store,
    key: &RecordKey,
    now: Timestamp,
    profile: &Profile,
) -> Response<Full<Bytes>> {
    let problem = |problem| Problem::new(problem).into_response(profile);
    let record = match store.load(key).await {
        Ok(Some(record)) => record,
        Ok(None) => {
            telemetry::request_span(key).in_scope(|| telemetry::count(LOOK_UP_EMPTY));
            return problem(ProblemType::OperationNotFound);
        }
        Err(error) => {
            let kind = error.kind();
            telemetry::record_span(key)
                .in_scope(|| tracing::error!(?kind, "the status of an operation could not be read"));
            let unreadable = kind == StoreErrorKind::Unreadable;
            let kind = if unreadable { ProblemType::RecordUnreadable } else { ProblemType::StoreUnavailable };
            return problem(kind);
        }
    };
    if record.is_not_begun() {
        return problem(ProblemType::OperationNotFound);
    }
    if record.expired(now) {
        return problem(ProblemType::OperationExpired);
    }
    // Its client has only got the 202.
    if let (Some(_), State::Completed { answer, completed_at, expires_at, .. }) =
        (record.accepted, &record.state)
    {
        return match body_in(store, key, answer).await {
            Ok(body) => {
                let (body_omitted, head) = (body.is_none(), answer.head.clone());
                let answer = Answer { head, body: body.unwrap_or_default() };
                let (first_at, expires_at) = (*completed_at, *expires_at);
                replay::response(Replay { answer, body_omitted, first_at, expires_at }, profile)
            }
            Err(_) => problem(ProblemType::StoreUnavailable),
        };
    }
    let response_status = match &record.state {
        State::Completed { answer, .. } => match &answer.head {
            Head::Abandoned => Some(profile.status_of(ProblemType::Abandoned).as_u16()),
            head => head.status(),
        },
        _ => None,
    };
    let mut response = json(&Status {
        operation: record.key.operation().as_str(),
        state: record.state.name(),
        created_at: Some(http_date(record.created_at)),
        attempts: Some(record.attempts),
        response_status,
        expires_at: record.state.expires_at().map(http_date),
    });
    if record.state.settled_by().is_none() {
        let wait = record.wait(now).clamp(DEFAULT_RETRY_AFTER, MAX_RETRY_AFTER);
        response.headers_mut().insert(RETRY_AFTER, seconds(wait));
    }
    response
}

/// The status document that a duplicate of an operation in flight gets.
pub(super) fn in_flight(operation: &OperationName, state: StateName) -> Response<Full<Bytes>> {
    json(&Status { operation: operation.as_str(), state: state.name(), ..Status::default() })
}

/// The URL of an operation's status. The key is in the query, which every gateway passes on as it was sent, or decoded once.
pub(super) fn url(path: &str, key: &RecordKey) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("key", key.idempotency_key().as_str());
    query.append_pair("operation", key.operation().as_str());
    if let Some(scope) = key.scope() {
        query.append_pair("scope", &scope.to_string());
    }
    format!("{path}?{}", query.finish())
}

fn json(status: &Status<'_>) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(status).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // The status may change at any time.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
