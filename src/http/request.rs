//! A request as the guard understands it: parsed once, before anything is done.

use http::{Uri, header::CONTENT_TYPE, request::Parts};
use lambda_http::RequestExt;

use super::{
    GuardedBody, LONGEST_BODY, Problem, ProblemType,
    header::{self, KeyHeaderError},
    settings::Guard,
};
use crate::{
    engine::Request,
    fingerprint::{Content, Fingerprints},
    key::{
        RecordKey,
        age::{KeyAgeError, OldestKey},
    },
    time::Timestamp,
};

/// A request, understood.
pub(super) struct Understood<B> {
    pub(super) request: Request,
    pub(super) body: B,
    /// Why its key may not begin an execution. It gets what there is; else this, which sends no client to a new key while the
    /// old one may have done something (T43): settings change, proxies drop headers, records expire.
    pub(super) refusal: Option<Problem>,
}

/// Parses what the guard needs, as the request came.
pub(super) async fn understand<B: GuardedBody>(
    guard: &Guard,
    parts: &Parts,
    body: B,
) -> Result<Understood<B>, Problem> {
    let operation = guard.operation();
    let tenant = (guard.tenant.tenant(parts)).ok_or_else(|| Problem::new(ProblemType::TenantMissing))?;
    let key = guard.settings.profile.key_syntax.key(&parts.headers).map_err(|error| of_header(&error))?;
    let admit =
        |oldest: &OldestKey| oldest.admit(&key, header::timestamp(&parts.headers), guard.world().now()).err();
    let refusal = match header::too_short(&key, operation.shortest_key()) {
        Some(error) => Some(of_header(&error).advice_of(ProblemType::KeyTooOld)),
        None => operation.oldest_key().and_then(admit).map(|error| of_age(&error)),
    };
    let target = target(parts);
    let json = is_json(parts);
    let look = |body: &[u8]| {
        let content = Content { target: &target, json, body };
        Fingerprints::of(operation.name().as_str(), &content, operation.rule(), operation.former_rules())
    };
    let (fingerprints, body) = body.inspect(LONGEST_BODY, look).await.map_err(Problem::new)?;
    let deadline = parts.lambda_context_ref().map(|context| Timestamp::from_millis(context.deadline));
    let key = RecordKey::new(tenant, operation.name().clone(), key);
    let may_begin = refusal.is_none();
    Ok(Understood { request: Request { key, fingerprints, may_begin, deadline }, body, refusal })
}

fn of_header(error: &KeyHeaderError) -> Problem {
    let problem = match error {
        KeyHeaderError::Missing => ProblemType::KeyMissing,
        _ => ProblemType::KeyMalformed,
    };
    Problem::new(problem).detail(error.to_string()).reason(error.reason())
}

fn of_age(error: &KeyAgeError) -> Problem {
    let problem = match error {
        KeyAgeError::TooOld => ProblemType::KeyTooOld,
        _ => ProblemType::KeyMalformed,
    };
    Problem::new(problem).detail(error.to_string()).reason(error.reason()).advice_of(ProblemType::KeyTooOld)
}

fn is_json(parts: &Parts) -> bool {
    let value = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type == "application/json" || media_type.ends_with("+json")
}

/// What is addressed: method, path and query.
///
/// The path as the client sent it, without API Gateway's stage: a router that nests strips its prefix, and with it what
/// tells `/accounts/1/payments` from `/accounts/2/payments`. Query parameters in the order of their names: REST APIs and
/// load balancers hand them over in no order. Those of one name keep theirs.
fn target(parts: &Parts) -> String {
    let uri = original_uri(parts);
    let path = Some(parts.raw_http_path()).filter(|path| !path.is_empty()).unwrap_or_else(|| uri.path());
    let mut parameters: Vec<&str> = uri.query().unwrap_or_default().split('&').collect();
    parameters.sort_by_key(|parameter| parameter.split('=').next());
    format!("{} {path}?{}", parts.method, parameters.join("&"))
}

#[cfg(feature = "axum")]
fn original_uri(parts: &Parts) -> &Uri {
    parts.extensions.get::<::axum::extract::OriginalUri>().map_or(&parts.uri, |original| &original.0)
}

#[cfg(not(feature = "axum"))]
fn original_uri(parts: &Parts) -> &Uri {
    &parts.uri
}
