//! Accepts requests of asynchronous operations, and answers them with 202.

use std::{panic::AssertUnwindSafe, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER},
};
use http_body_util::Full;
use tracing::Instrument;

use super::{
    GuardedBody, Outcome, ProblemType,
    claim::kept,
    classify::is_passing,
    guarded::{By, Guarded},
    problem::BODY_TOO_LONG,
    problem_response::seconds,
    request::Parsed,
    respond::HttpAnswer,
    settings::{Accept, Guard},
    status,
};
use crate::{
    engine::{self, Computed, Replied, SingleTransaction},
    key::RecordKey,
    record::{Admission, Refusal, Says, StateName},
    telemetry,
};

/// The longest body of a request that is accepted. It lies in one item beside its record.
const MAX_ACCEPTED: usize = 300 * 1024;

/// The 202, or the response of what refuses to accept; none if it panicked.
type Reply = Option<Response<Bytes>>;

/// Accepts a request, or answers as a duplicate of it is answered.
pub(super) async fn answer<B: GuardedBody>(
    guard: Guard,
    accept: Option<Accept>,
    request: Request<B>,
) -> HttpAnswer {
    let (parts, parsed) = match guard.parse(request).await {
        Ok(parsed) => parsed,
        Err(problem) => return problem,
    };
    let Parsed { mut request, body, mount } = parsed;
    if body.as_ref().len() > MAX_ACCEPTED && request.admission.refusal().is_none() {
        // If there is a record, it answers: the operation may have been executed at once before.
        let detail =
            format!("A request that is executed later has at most {} KiB", MAX_ACCEPTED / 1024).into();
        let refusal = Refusal { reason: BODY_TOO_LONG, detail, perhaps_in_flight: false };
        request.admission = Admission::Refused(refusal);
    }
    let webhook = guard.settings.webhook.as_ref();
    let of_event = |name: &http::HeaderName| webhook.is_some_and(|webhook| webhook.describes(name));
    let Ok(kept) = kept(&parts, body.as_ref(), of_event) else {
        return guard.problem(ProblemType::NotGuarded);
    };
    let body = Bytes::copy_from_slice(body.as_ref());
    let compute = move |transaction: SingleTransaction| -> BoxFuture<'static, Computed<Reply>> {
        let (accept, parts, body, kept) = (accept.clone(), parts.clone(), body.clone(), kept.clone());
        Box::pin(async move {
            let response = match accept {
                Some(accept) => {
                    let decided = AssertUnwindSafe(async { accept(transaction, parts, body).await });
                    decided.catch_unwind().await.ok()
                }
                None => Some(Response::default()),
            };
            match response {
                Some(response) if response.status().is_success() => Computed::Accepted(kept, Some(response)),
                Some(response) => Computed::Nothing(Some(response)),
                None => {
                    tracing::error!("what accepts a request panicked: nothing is accepted");
                    Computed::Nothing(None)
                }
            }
        })
    };
    let span = telemetry::request_span(&request.key);
    let ran = guard.settings.executor.run_single_transaction(&request, compute).instrument(span).await;
    guard.accepted(ran, &request, &mount)
}

impl Guard {
    fn accepted(
        &self,
        Replied { says, reply }: Replied<Reply>,
        request: &engine::Request,
        mount: &str,
    ) -> HttpAnswer {
        match (says, reply.flatten()) {
            (Says::Own { .. }, Some(reply)) => {
                let mut accepted = self.waiting(&request.key, mount, StateName::Pending, Duration::ZERO);
                let (mut chosen, body) = reply.into_parts();
                if body.is_empty() {
                    // The body is the status document: what is said of none does not describe it.
                    for name in [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LENGTH] {
                        chosen.headers.remove(name);
                    }
                } else {
                    *accepted.body_mut() = Full::new(body);
                    accepted.headers_mut().remove(CONTENT_TYPE);
                }
                accepted.headers_mut().extend(chosen.headers);
                accepted.extensions_mut().insert(Outcome::Completed);
                accepted.extensions_mut().insert(Guarded::of(By::Acceptance));
                accepted
            }
            (Says::Released, Some(reply)) => {
                let (mut parts, body) = reply.into_parts();
                parts.extensions.insert(Outcome::NotExecuted);
                // Nothing is written in either case. But another try may be accepted, as with a handler's refusal of the moment.
                let outcome = if is_passing(parts.status) { Outcome::NotExecuted } else { Outcome::NotBegun };
                parts.extensions.insert(Guarded::executed(outcome));
                Response::from_parts(parts, Full::new(body))
            }
            // What accepts has panicked.
            (Says::Own { .. } | Says::Released, None) => {
                let mut response = self.problem(ProblemType::NotGuarded);
                response.extensions_mut().insert(Guarded::executed(Outcome::NotExecuted));
                response
            }
            (says, _) => self.instead(says, request, mount),
        }
    }

    /// 202, with the status of the operation and its URL.
    pub(super) fn waiting(
        &self,
        key: &RecordKey,
        mount: &str,
        state: StateName,
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
