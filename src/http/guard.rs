//! Guards one execution: reserves the key, runs the handler, records how it ended.

use std::fmt;

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode, response};
use http_body_util::Full;

use super::{
    GuardedBody, Outcome,
    claim::Claim,
    classify::{classify, is_passing},
    guarded::{self, By, Guarded},
    replay,
    request::Parsed,
    respond::HttpAnswer,
    run::{Answered, ResponseBody},
    settings::Guard,
};
use crate::{
    engine::{Execution, Handled, LeaseOver, Replied, Report},
    operation::How,
    record::{HANDLER_FAILED, Says},
    telemetry::Count,
    time::Timestamp,
};

/// What the handler replies to the caller.
struct Reply {
    /// What it says of the operation.
    guarded: Guarded,
    /// Its response; `None` if it failed.
    response: Option<Answered>,
}

/// Answers one request. The execution runs to its end even if the returned future is dropped (T35).
pub(super) fn answer<I, B, R>(
    guard: Guard,
    mut inner: I,
    request: Request<B>,
) -> impl Future<Output = HttpAnswer> + Send
where
    B: GuardedBody,
    I: tower_service::Service<Request<B>, Response = Response<R>> + Send + 'static,
    I::Future: Send,
    I::Error: fmt::Display + Send,
    R: ResponseBody,
{
    let handler = {
        let guard = guard.clone();
        move |execution: Execution, request| -> BoxFuture<'static, Result<Answered, &'static str>> {
            // Called within the future, so that a handler which panics at once is caught too.
            let response = async move { inner.call(request).await };
            async move { guard.run(execution.ends_at(), response).await }.boxed()
        }
    };
    let answer = guard.clone().answer(request, handler);
    let answer = guard.settings.executor.to_its_end(answer);
    async move { answer.await.unwrap_or_else(|| guard.unknown(StatusCode::INTERNAL_SERVER_ERROR)) }
}

impl Guard {
    /// Answers one request. Runs `handler` if it owns the key.
    async fn answer<B: GuardedBody>(
        self,
        request: Request<B>,
        handler: impl FnOnce(Execution, Request<B>) -> BoxFuture<'static, Result<Answered, &'static str>> + Send,
    ) -> HttpAnswer {
        let (mut parts, Parsed { request, body, mount }) = match self.parse(request).await {
            Ok(parsed) => parsed,
            Err(problem) => return problem,
        };
        let handler = async |execution: Execution| {
            parts.extensions.insert(execution.clone());
            // It is taken: a guard within this one has its own operation.
            parts.extensions.remove::<Claim>();
            handler(execution, Request::from_parts(parts, body.into())).await
        };
        let handled = |execution: &Execution, answered: Result<_, LeaseOver>| {
            self.handled(execution, answered.unwrap_or(Err(LeaseOver::WHY)))
        };
        let Replied { says, reply } = self.settings.executor.run(&request, handler, handled).await;
        let attempts = reply.as_ref().map_or(0, |reply| reply.guarded.attempts);
        let mut response = match (says, reply) {
            (Says::Own { expires_at }, Some(reply)) => self.own(expires_at, reply),
            (Says::Released, Some(mut reply)) => {
                if reply.guarded.outcome() != Some(Outcome::NotBegun) {
                    reply.guarded.by = By::Handler(How::Executed, Outcome::NotExecuted);
                }
                self.own(None, reply)
            }
            (says, _) => self.instead(says, &request, &mount),
        };
        if let Some(guarded) = response.extensions_mut().get_mut::<Guarded>() {
            guarded.attempts = attempts;
        }
        response
    }

    /// What the handler's response, or its failure, means.
    fn handled(&self, execution: &Execution, answered: Result<Answered, &'static str>) -> Handled<Reply> {
        match answered {
            Ok((mut parts, body)) => {
                let report = match self.report(execution, &parts, &body) {
                    Report::NotBegun if self.operation().asynchronous.is_some() => {
                        if is_passing(parts.status) {
                            // Another attempt may get further, such as that of the next deployment.
                            Report::NotExecuted(None)
                        } else {
                            // Its client has its answer already, and polls for this one.
                            Report::Completed(self.kept(&parts, &body))
                        }
                    }
                    report => report,
                };
                let outcome = match &report {
                    Report::Completed(_) => Outcome::Completed,
                    Report::NotBegun => Outcome::NotBegun,
                    Report::NotExecuted(_) => Outcome::NotExecuted,
                    _ => Outcome::PerhapsExecuted,
                };
                if let Some(outcome @ Outcome::NotBegun) = parts.extensions.get_mut() {
                    // For a guard around this one, whose own operation may have begun.
                    *outcome = Outcome::NotExecuted;
                }
                let why = if outcome == Outcome::NotBegun { guarded::why(&parts, &body) } else { None };
                let status = Some(parts.status.as_u16());
                let guarded = Guarded { attempts: execution.attempts(), why, ..Guarded::executed(outcome) };
                Handled { report, status, reply: Reply { guarded, response: Some((parts, body)) } }
            }
            Err(why) => {
                let guarded = Guarded::executed(Outcome::PerhapsExecuted);
                let guarded = Guarded { attempts: execution.attempts(), ..guarded };
                Handled::perhaps(why, Reply { guarded, response: None })
            }
        }
    }

    /// The handler's own response, which is kept until then, if it is.
    fn own(&self, expires_at: Option<Timestamp>, Reply { guarded, response }: Reply) -> HttpAnswer {
        let Some((mut parts, body)) = response else {
            let mut response = self.unknown(StatusCode::INTERNAL_SERVER_ERROR);
            if guarded.outcome() == Some(Outcome::NotExecuted) {
                response.extensions_mut().insert(guarded);
            }
            return response;
        };
        replay::add_expiry(&mut parts.headers, expires_at);
        parts.extensions.insert(guarded);
        Response::from_parts(parts, Full::new(body))
    }

    /// What the handler's response means for its record.
    fn report(&self, execution: &Execution, parts: &response::Parts, body: &Bytes) -> Report {
        match classify(parts, body, self.server_errors()) {
            Some(Outcome::Completed) => Report::Completed(self.kept(parts, body)),
            Some(Outcome::NotExecuted) => Report::NotExecuted(None),
            Some(Outcome::NotBegun) => Report::NotBegun,
            Some(Outcome::PerhapsExecuted) => Report::perhaps(HANDLER_FAILED),
            None => {
                let status = parts.status.as_u16();
                tracing::warn!(
                    status,
                    "this status does not say whether the operation was executed, so the outcome is unknown: move the \
                     layer that returns it outside the guard (in axum: route_layer), or put an Outcome into its response"
                );
                Count::Inconclusive.add(execution.operation());
                Report::perhaps(HANDLER_FAILED)
            }
        }
    }
}
