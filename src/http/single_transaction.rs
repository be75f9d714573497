//! The guard of an operation whose effects are all domain writes: no reservation, one transaction.

use std::{fmt, future::poll_fn, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode, response};
use http_body::Body;
use http_body_util::Full;
use tower_layer::Layer;
use tracing::Instrument;

use super::{
    GuardedBody, IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED, IDEMPOTENT_REPLAYED_BODY, KnowsTenants, Outcome,
    Problem, ProblemType, Service,
    guard::inconclusive,
    replay,
    request::Understood,
    service::{Mode, whole},
    settings::{Guard, Settings},
};
use crate::{
    engine::{Computed, ReserveOutcome, SingleTransaction, SingleTransactionOutcome},
    key::RecordKey,
    operation::ServerErrors,
    record::Answer,
    telemetry,
    time::Instant,
    time_budget::plausible_deadline,
};

/// Guards what it wraps in one round trip: the handler's answer and its [domain writes](crate::domain) commit together, and
/// nothing is reserved before. Made by [`Idempotency::single_transaction`](super::Idempotency::single_transaction).
///
/// 1. The handler runs first, with a [`SingleTransaction`] in the request's extensions. It **may run more than once** for a key: at
///    once, again after a stale read, and again for a duplicate. It must have no effect of its own.
/// 2. Its answer is kept as with [`Idempotency`](super::Idempotency), if it is one to keep; else nothing is written.
/// 3. Of several at once one commits. The others get its answer, as every retry does.
/// 4. If the store does not answer, the client gets 503 and may send the same request again; the record is never unknown.
///
/// A handler that calls another service belongs behind [`Idempotency`](super::Idempotency).
pub struct SingleTransactionLayer<T> {
    settings: Arc<Settings>,
    tenant: T,
}

impl<T> SingleTransactionLayer<T> {
    pub(super) fn new(settings: Arc<Settings>, tenant: T) -> Self {
        Self { settings, tenant }
    }
}

impl<T: Clone> Clone for SingleTransactionLayer<T> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone(), tenant: self.tenant.clone() }
    }
}

impl<T> fmt::Debug for SingleTransactionLayer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleTransactionLayer")
            .field("executor", &self.settings.executor)
            .finish_non_exhaustive()
    }
}

impl<I, T: KnowsTenants> Layer<I> for SingleTransactionLayer<T> {
    type Service = Service<I>;

    fn layer(&self, inner: I) -> Self::Service {
        self.settings.check();
        let guard = Guard { settings: self.settings.clone(), tenant: self.tenant.resolver() };
        Service::new(guard, Mode::SingleTransaction, inner)
    }
}

/// A handler's own response; none if it failed.
type Reply = Option<(response::Parts, Bytes)>;

/// `ready` was polled ready, for the first run; each other one takes a clone of `inner`. If the future is dropped midway, nothing is
/// committed, or a retry finds what was.
pub(super) async fn answer<I, B, R>(
    guard: Guard,
    ready: I,
    inner: I,
    request: Request<B>,
) -> Response<Full<Bytes>>
where
    B: GuardedBody,
    I: tower_service::Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    I::Future: Send,
    I::Error: fmt::Display + Send,
    R: Body<Data = Bytes> + Send,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, understood) = match guard.understand(request).await {
        Ok(understood) => understood,
        Err(problem) => return problem,
    };
    let Understood { request, body, refusal, mount } = understood;
    let body = match body.copies().await {
        Ok(body) => body,
        Err(problem) => return guard.say(Problem::new(problem), Outcome::NotExecuted),
    };
    let now = guard.world().now();
    let deadline = request.deadline.and_then(|deadline| plausible_deadline(deadline, now));
    let ends_at = deadline.map(|deadline| guard.world().instant().plus(deadline.since(now)));
    let mut ready = Some(ready);
    let compute = {
        let guard = guard.clone();
        move |transaction: SingleTransaction| -> BoxFuture<'static, Computed<Reply>> {
            let (guard, ready, mut inner) = (guard.clone(), ready.take(), inner.clone());
            let mut copy = Request::from_parts(parts.clone(), body());
            copy.extensions_mut().insert(transaction.clone());
            let handled = async move {
                match ready {
                    Some(mut ready) => ready.call(copy).await,
                    None => {
                        poll_fn(|cx| inner.poll_ready(cx)).await?;
                        inner.call(copy).await
                    }
                }
            };
            Box::pin(async move { guard.computed(ends_at, handled).await })
        }
    };
    let span = telemetry::request_span(&request.key);
    let outcome = guard.settings.executor.run_single_transaction(&request, compute).instrument(span).await;
    guard.tell(outcome, &request.key, &mount, refusal)
}

impl Guard {
    /// Runs the handler once.
    async fn computed<R, E>(
        &self,
        ends_at: Option<Instant>,
        handled: impl Future<Output = Result<Response<R>, E>>,
    ) -> Computed<Reply>
    where
        E: fmt::Display,
        R: Body<Data = Bytes>,
        R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut parts, body) = match AssertUnwindSafe(whole(self, ends_at, handled)).catch_unwind().await {
            Ok(Ok(handled)) => handled,
            Ok(Err(_)) => return Computed::Nothing(None),
            Err(_) => {
                tracing::error!("the handler panicked: nothing is committed");
                return Computed::Nothing(None);
            }
        };
        for name in [IDEMPOTENT_REPLAYED, IDEMPOTENT_REPLAYED_BODY, IDEMPOTENCY_EXPIRES] {
            // Set by an inner service, about its own answer.
            parts.headers.remove(name);
        }
        if !self.keeps(&parts, &body) {
            return Computed::Nothing(Some((parts, body)));
        }
        let headers = replay::kept_headers(&parts.headers, self.operation().kept_headers());
        let answer = Answer::http(parts.status.as_u16(), headers, body.clone());
        Computed::Answer(answer, Some((parts, body)))
    }

    /// Whether a response is the operation's answer. Nothing else has happened, so there is no doubt about the others.
    fn keeps(&self, parts: &response::Parts, body: &Bytes) -> bool {
        if let Some(said) = parts.extensions.get::<Outcome>() {
            return *said == Outcome::Completed;
        }
        if parts.status.is_server_error() {
            let errors =
                self.operation().chosen_server_errors().unwrap_or(self.settings.profile.server_errors);
            return errors == ServerErrors::Keep;
        }
        !inconclusive(parts.status, body)
    }

    fn tell(
        &self,
        outcome: SingleTransactionOutcome<Reply>,
        key: &RecordKey,
        mount: &str,
        refusal: Option<Problem>,
    ) -> Response<Full<Bytes>> {
        match outcome {
            SingleTransactionOutcome::Committed { reply: Some((mut parts, body)), expires_at } => {
                if let Some(expires_at) = expires_at {
                    replay::tell_expiry(&mut parts.headers, expires_at);
                }
                Response::from_parts(parts, Full::new(body))
            }
            SingleTransactionOutcome::Nothing(Some((mut parts, body))) => {
                // For a guard around this one. What the handler says of more than its writes stands.
                if parts.extensions.get() != Some(&Outcome::PerhapsExecuted) {
                    parts.extensions.insert(Outcome::NotExecuted);
                }
                Response::from_parts(parts, Full::new(body))
            }
            SingleTransactionOutcome::Refused { answer, expires_at } => replay::first(answer, expires_at),
            SingleTransactionOutcome::Found(found) => self.instead(found, key, mount, refusal),
            SingleTransactionOutcome::Nothing(None)
            | SingleTransactionOutcome::Committed { reply: None, .. } => {
                self.instead(ReserveOutcome::Unavailable, key, mount, refusal)
            }
            SingleTransactionOutcome::Unconfirmed => {
                let problem =
                    Problem::new(ProblemType::OutcomeUnknown).status(StatusCode::SERVICE_UNAVAILABLE);
                self.come_again(problem, Duration::ZERO, Outcome::PerhapsExecuted)
            }
        }
    }
}
