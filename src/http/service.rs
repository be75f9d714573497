//! The guard at work: one request from its key to its answer.

use std::{
    fmt, mem,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{LOCATION, RETRY_AFTER},
    response,
};
use http_body::Body;
use http_body_util::{BodyExt, Either, Full, Limited};
use tracing::Instrument;

use super::{
    GuardedBody, Idempotency, LONGEST_BODY, Problem, ProblemType, TenantResolver, problem::seconds, replay,
    request, status,
};
use crate::{
    executor::{Ended, Ending, Execution, Owned, Reserved},
    key::IdempotencyKey,
    policy::{ServerErrors, WhileInFlight},
    record::UnknownCause,
    store::Store,
};

/// How long a handler's response body may take where no deadline says it.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// What of an invocation's time is left for writing down that a body was lost.
const WRITING_TIME: Duration = Duration::from_secs(2);

/// The furthest that a client is sent away while an outcome is being found out.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);

/// What a handler says of its effect, where the status code does not say it: put it into the response's extensions.
///
/// ```
/// use axum::{Extension, http::StatusCode, response::IntoResponse};
/// use lambda_idempotency::http::Outcome;
///
/// /// The connection was refused: the charge certainly did not happen.
/// fn provider_is_away() -> impl IntoResponse {
///     (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted), "try again")
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The response is the operation's answer, whatever its status.
    Completed,
    /// Certainly nothing was done: the key is released, a retry runs.
    NotExecuted,
    /// Perhaps something was done: `unknown`, until reconciliation has found out.
    PerhapsExecuted,
}

/// What [`Idempotency`](super::Idempotency) makes of a service.
pub struct Service<S, T, I> {
    guard: Idempotency<S, T>,
    inner: I,
}

impl<S, T, I> Service<S, T, I> {
    pub(super) fn new(guard: Idempotency<S, T>, inner: I) -> Self {
        Self { guard, inner }
    }
}

impl<S, T, I: Clone> Clone for Service<S, T, I> {
    fn clone(&self) -> Self {
        Self { guard: self.guard.clone(), inner: self.inner.clone() }
    }
}

impl<S, T, I> fmt::Debug for Service<S, T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl<S, T, I, B, R> tower_service::Service<Request<B>> for Service<S, T, I>
where
    S: Store,
    T: TenantResolver,
    B: GuardedBody,
    I: tower_service::Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    I::Future: Send + 'static,
    I::Error: fmt::Display + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Either<Full<Bytes>, R>>;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, I::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !self.guard.settings().methods.contains(request.method()) {
            let answer = self.inner.call(request);
            return Box::pin(async { Ok(answer.await?.map(Either::Right)) });
        }
        // The clone stays behind, and the one that was polled ready goes.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let guard = self.guard.clone();
        // A task of its own: the execution goes on to its end whatever becomes of the request's future (T35).
        let execution = tokio::spawn(guarded(guard.clone(), inner, request).in_current_span());
        Box::pin(async move {
            let response = execution.await.unwrap_or_else(|error| {
                // Not the error's own text: it repeats what a panic said.
                tracing::error!(panicked = error.is_panic(), "the guard's own task ended early");
                broken(&guard)
            });
            Ok(response.map(Either::Left))
        })
    }
}

type Answer = Response<Full<Bytes>>;

async fn guarded<S, T, I, B, R>(guard: Idempotency<S, T>, inner: I, request: Request<B>) -> Answer
where
    S: Store,
    T: TenantResolver,
    B: GuardedBody,
    I: tower_service::Service<Request<B>, Response = Response<R>> + Send,
    I::Future: Send,
    I::Error: fmt::Display,
    R: Body<Data = Bytes> + Send,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut parts, body) = request.into_parts();
    let (understood, body) = match request::understand(&guard, &parts, body).await {
        Ok(understood) => understood,
        Err(problem) => return problem.into_response(&guard.settings().profile),
    };
    if parts.extensions.get::<Execution>().is_some_and(|outer| *outer.record_key() == understood.key) {
        let operation = guard.operation().name();
        tracing::error!(%operation, "two guards of one operation stand in each other: take one away");
        return said(Problem::new(ProblemType::NotGuarded), &guard, Outcome::NotExecuted);
    }
    match guard.settings().executor.reserve(&understood).await {
        Reserved::Owned(owned) => {
            parts.extensions.insert(owned.execution().clone());
            execute(&guard, owned, inner, Request::from_parts(parts, body)).await
        }
        Reserved::Replay(replay) => replay::response(replay),
        Reserved::InFlight => in_flight(&guard, understood.key.idempotency_key()),
        Reserved::Mismatch => {
            let problem = Problem::new(ProblemType::KeyReused);
            said(problem, &guard, Outcome::Completed)
        }
        Reserved::Unknown { reconcile_at } => {
            let wait = reconcile_at.since(guard.settings().executor.clock().now());
            let problem = Problem::new(ProblemType::OutcomeUnknown)
                .retry_after(wait.min(LONGEST_RETRY_AFTER).max(guard.operation().retry_after_span()));
            said(problem, &guard, Outcome::PerhapsExecuted)
        }
        Reserved::Unavailable => unavailable(&guard, ProblemType::StoreUnavailable),
        Reserved::Unreadable => unavailable(&guard, ProblemType::RecordUnreadable),
    }
}

/// A problem, with what it means to a guard around this one: that must not keep our refusal as its answer.
fn said<S: Store, T>(problem: Problem, guard: &Idempotency<S, T>, outcome: Outcome) -> Answer {
    let mut response = problem.into_response(&guard.settings().profile);
    response.extensions_mut().insert(outcome);
    response
}

/// Runs the handler, and writes down how it ended.
async fn execute<S, T, I, B, R>(
    guard: &Idempotency<S, T>,
    owned: Owned,
    inner: I,
    request: Request<B>,
) -> Answer
where
    S: Store,
    T: TenantResolver,
    I: tower_service::Service<Request<B>, Response = Response<R>>,
    I::Error: fmt::Display,
    R: Body<Data = Bytes>,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let execution = owned.execution().clone();
    let handled = AssertUnwindSafe(handle(guard, &execution, inner, request)).catch_unwind().await;
    let (ending, answer) = match handled {
        Ok(Ok((parts, body))) => (ending(guard, &parts, &body), Some((parts, body))),
        Ok(Err(cause)) => (Ending::PerhapsExecuted(cause), None),
        Err(_) => {
            // The panic's own message has been printed by the panic hook; it is not repeated to anybody.
            let key = execution.record_key().hash();
            tracing::error!(%key, operation = %execution.operation(), "the handler panicked");
            (Ending::PerhapsExecuted(UnknownCause::Panicked), None)
        }
    };
    let expires_at = match guard.settings().executor.end(owned, ending).await {
        Ended::Superseded(kept) => return replay::response(kept),
        Ended::Written { expires_at } => expires_at,
        Ended::Fenced | Ended::HandedOver | Ended::Unwritten => None,
    };
    let Some((mut parts, body)) = answer else {
        return broken(guard);
    };
    if let Some(expires_at) = expires_at {
        replay::tell_expiry(&mut parts.headers, expires_at);
    }
    Response::from_parts(parts, Full::new(body))
}

/// The handler's response, whole, in bounded time and size.
async fn handle<S, T, I, B, R>(
    guard: &Idempotency<S, T>,
    execution: &Execution,
    mut inner: I,
    request: Request<B>,
) -> Result<(response::Parts, Bytes), UnknownCause>
where
    S: Store,
    T: TenantResolver,
    I: tower_service::Service<Request<B>, Response = Response<R>>,
    I::Error: fmt::Display,
    R: Body<Data = Bytes>,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let response = inner.call(request).await.map_err(|error| {
        let (key, operation) = (execution.record_key().hash(), execution.operation());
        tracing::error!(%key, %operation, %error, "the handler failed: perhaps executed");
        UnknownCause::HandlerFailed
    })?;
    let (parts, body) = response.into_parts();
    let clock = guard.settings().executor.clock();
    let time = execution.deadline().map_or(BODY_TIMEOUT, |deadline| {
        let left = deadline.since(clock.now());
        left.saturating_sub(WRITING_TIME).max(left / 2).min(BODY_TIMEOUT)
    });
    let body = tokio::select! {
        biased;
        body = Limited::new(body, LONGEST_BODY).collect() => body.map_err(|error| error.to_string()),
        () = clock.sleep(time) => Err("it did not end in time".to_owned()),
    };
    match body {
        Ok(body) => Ok((parts, body.to_bytes())),
        Err(error) => {
            let (key, operation) = (execution.record_key().hash(), execution.operation());
            tracing::error!(%key, %operation, error, "the handler's response body was lost: perhaps executed");
            Err(UnknownCause::ResponseLost)
        }
    }
}

/// What a response says of its effect.
fn outcome<S: Store, T>(guard: &Idempotency<S, T>, parts: &response::Parts) -> Outcome {
    if let Some(said) = parts.extensions.get::<Outcome>() {
        return *said;
    }
    // A 408 is a time-out layer inside the guard, which dropped the handler where it stood.
    if !parts.status.is_server_error() && parts.status != StatusCode::REQUEST_TIMEOUT {
        return Outcome::Completed;
    }
    match guard.operation().chosen_server_errors().unwrap_or(guard.settings().profile.server_errors) {
        ServerErrors::Reconcile => Outcome::PerhapsExecuted,
        ServerErrors::Keep => Outcome::Completed,
        ServerErrors::RetryFresh => Outcome::NotExecuted,
    }
}

fn ending<S: Store, T>(guard: &Idempotency<S, T>, parts: &response::Parts, body: &Bytes) -> Ending {
    match outcome(guard, parts) {
        Outcome::Completed => Ending::Completed {
            status: parts.status.as_u16(),
            headers: replay::kept_headers(&parts.headers, &guard.settings().kept_headers),
            body: body.clone(),
        },
        Outcome::NotExecuted => Ending::NotExecuted,
        Outcome::PerhapsExecuted => Ending::PerhapsExecuted(UnknownCause::HandlerFailed),
    }
}

fn in_flight<S: Store, T>(guard: &Idempotency<S, T>, key: &IdempotencyKey) -> Answer {
    let retry_after = guard.operation().retry_after_span();
    if guard.operation().in_flight() != WhileInFlight::Accept {
        let problem = Problem::new(ProblemType::InFlight);
        return said(problem.retry_after(retry_after), guard, Outcome::NotExecuted);
    }
    let mut accepted = status::in_progress(guard.operation().name());
    *accepted.status_mut() = StatusCode::ACCEPTED;
    accepted.extensions_mut().insert(Outcome::NotExecuted);
    accepted.headers_mut().insert(RETRY_AFTER, seconds(retry_after));
    let url = status::url(&guard.settings().status_path, guard.operation().name(), key);
    if let Ok(url) = HeaderValue::try_from(url) {
        accepted.headers_mut().insert(LOCATION, url);
    }
    accepted
}

fn unavailable<S: Store, T>(guard: &Idempotency<S, T>, problem: ProblemType) -> Answer {
    let problem = Problem::new(problem);
    said(problem.retry_after(guard.operation().retry_after_span()), guard, Outcome::NotExecuted)
}

/// The handler broke.
fn broken<S: Store, T>(guard: &Idempotency<S, T>) -> Answer {
    let problem = Problem::new(ProblemType::OutcomeUnknown).status(StatusCode::INTERNAL_SERVER_ERROR);
    said(problem.retry_after(guard.operation().retry_after_span()), guard, Outcome::PerhapsExecuted)
}
