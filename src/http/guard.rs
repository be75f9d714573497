//! Guards one execution: reserves the key, runs the handler, records how it ended.

use std::fmt;

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode, response};
use http_body_util::Full;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::{
    GuardedBody, Outcome, ProblemType,
    classify::classify,
    replay,
    request::Parsed,
    respond::HttpAnswer,
    run::{Handled, ResponseBody},
    settings::Guard,
};
use crate::{
    engine::{Execution, FinishOutcome, Ownership, Report, ReserveOutcome},
    record::HANDLER_FAILED,
    telemetry::{self, Count},
};

/// Answers one request in a separate task. So the execution runs to its end even if the returned future is dropped (T35).
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
        move |execution: Execution, request| -> BoxFuture<'static, Handled> {
            // Called within the future, so that a handler which panics at once is caught too.
            let response = async move { inner.call(request).await };
            async move { guard.run(execution.ends_at(), response).await }.boxed()
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
            tracing::error!("the guard's task ended early");
            guard.unknown(StatusCode::INTERNAL_SERVER_ERROR)
        })
    }
}

impl Guard {
    /// Answers one request. Runs `handler` if it owns the key.
    pub(super) async fn answer<B: GuardedBody>(
        self,
        request: Request<B>,
        handler: impl FnOnce(Execution, Request<B>) -> BoxFuture<'static, Handled> + Send,
    ) -> HttpAnswer {
        let (mut parts, Parsed { request, body, refusal, mount }) = match self.parse(request).await {
            Ok(parsed) => parsed,
            Err(problem) => return problem,
        };
        let span = telemetry::request_span(&request.key);
        let answer = async {
            match self.settings.executor.reserve(&request).await {
                ReserveOutcome::Owned(owned) => {
                    let execution = owned.execution().clone();
                    parts.extensions.insert(execution.clone());
                    let handled = handler(execution, Request::from_parts(parts, body.into()));
                    self.execute(owned, handled).await
                }
                found => self.instead(found, &request.key, &mount, refusal),
            }
        };
        answer.instrument(span).await
    }

    /// Runs the handler and records how it ended.
    async fn execute(&self, mut owned: Ownership, handled: BoxFuture<'static, Handled>) -> HttpAnswer {
        let execution = owned.execution().clone();
        let (report, answer) = match handled.await {
            Ok((mut parts, body)) => {
                owned.answered(parts.status.as_u16());
                let report = self.report(&execution, &parts, &body);
                if let Some(outcome @ Outcome::NotBegun) = parts.extensions.get_mut() {
                    // For a guard around this one, whose own operation may have begun.
                    *outcome = Outcome::NotExecuted;
                }
                (report, Some((parts, body)))
            }
            Err(why) => (Report::PerhapsExecuted(why), None),
        };
        let not_begun = matches!(report, Report::NotBegun);
        let expires_at = match self.settings.executor.finish(owned, report).await {
            FinishOutcome::Superseded(kept) => return replay::response(kept, &self.settings.profile),
            FinishOutcome::Unknown => return self.problem(ProblemType::OutcomeUnknown),
            FinishOutcome::AnsweredElsewhere => return self.problem(ProblemType::AnsweredElsewhere),
            FinishOutcome::Refused { answer, expires_at } => return replay::first(answer, expires_at),
            FinishOutcome::Interrupted => return self.problem(ProblemType::Interrupted),
            FinishOutcome::NotCommitted => return self.problem(ProblemType::StoreUnavailable),
            FinishOutcome::Written { expires_at } => expires_at,
            // Its key is not free yet: a corrected request would be refused as a mismatch.
            FinishOutcome::Deferred | FinishOutcome::Unwritten if not_begun => {
                return self.problem(ProblemType::StoreUnavailable);
            }
            FinishOutcome::Fenced | FinishOutcome::Deferred | FinishOutcome::Unwritten => None,
        };
        let Some((mut parts, body)) = answer else {
            return self.unknown(StatusCode::INTERNAL_SERVER_ERROR);
        };
        replay::add_expiry(&mut parts.headers, expires_at);
        Response::from_parts(parts, Full::new(body))
    }

    /// What the handler's response means for its record.
    fn report(&self, execution: &Execution, parts: &response::Parts, body: &Bytes) -> Report {
        match classify(parts, body, self.server_errors()) {
            Some(Outcome::Completed) => Report::Completed(self.kept(parts, body)),
            Some(Outcome::NotExecuted) => Report::NotExecuted,
            Some(Outcome::NotBegun) => Report::NotBegun,
            Some(Outcome::PerhapsExecuted) => Report::PerhapsExecuted(HANDLER_FAILED),
            None => {
                let status = parts.status.as_u16();
                tracing::warn!(
                    status,
                    "this status does not say whether the operation was executed, so the outcome is unknown: move the \
                     layer that returns it outside the guard (in axum: route_layer), or put an Outcome into its response"
                );
                Count::Inconclusive.add(execution.operation());
                Report::PerhapsExecuted(HANDLER_FAILED)
            }
        }
    }
}
