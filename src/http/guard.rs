//! The guard at work: one request from its key to its answer.

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{LOCATION, RETRY_AFTER},
    response,
};
use http_body_util::Full;

use super::{
    GuardedBody, Outcome, Problem, ProblemType,
    problem::seconds,
    replay,
    request::{self, Understood},
    settings::Guard,
    status,
};
use crate::{
    engine::{Ending, Execution, FinishOutcome, Ownership, ReserveOutcome},
    key::IdempotencyKey,
    operation::{ServerErrors, WhileInFlight},
    record::{Answer, UnknownCause},
    time_budget::LONGEST_RETRY_AFTER,
};

/// A handler's response with its body, or why it is not known what the handler did.
pub(super) type Handled = Result<(response::Parts, Bytes), UnknownCause>;

type HttpAnswer = Response<Full<Bytes>>;

impl Guard {
    /// Answers one request. Runs `handler` if the key is ours.
    pub(super) async fn answer<B: GuardedBody>(
        self,
        request: Request<B>,
        handler: impl FnOnce(Execution, Request<B>) -> BoxFuture<'static, Handled> + Send,
    ) -> HttpAnswer {
        let (mut parts, body) = request.into_parts();
        let understood = match request::understand(&self, &parts, body).await {
            Ok(understood) => understood,
            Err(problem) => return problem.into_response(&self.settings.profile),
        };
        let Understood { request, body, refusal } = understood;
        if parts.extensions.get::<Execution>().is_some_and(|outer| *outer.record_key() == request.key) {
            let operation = self.operation().name();
            tracing::error!(%operation, "two guards of one operation stand in each other: take one away");
            return self.say(Problem::new(ProblemType::NotGuarded), Outcome::NotExecuted);
        }
        match self.settings.executor.reserve(&request).await {
            ReserveOutcome::Owned(owned) => {
                let execution = owned.execution().clone();
                parts.extensions.insert(execution.clone());
                let handled = handler(execution, Request::from_parts(parts, body));
                self.execute(owned, handled).await
            }
            ReserveOutcome::Replay(replay) => replay::response(replay, &self.settings.profile),
            ReserveOutcome::InFlight => self.in_flight(request.key.idempotency_key()),
            ReserveOutcome::Mismatch => self.say(Problem::new(ProblemType::KeyReused), Outcome::Completed),
            ReserveOutcome::Unknown { reconcile_at } => {
                let wait = reconcile_at.since(self.world().now()).min(LONGEST_RETRY_AFTER);
                let problem = Problem::new(ProblemType::OutcomeUnknown)
                    .retry_after(wait.max(self.operation().retry_after_span()));
                self.say(problem, Outcome::PerhapsExecuted)
            }
            ReserveOutcome::MayNotBegin => {
                let refusal = refusal.unwrap_or_else(|| Problem::new(ProblemType::KeyTooOld));
                self.say(refusal, Outcome::NotExecuted)
            }
            ReserveOutcome::TooLate | ReserveOutcome::Unavailable => {
                self.unavailable(ProblemType::StoreUnavailable)
            }
            ReserveOutcome::Unreadable => self.unavailable(ProblemType::RecordUnreadable),
        }
    }

    /// Runs the handler, and writes down how it ended.
    async fn execute(&self, owned: Ownership, handled: BoxFuture<'static, Handled>) -> HttpAnswer {
        let execution = owned.execution().clone();
        let (ending, answer) = match AssertUnwindSafe(handled).catch_unwind().await {
            Ok(Ok((parts, body))) => (self.ending(&parts, &body), Some((parts, body))),
            Ok(Err(cause)) => (Ending::PerhapsExecuted(cause), None),
            Err(_) => {
                // The panic's own message has been printed by the panic hook; it is not repeated to anybody.
                let key = execution.record_key().hash();
                tracing::error!(%key, operation = %execution.operation(), "the handler panicked");
                (Ending::PerhapsExecuted(UnknownCause::Panicked), None)
            }
        };
        let expires_at = match self.settings.executor.finish(owned, ending).await {
            FinishOutcome::Superseded(kept) => return replay::response(kept, &self.settings.profile),
            FinishOutcome::AnsweredElsewhere => {
                let problem = Problem::new(ProblemType::AnsweredElsewhere);
                let retry_after = self.operation().retry_after_span();
                return self.say(problem.retry_after(retry_after), Outcome::PerhapsExecuted);
            }
            FinishOutcome::Written { expires_at } => expires_at,
            FinishOutcome::Fenced | FinishOutcome::HandedOver | FinishOutcome::Unwritten => None,
        };
        let Some((mut parts, body)) = answer else {
            return self.broken();
        };
        if let Some(expires_at) = expires_at {
            replay::tell_expiry(&mut parts.headers, expires_at);
        }
        Response::from_parts(parts, Full::new(body))
    }

    fn ending(&self, parts: &response::Parts, body: &Bytes) -> Ending {
        match self.outcome(parts) {
            Outcome::Completed => {
                let headers = replay::kept_headers(&parts.headers, self.operation().kept_headers());
                Ending::Completed(Answer::http(parts.status.as_u16(), headers, body.clone()))
            }
            Outcome::NotExecuted => Ending::NotExecuted,
            Outcome::PerhapsExecuted => Ending::PerhapsExecuted(UnknownCause::HandlerFailed),
        }
    }

    /// What a response says of its effect.
    fn outcome(&self, parts: &response::Parts) -> Outcome {
        if let Some(said) = parts.extensions.get::<Outcome>() {
            return *said;
        }
        // A 408 is a time-out layer inside the guard, which dropped the handler where it stood.
        if !parts.status.is_server_error() && parts.status != StatusCode::REQUEST_TIMEOUT {
            return Outcome::Completed;
        }
        match self.operation().chosen_server_errors().unwrap_or(self.settings.profile.server_errors) {
            ServerErrors::Reconcile => Outcome::PerhapsExecuted,
            ServerErrors::Keep => Outcome::Completed,
            ServerErrors::RetryFresh => Outcome::NotExecuted,
        }
    }

    /// A problem, with what it means to a guard around this one: that must not keep our refusal as its answer.
    fn say(&self, problem: Problem, outcome: Outcome) -> HttpAnswer {
        let mut response = problem.into_response(&self.settings.profile);
        response.extensions_mut().insert(outcome);
        response
    }

    fn in_flight(&self, key: &IdempotencyKey) -> HttpAnswer {
        let retry_after = self.operation().retry_after_span();
        if self.operation().in_flight() != WhileInFlight::Accept {
            let problem = Problem::new(ProblemType::InFlight);
            return self.say(problem.retry_after(retry_after), Outcome::NotExecuted);
        }
        let mut accepted = status::in_progress(self.operation().name());
        *accepted.status_mut() = StatusCode::ACCEPTED;
        accepted.extensions_mut().insert(Outcome::NotExecuted);
        accepted.headers_mut().insert(RETRY_AFTER, seconds(retry_after));
        let url = status::url(&self.settings.status_path, self.operation().name(), key);
        if let Ok(url) = HeaderValue::try_from(url) {
            accepted.headers_mut().insert(LOCATION, url);
        }
        accepted
    }

    fn unavailable(&self, problem: ProblemType) -> HttpAnswer {
        let problem = Problem::new(problem);
        self.say(problem.retry_after(self.operation().retry_after_span()), Outcome::NotExecuted)
    }

    /// The handler broke.
    pub(super) fn broken(&self) -> HttpAnswer {
        let problem = Problem::new(ProblemType::OutcomeUnknown).status(StatusCode::INTERNAL_SERVER_ERROR);
        self.say(problem.retry_after(self.operation().retry_after_span()), Outcome::PerhapsExecuted)
    }
}
