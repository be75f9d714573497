//! The guarded service: requests that need no guard pass through, the guard answers the rest.

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Either, Full, Limited};
use tokio::sync::oneshot;
use tracing::Instrument;

use super::{GuardedBody, IDEMPOTENCY_KEY, MAX_BODY, guard::Handled, settings::Guard, single_transaction};
use crate::{engine::Execution, record::UnknownCause, time::Instant, time_budget::TimeBudget};

/// A guarded service, made by the layers [`Idempotency`](super::Idempotency) and [`SingleTransactionLayer`](super::SingleTransactionLayer).
pub struct Service<I> {
    guard: Guard,
    mode: Mode,
    inner: I,
}

/// How the handler and its record come together.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    /// The key is reserved, then the handler runs.
    Reserved,
    /// The handler runs, and its writes commit with the record.
    SingleTransaction,
}

impl<I> Service<I> {
    pub(super) fn new(guard: Guard, mode: Mode, inner: I) -> Self {
        Self { guard, mode, inner }
    }
}

impl<I: Clone> Clone for Service<I> {
    fn clone(&self) -> Self {
        Self { guard: self.guard.clone(), mode: self.mode, inner: self.inner.clone() }
    }
}

impl<I> fmt::Debug for Service<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl<I, B, R> tower_service::Service<Request<B>> for Service<I>
where
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
        if self.guard.lets_pass(request.method(), request.headers()) {
            let answer = self.inner.call(request);
            return Box::pin(async { Ok(answer.await?.map(Either::Right)) });
        }
        // The clone stays; the service that was polled ready is used.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let guard = self.guard.clone();
        let echo = guard.settings.profile.echo(request.headers());
        let answer = match self.mode {
            Mode::Reserved => reserved(guard, ready, request).left_future(),
            Mode::SingleTransaction => {
                single_transaction::answer(guard, ready, self.inner.clone(), request).right_future()
            }
        };
        Box::pin(async move {
            let mut response = answer.await;
            if let Some(key) = echo {
                response.headers_mut().insert(IDEMPOTENCY_KEY, key);
            }
            Ok(response.map(Either::Left))
        })
    }
}

/// Reserves, runs, completes: in a task of its own, so that the execution runs to its end even if the returned future is dropped (T35).
fn reserved<I, B, R>(
    guard: Guard,
    mut inner: I,
    request: Request<B>,
) -> impl Future<Output = Response<Full<Bytes>>> + Send
where
    B: GuardedBody,
    I: tower_service::Service<Request<B>, Response = Response<R>> + Send + 'static,
    I::Future: Send,
    I::Error: fmt::Display + Send,
    R: Body<Data = Bytes> + Send,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let handler = {
        let guard = guard.clone();
        move |execution: Execution, request| -> BoxFuture<'static, Handled> {
            // Called within the future, so that a handler which panics at once is caught too.
            let response = async move { inner.call(request).await };
            Box::pin(async move { whole(&guard, execution.ends_at(), response).await })
        }
    };
    let (answered, answer) = oneshot::channel();
    let world = guard.world().clone();
    let execution = {
        let guard = guard.clone();
        async move { drop(answered.send(guard.answer(request, handler).await)) }
    };
    world.spawn(Box::pin(execution.in_current_span()));
    async move {
        answer.await.unwrap_or_else(|_| {
            tracing::error!("the guard's own task ended early");
            guard.broken()
        })
    }
}

/// Collects the handler's whole response, its body within bounds of time and size.
pub(super) async fn whole<R, E>(
    guard: &Guard,
    ends_at: Option<Instant>,
    response: impl Future<Output = Result<Response<R>, E>>,
) -> Handled
where
    E: fmt::Display,
    R: Body<Data = Bytes>,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let response = response.await.map_err(|error| {
        tracing::error!(%error, "the handler failed: perhaps executed");
        UnknownCause::HandlerFailed
    })?;
    let (parts, body) = response.into_parts();
    let world = guard.world();
    let time = TimeBudget::at(world.instant(), ends_at).read();
    let body = tokio::select! {
        biased;
        body = Limited::new(body, MAX_BODY).collect() => body.map_err(|error| error.to_string()),
        () = world.sleep(time) => Err("it did not end in time".to_owned()),
    };
    match body {
        Ok(body) => Ok((parts, body.to_bytes())),
        Err(error) => {
            tracing::error!(error, "the handler's response body was lost: perhaps executed");
            Err(UnknownCause::ResponseLost)
        }
    }
}
