//! The guarded service: requests that need no guard pass through, the guard answers the rest.

use std::{
    fmt, future, mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, Request, Response};
use http_body_util::{Either, Full};

use super::{
    GuardedBody, ProblemType, accept, deliver::deliver, guard, respond::HttpAnswer, run::ResponseBody,
    settings::Guard, single_transaction, way::Way,
};

/// A guarded service, made by the layer [`Idempotency`](super::Idempotency).
#[derive(Clone, derive_more::Debug)]
#[debug("Service {{ .. }}")]
pub struct Service<I> {
    pub(super) guard: Guard,
    pub(super) inner: I,
}

impl<I, B, R> tower_service::Service<Request<B>> for Service<I>
where
    B: GuardedBody,
    I: tower_service::Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    I::Future: Send + 'static,
    I::Error: fmt::Display + Send + 'static,
    R: ResponseBody + 'static,
{
    type Response = Response<Either<Full<Bytes>, R>>;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, I::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let guard = self.guard.clone();
        let Some(way) = guard.way(&request) else {
            let is_asked = request.method() == Method::OPTIONS;
            let answer = self.inner.call(request);
            return Box::pin(async move {
                let mut response = answer.await?;
                if is_asked {
                    guard.settings.announce(response.headers_mut());
                }
                let own = guard.in_its_words(response.extensions_mut());
                Ok(own.map_or_else(|| response.map(Either::Right), |own| own.map(Either::Left)))
            });
        };
        // The clone stays; the service that was polled ready is used.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let echo = guard.settings.profile.echo(request.headers());
        let (front, words) = (guard.front(&request), guard.clone());
        let sent = move |mut response: HttpAnswer| {
            if let Some(own) = words.in_its_words(response.extensions_mut()) {
                response = own;
            }
            words.settings.announce(response.headers_mut());
            if let Some((name, key)) = echo {
                response.headers_mut().insert(name, key);
            }
            Ok(deliver(front, words.settings.any_size, response).map(Either::Left))
        };
        // Each is boxed once, at its own size.
        match way {
            Way::Accepted(accept) => accept::answer(guard, accept, request).map(sent).boxed(),
            Way::InOneTransaction => {
                single_transaction::answer(guard, ready, self.inner.clone(), request).map(sent).boxed()
            }
            Way::Reserved => guard::answer(guard, ready, request).map(sent).boxed(),
            Way::OfAnother => {
                let operation = guard.operation().name();
                tracing::error!(%operation, "accepted work of another operation came to this route: nothing is run");
                future::ready(sent(guard.problem(ProblemType::NotGuarded))).boxed()
            }
        }
    }
}
