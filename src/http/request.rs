//! A request as the guard understands it: parsed once, before anything is done.

use http::{StatusCode, header::CONTENT_TYPE, request::Parts};
use lambda_http::RequestExt;

use super::{
    BodyError, GuardedBody, KeyHeaderError, LONGEST_BODY, Problem, ProblemType, TenantResolver, layer::Guard,
};
use crate::{
    executor::Request,
    fingerprint::{Content, Fingerprints},
    key::RecordKey,
    time::Timestamp,
};

/// Parses what the guard needs, as the request came (T24).
pub(super) async fn understand<S, T: TenantResolver, B: GuardedBody>(
    guard: &Guard<S, T>,
    parts: &Parts,
    body: B,
) -> Result<(Request, B), Problem> {
    let operation = guard.operation();
    let tenant = (guard.tenant().tenant(parts))
        .ok_or_else(|| Problem::new(ProblemType::TenantMissing, StatusCode::UNAUTHORIZED))?;
    let key = guard.profile().key_syntax.key(&parts.headers, operation.shortest_key()).map_err(|error| {
        let problem = match error {
            KeyHeaderError::Missing => ProblemType::KeyMissing,
            _ => ProblemType::KeyMalformed,
        };
        Problem::new(problem, StatusCode::BAD_REQUEST).detail(error.to_string()).reason(error.reason())
    })?;
    let target = format!("{} {}", parts.method, parts.uri.path_and_query().map_or("/", |path| path.as_str()));
    let json = is_json(parts);
    let look = |body: &[u8]| {
        let content = Content { target: &target, json, body };
        Fingerprints::of(operation.name().as_str(), &content, operation.rule(), operation.former_rules())
    };
    let (fingerprints, body) = body.inspect(LONGEST_BODY, look).await.map_err(|error| match error {
        BodyError::TooLong(_) => Problem::new(ProblemType::BodyTooLong, StatusCode::PAYLOAD_TOO_LARGE),
        BodyError::Broken => Problem::new(ProblemType::BodyUnreadable, StatusCode::BAD_REQUEST),
    })?;
    let deadline = parts.lambda_context_ref().map(|context| Timestamp::from_millis(context.deadline));
    let key = RecordKey::new(tenant, operation.name().clone(), key);
    Ok((Request { key, fingerprints, deadline }, body))
}

fn is_json(parts: &Parts) -> bool {
    let value = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type == "application/json" || media_type.ends_with("+json")
}
