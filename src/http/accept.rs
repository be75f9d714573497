//! Requests of asynchronous operations: what is kept of one for its worker, and the 202 that its client gets.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_TYPE, LOCATION, RETRY_AFTER},
    request::Parts,
};
use http_body_util::Full;
use lambda_http::{
    RequestExt,
    aws_lambda_events::apigw::{ApiGatewayProxyRequestContext, ApiGatewayV2httpRequestContext},
    request::RequestContext,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::Instrument;

use super::{
    GuardedBody, Outcome, Problem, ProblemType,
    ended::{Became, Ended},
    problem_response::seconds,
    request::Parsed,
    respond::HttpAnswer,
    settings::Guard,
    status,
    target::original_uri,
};
use crate::{
    engine::{Computed, SingleTransaction, SingleTransactionOutcome},
    fingerprint::{Fingerprint, Fingerprints},
    key::RecordKey,
    record::{BodyId, State},
    telemetry,
};

/// The longest body of a request that is accepted. It lies in one item beside its record.
pub(super) const MAX_ACCEPTED: usize = 300 * 1024;

/// The request headers that a worker gets: those that say what the body is and what the client wants. Never credentials.
const HEADERS: [HeaderName; 4] = [CONTENT_TYPE, CONTENT_ENCODING, ACCEPT, ACCEPT_LANGUAGE];

/// Decides whether a request is accepted.
pub(super) type Accept =
    Arc<dyn Fn(SingleTransaction, Parts, Bytes) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// The work that the worker of a request claims. Only this crate makes one.
#[derive(Clone, derive_more::Debug)]
pub(crate) struct Claim {
    pub(crate) key: RecordKey,
    /// The body item with the request.
    pub(crate) request: BodyId,
    pub(crate) fingerprints: Fingerprints,
}

/// What is kept of a request, besides its body.
#[derive(Serialize, Deserialize)]
struct Kept {
    method: String,
    uri: String,
    headers: Vec<(String, String)>,
    /// What the authorizer verified, by the payload format of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rest: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http: Option<Value>,
    fingerprint: String,
    fingerprint_rule: u32,
}

/// Separates the body from what is before it, which is JSON in one line.
const SEPARATOR: u8 = b'\n';

impl Kept {
    fn of(parts: &Parts, fingerprint: &Fingerprint) -> Self {
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        };
        let kept = parts.headers.iter().filter(|(name, _)| HEADERS.contains(name));
        let authorizer = |verified: serde_json::Result<Value>| verified.ok();
        let (rest, http) = match parts.request_context_ref() {
            Some(RequestContext::ApiGatewayV1(context)) => {
                (authorizer(serde_json::to_value(&context.authorizer)), None)
            }
            Some(RequestContext::ApiGatewayV2(context)) => {
                (None, authorizer(serde_json::to_value(&context.authorizer)))
            }
            _ => (None, None),
        };
        Self {
            method: parts.method.to_string(),
            uri: original_uri(parts).to_string(),
            headers: kept.filter_map(text).collect(),
            rest,
            http,
            fingerprint: hex::encode(fingerprint.digest()),
            fingerprint_rule: fingerprint.rule(),
        }
    }

    /// What a resolver of the tenant, or a handler, reads of the event.
    fn context(&self) -> serde_json::Result<Option<RequestContext>> {
        if let Some(verified) = &self.http {
            let mut context = ApiGatewayV2httpRequestContext::default();
            context.authorizer = serde_json::from_value(verified.clone())?;
            return Ok(Some(RequestContext::ApiGatewayV2(context)));
        }
        let Some(verified) = &self.rest else { return Ok(None) };
        let mut context = ApiGatewayProxyRequestContext::default();
        context.authorizer = serde_json::from_value(verified.clone())?;
        Ok(Some(RequestContext::ApiGatewayV1(context)))
    }
}

/// The request as it is kept: what is before the body, in one line, and the body.
fn kept(parts: &Parts, fingerprint: &Fingerprint, body: &[u8]) -> serde_json::Result<Bytes> {
    let mut kept = serde_json::to_vec(&Kept::of(parts, fingerprint))?;
    kept.push(SEPARATOR);
    kept.extend_from_slice(body);
    Ok(kept.into())
}

/// The request that was kept, with the claim of its record; `None` if it is not as this version keeps it.
#[cfg(feature = "lambda")]
pub(crate) fn read(key: RecordKey, request: BodyId, kept: &Bytes) -> Option<Request<Bytes>> {
    let end = kept.iter().position(|byte| *byte == SEPARATOR)?;
    let read: Kept = serde_json::from_slice(&kept[..end]).ok()?;
    let mut headers = HeaderMap::new();
    for (name, value) in &read.headers {
        headers.append(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
    }
    let digest: [u8; 32] = hex::decode(&read.fingerprint).ok()?.try_into().ok()?;
    let fingerprints = Fingerprints::kept(Fingerprint::new(read.fingerprint_rule, digest));
    let mut built = Request::new(kept.slice(end + 1..));
    *built.method_mut() = Method::try_from(&*read.method).ok()?;
    *built.uri_mut() = Uri::try_from(&*read.uri).ok()?;
    *built.headers_mut() = headers;
    if let Some(context) = read.context().ok()? {
        built.extensions_mut().insert(context);
    }
    built.extensions_mut().insert(Claim { key, request, fingerprints });
    Some(built)
}

/// Accepts a request, or answers as a duplicate of it is answered.
pub(super) async fn answer<B: GuardedBody>(guard: Guard, request: Request<B>) -> HttpAnswer {
    let (parts, parsed) = match guard.parse(request).await {
        Ok(parsed) => parsed,
        Err(problem) => return problem,
    };
    let Parsed { mut request, body, mut refusal, mount } = parsed;
    if body.as_ref().len() > MAX_ACCEPTED && request.may_begin {
        // If there is a record, it answers: the operation may have been executed at once before.
        request.may_begin = false;
        let detail = format!("A request that is executed later has at most {} KiB.", MAX_ACCEPTED / 1024);
        refusal = Some(Problem { detail: Some(detail.into()), ..Problem::new(ProblemType::BodyTooLong) });
    }
    let Ok(kept) = kept(&parts, &request.fingerprints.current(), body.as_ref()) else {
        return guard.problem(ProblemType::NotGuarded);
    };
    let body = Bytes::copy_from_slice(body.as_ref());
    let accept = guard.settings.accept.clone();
    let compute = move |transaction: SingleTransaction| -> BoxFuture<'static, Computed<Response<Bytes>>> {
        let (accept, parts, body, kept) = (accept.clone(), parts.clone(), body.clone(), kept.clone());
        Box::pin(async move {
            let response = match accept {
                Some(accept) => {
                    let decided = AssertUnwindSafe(async { accept(transaction, parts, body).await });
                    match decided.catch_unwind().await {
                        Ok(response) => response,
                        Err(_) => {
                            tracing::error!("what accepts a request panicked: nothing is accepted");
                            let failed = Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR);
                            failed.body(Bytes::new()).unwrap_or_default()
                        }
                    }
                }
                None => {
                    Response::builder().status(StatusCode::ACCEPTED).body(Bytes::new()).unwrap_or_default()
                }
            };
            match response.status().is_success() {
                true => Computed::Accepted(kept, response),
                false => Computed::Nothing(response),
            }
        })
    };
    let span = telemetry::request_span(&request.key);
    let outcome = guard.settings.executor.run_single_transaction(&request, compute).instrument(span).await;
    guard.accepted(outcome, &request.key, &mount, refusal)
}

impl Guard {
    fn accepted(
        &self,
        outcome: SingleTransactionOutcome<Response<Bytes>>,
        key: &RecordKey,
        mount: &str,
        refusal: Option<Problem>,
    ) -> HttpAnswer {
        use SingleTransactionOutcome::{Committed, Found, Nothing, Refused, Unconfirmed};
        match outcome {
            Committed { reply, .. } => {
                let mut accepted = self.waiting(key, mount, State::PENDING, Duration::ZERO);
                let (chosen, body) = reply.into_parts();
                if !body.is_empty() {
                    *accepted.body_mut() = Full::new(body);
                    accepted.headers_mut().remove(CONTENT_TYPE);
                }
                for name in [CONTENT_TYPE, LOCATION, RETRY_AFTER] {
                    if let Some(value) = chosen.headers.get(&name) {
                        accepted.headers_mut().insert(name, value.clone());
                    }
                }
                accepted.extensions_mut().insert(Outcome::Completed);
                accepted.extensions_mut().insert(Ended::from(Became::Kept));
                accepted
            }
            Nothing(reply)
                if reply.status() == StatusCode::INTERNAL_SERVER_ERROR && reply.body().is_empty() =>
            {
                self.problem(ProblemType::NotGuarded)
            }
            Nothing(reply) => {
                let (mut parts, body) = reply.into_parts();
                parts.extensions.insert(Outcome::NotExecuted);
                parts.extensions.insert(Ended::from(Became::NotBegun));
                Response::from_parts(parts, Full::new(body))
            }
            Refused { answer, expires_at } => super::replay::first(answer, expires_at),
            Found(found) => self.instead(found, key, mount, refusal),
            Unconfirmed => self.unknown(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    /// 202, with the status of the operation and its URL.
    pub(super) fn waiting(
        &self,
        key: &RecordKey,
        mount: &str,
        state: &'static str,
        wait: Duration,
    ) -> HttpAnswer {
        let mut accepted = status::in_flight(self.operation().name(), state);
        *accepted.status_mut() = StatusCode::ACCEPTED;
        accepted.extensions_mut().insert(Outcome::NotExecuted);
        accepted.headers_mut().insert(RETRY_AFTER, seconds(self.operation().retry_after_of(wait)));
        let url = status::url(&self.settings.status_path, key);
        if let Ok(url) = HeaderValue::try_from(format!("{mount}{url}")) {
            accepted.headers_mut().insert(LOCATION, url);
        }
        accepted
    }
}
