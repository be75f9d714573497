//! Takes one request from its key to its answer.

use std::{panic::AssertUnwindSafe, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{LOCATION, RETRY_AFTER},
    response,
};
use http_body_util::Full;
use tracing::Instrument;

use super::{
    GuardedBody, IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED, IDEMPOTENT_REPLAYED_BODY, Outcome, Problem,
    ProblemType,
    problem::seconds,
    replay,
    request::{self, Understood},
    settings::Guard,
    status,
};
use crate::{
    engine::{Execution, FinishOutcome, Ownership, Report, ReserveOutcome, SingleTransaction},
    key::RecordKey,
    operation::{ServerErrors, WhileInFlight},
    record::{Answer, UnknownCause},
    telemetry::{self, Count},
};

/// A handler's response and body, or why its outcome is unknown.
pub(super) type Handled = Result<(response::Parts, Bytes), UnknownCause>;

pub(super) type HttpAnswer = Response<Full<Bytes>>;

impl Guard {
    /// Answers one request. Runs `handler` if it owns the key.
    pub(super) async fn answer<B: GuardedBody>(
        self,
        request: Request<B>,
        handler: impl FnOnce(Execution, Request<B>) -> BoxFuture<'static, Handled> + Send,
    ) -> HttpAnswer {
        let (mut parts, Understood { request, body, refusal, mount }) = match self.understand(request).await {
            Ok(understood) => understood,
            Err(problem) => return problem,
        };
        let span = telemetry::request_span(&request.key);
        let answer = async {
            match self.settings.executor.reserve(&request).await {
                ReserveOutcome::Owned(owned) => {
                    let execution = owned.execution().clone();
                    parts.extensions.insert(execution.clone());
                    let handled = handler(execution, Request::from_parts(parts, body));
                    self.execute(owned, handled).await
                }
                found => self.instead(found, &request.key, &mount, refusal),
            }
        };
        answer.instrument(span).await
    }

    /// What the guard needs of a request; as an error, why it is refused.
    pub(super) async fn understand<B: GuardedBody>(
        &self,
        request: Request<B>,
    ) -> Result<(http::request::Parts, Understood<B>), HttpAnswer> {
        let (parts, body) = request.into_parts();
        // A user's own rule or resolver may panic. Nothing is reserved yet.
        let understood = AssertUnwindSafe(request::understand(self, &parts, body)).catch_unwind().await;
        let understood = match understood {
            Ok(Ok(understood)) => understood,
            Ok(Err(problem)) => return Err(self.say(problem, Outcome::NotExecuted)),
            Err(_) => {
                let operation = self.operation().name();
                tracing::error!(%operation, "the tenant resolver or the fingerprint rule panicked: nothing was done");
                return Err(self.say(Problem::new(ProblemType::NotGuarded), Outcome::NotExecuted));
            }
        };
        let key = &understood.request.key;
        let of_this = |outer: &RecordKey| outer == key;
        if parts.extensions.get::<Execution>().is_some_and(|outer| of_this(outer.record_key()))
            || parts.extensions.get::<SingleTransaction>().is_some_and(|outer| of_this(outer.record_key()))
        {
            let operation = self.operation().name();
            tracing::error!(%operation, "two guards of the same operation are nested: remove one");
            return Err(self.say(Problem::new(ProblemType::NotGuarded), Outcome::NotExecuted));
        }
        Ok((parts, understood))
    }

    /// The answer to a request that may not run.
    pub(super) fn instead(
        &self,
        found: ReserveOutcome,
        key: &RecordKey,
        mount: &str,
        refusal: Option<Problem>,
    ) -> HttpAnswer {
        match found {
            ReserveOutcome::Replay(replay) => replay::response(replay, &self.settings.profile),
            ReserveOutcome::InFlight { wait } => self.in_flight(key, mount, wait),
            ReserveOutcome::Mismatch => self.say(Problem::new(ProblemType::KeyReused), Outcome::Completed),
            ReserveOutcome::Unknown { wait } => {
                self.come_again(Problem::new(ProblemType::OutcomeUnknown), wait, Outcome::PerhapsExecuted)
            }
            ReserveOutcome::MayNotBegin => {
                let refusal = refusal.unwrap_or_else(|| Problem::new(ProblemType::KeyTooOld));
                self.say(refusal, Outcome::NotExecuted)
            }
            // Owned is answered before.
            ReserveOutcome::TooLate | ReserveOutcome::Unavailable | ReserveOutcome::Owned(_) => {
                self.unavailable(ProblemType::StoreUnavailable)
            }
            ReserveOutcome::Unreadable => self.unavailable(ProblemType::RecordUnreadable),
        }
    }

    /// Runs the handler and records how it ended.
    async fn execute(&self, mut owned: Ownership, handled: BoxFuture<'static, Handled>) -> HttpAnswer {
        let execution = owned.execution().clone();
        let (report, answer) = match AssertUnwindSafe(handled).catch_unwind().await {
            Ok(Ok((mut parts, body))) => {
                for name in [IDEMPOTENT_REPLAYED, IDEMPOTENT_REPLAYED_BODY, IDEMPOTENCY_EXPIRES] {
                    // Set by an inner service, about its own answer.
                    parts.headers.remove(name);
                }
                owned.answered(parts.status.as_u16());
                let report = self.report(&execution, &parts, &body);
                if let Some(outcome @ Outcome::NotBegun) = parts.extensions.get_mut() {
                    // For a guard around this one, whose own operation may have begun.
                    *outcome = Outcome::NotExecuted;
                }
                (report, Some((parts, body)))
            }
            Ok(Err(cause)) => (Report::PerhapsExecuted(cause), None),
            Err(_) => {
                // The panic hook has printed the panic's message; nobody else gets it.
                tracing::error!("the handler panicked");
                (Report::PerhapsExecuted(UnknownCause::Panicked), None)
            }
        };
        let not_begun = matches!(report, Report::NotBegun);
        let expires_at = match self.settings.executor.finish(owned, report).await {
            FinishOutcome::Superseded(kept) => return replay::response(kept, &self.settings.profile),
            FinishOutcome::Unknown => {
                let problem = Problem::new(ProblemType::OutcomeUnknown);
                return self.come_again(problem, Duration::ZERO, Outcome::PerhapsExecuted);
            }
            FinishOutcome::AnsweredElsewhere => {
                let problem = Problem::new(ProblemType::AnsweredElsewhere);
                return self.come_again(problem, Duration::ZERO, Outcome::PerhapsExecuted);
            }
            FinishOutcome::Refused { answer, expires_at } => return replay::first(answer, expires_at),
            FinishOutcome::NotCommitted => return self.unavailable(ProblemType::StoreUnavailable),
            FinishOutcome::Written { expires_at } => expires_at,
            // Its key is not free yet: a corrected request would be refused as a mismatch.
            FinishOutcome::Deferred | FinishOutcome::Unwritten if not_begun => {
                return self.unavailable(ProblemType::StoreUnavailable);
            }
            FinishOutcome::Fenced | FinishOutcome::Deferred | FinishOutcome::Unwritten => None,
        };
        let Some((mut parts, body)) = answer else {
            return self.broken();
        };
        if let Some(expires_at) = expires_at {
            replay::tell_expiry(&mut parts.headers, expires_at);
        }
        Response::from_parts(parts, Full::new(body))
    }

    fn report(&self, execution: &Execution, parts: &response::Parts, body: &Bytes) -> Report {
        match self.outcome(execution, parts, body) {
            Outcome::Completed => {
                let headers = replay::kept_headers(&parts.headers, self.operation().kept_headers());
                Report::Completed(Answer::http(parts.status.as_u16(), headers, body.clone()))
            }
            Outcome::NotExecuted => Report::NotExecuted,
            Outcome::NotBegun => Report::NotBegun,
            Outcome::PerhapsExecuted => Report::PerhapsExecuted(UnknownCause::HandlerFailed),
        }
    }

    /// What a response says about its effect.
    fn outcome(&self, execution: &Execution, parts: &response::Parts, body: &Bytes) -> Outcome {
        if let Some(said) = parts.extensions.get::<Outcome>() {
            return *said;
        }
        if inconclusive(parts.status, body) {
            let status = parts.status.as_u16();
            tracing::warn!(
                status,
                "this status does not say whether the operation was executed, so the outcome is unknown: move whatever returns it \
                 outside the guard (in axum: route_layer), or put an Outcome into its response"
            );
            Count::SaysNothing.add(execution.operation());
            return Outcome::PerhapsExecuted;
        }
        if !parts.status.is_server_error() {
            return Outcome::Completed;
        }
        match self.operation().chosen_server_errors().unwrap_or(self.settings.profile.server_errors) {
            ServerErrors::Reconcile => Outcome::PerhapsExecuted,
            ServerErrors::Keep => Outcome::Completed,
            ServerErrors::RetryFresh => Outcome::NotExecuted,
        }
    }

    /// A problem, marked with its outcome for a guard around this one, which must not keep this refusal as its answer.
    pub(super) fn say(&self, problem: Problem, outcome: Outcome) -> HttpAnswer {
        let mut response = problem.into_response(&self.settings.profile);
        response.extensions_mut().insert(outcome);
        response
    }

    /// The same, with a `Retry-After`.
    pub(super) fn come_again(&self, problem: Problem, wait: Duration, outcome: Outcome) -> HttpAnswer {
        self.say(problem.retry_after(self.operation().retry_after_of(wait)), outcome)
    }

    fn in_flight(&self, key: &RecordKey, mount: &str, wait: Duration) -> HttpAnswer {
        if self.operation().in_flight() != WhileInFlight::Accept {
            return self.come_again(Problem::new(ProblemType::InFlight), wait, Outcome::NotExecuted);
        }
        let mut accepted = status::in_progress(self.operation().name());
        *accepted.status_mut() = StatusCode::ACCEPTED;
        accepted.extensions_mut().insert(Outcome::NotExecuted);
        accepted.headers_mut().insert(RETRY_AFTER, seconds(self.operation().retry_after_of(wait)));
        let url = status::url(&self.settings.status_path, key);
        if let Ok(url) = HeaderValue::try_from(format!("{mount}{url}")) {
            accepted.headers_mut().insert(LOCATION, url);
        }
        accepted
    }

    pub(super) fn unavailable(&self, problem: ProblemType) -> HttpAnswer {
        self.come_again(Problem::new(problem), Duration::ZERO, Outcome::NotExecuted)
    }

    /// The answer if the handler broke.
    pub(super) fn broken(&self) -> HttpAnswer {
        let problem = Problem::new(ProblemType::OutcomeUnknown).status(StatusCode::INTERNAL_SERVER_ERROR);
        self.come_again(problem, Duration::ZERO, Outcome::PerhapsExecuted)
    }
}

/// Whether a status is about the caller, the moment or the route, and says nothing about the operation (T44). A time-out
/// layer that answers 408 has dropped the handler midway.
pub(super) fn inconclusive(status: StatusCode, body: &Bytes) -> bool {
    match status {
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::PROXY_AUTHENTICATION_REQUIRED
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::MISDIRECTED_REQUEST
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS => true,
        // A router's own 404 or 405 has no body; a handler's says what was not found, or can no longer be done.
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => body.is_empty(),
        _ => false,
    }
}
