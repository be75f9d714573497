//! The guard of an operation whose effects are all domain writes: no reservation, one transaction.

use std::{fmt, future::poll_fn};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, response};
use http_body_util::Full;
use tracing::Instrument;

use super::{
    GuardedBody, Outcome, classify::classify, guarded::Guarded, replay, request::Parsed, respond::HttpAnswer,
    run::ResponseBody, settings::Guard,
};
use crate::{
    engine::{self, Computed, Replied, SingleTransaction},
    record::Says,
    telemetry,
    time::Instant,
    time_budget::plausible_deadline,
};

/// A handler's own response; none if it failed.
type Reply = Option<(response::Parts, Bytes)>;

/// `ready` was polled ready, for the first run; each other one takes a clone of `inner`. If the future is dropped midway, nothing is
/// committed, or a retry finds what was.
pub(super) async fn answer<I, B, R>(guard: Guard, ready: I, inner: I, request: Request<B>) -> HttpAnswer
where
    B: GuardedBody,
    I: tower_service::Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    I::Future: Send,
    I::Error: fmt::Display + Send,
    R: ResponseBody,
{
    let (parts, parsed) = match guard.parse(request).await {
        Ok(parsed) => parsed,
        Err(problem) => return problem,
    };
    let Parsed { request, body, mount } = parsed;
    let now = guard.world().now();
    let deadline = request.deadline.and_then(|deadline| plausible_deadline(deadline, now));
    let ends_at = deadline.map(|deadline| guard.world().instant().plus(deadline.since(now)));
    let mut ready = Some(ready);
    let compute = {
        let guard = guard.clone();
        move |transaction: SingleTransaction| -> BoxFuture<'static, Computed<Reply>> {
            let (guard, ready, mut inner) = (guard.clone(), ready.take(), inner.clone());
            let mut copy = Request::from_parts(parts.clone(), body.clone().into());
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
    let ran = guard.settings.executor.run_single_transaction(&request, compute).instrument(span).await;
    guard.respond(ran, &request, &mount)
}

impl Guard {
    /// Runs the handler once.
    async fn computed<R: ResponseBody, E: fmt::Display>(
        &self,
        ends_at: Option<Instant>,
        handled: impl Future<Output = Result<Response<R>, E>>,
    ) -> Computed<Reply> {
        let Ok((parts, body)) = self.run(ends_at, handled).await else { return Computed::Nothing(None) };
        // Nothing else has happened, so any other response certainly did nothing.
        match classify(&parts, &body, self.server_errors()) {
            Some(Outcome::Completed) => Computed::Answer(self.kept(&parts, &body), Some((parts, body))),
            _ => Computed::Nothing(Some((parts, body))),
        }
    }

    fn respond(
        &self,
        Replied { says, reply }: Replied<Reply>,
        request: &engine::Request,
        mount: &str,
    ) -> HttpAnswer {
        match (says, reply.flatten()) {
            (Says::Own { expires_at }, Some((mut parts, body))) => {
                parts.extensions.insert(Guarded::executed(Outcome::Completed));
                replay::add_expiry(&mut parts.headers, expires_at);
                Response::from_parts(parts, Full::new(body))
            }
            (Says::Released, Some((mut parts, body))) => {
                // For a guard around this one. What the handler says of more than its writes stands.
                if parts.extensions.get() != Some(&Outcome::PerhapsExecuted) {
                    parts.extensions.insert(Outcome::NotExecuted);
                }
                parts.extensions.insert(Guarded::executed(Outcome::NotExecuted));
                Response::from_parts(parts, Full::new(body))
            }
            (says, _) => self.instead(says, request, mount),
        }
    }
}
