//! The guard's responses: to a request that may not run, or whose outcome is not known.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{LOCATION, RETRY_AFTER},
};
use http_body_util::Full;

use super::{Outcome, Problem, ProblemType, problem_response::seconds, replay, settings::Guard, status};
use crate::{engine::ReserveOutcome, key::RecordKey, operation::WhileInFlight};

pub(super) type HttpAnswer = Response<Full<Bytes>>;

impl Guard {
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
            ReserveOutcome::Mismatch => {
                self.problem(Problem::new(ProblemType::KeyReused), Outcome::Completed)
            }
            ReserveOutcome::Unknown { wait } => {
                self.retry_later(Problem::new(ProblemType::OutcomeUnknown), wait, Outcome::PerhapsExecuted)
            }
            ReserveOutcome::MayNotBegin => {
                let refusal = refusal.unwrap_or_else(|| Problem::new(ProblemType::KeyTooOld));
                self.problem(refusal, Outcome::NotExecuted)
            }
            // `Owned` never comes here.
            ReserveOutcome::TooLate | ReserveOutcome::Unavailable | ReserveOutcome::Owned(_) => {
                self.unavailable(ProblemType::StoreUnavailable)
            }
            ReserveOutcome::Unreadable => self.unavailable(ProblemType::RecordUnreadable),
        }
    }

    /// A problem, marked with its outcome for a guard around this one, which must not keep this refusal as its answer.
    pub(super) fn problem(&self, problem: Problem, outcome: Outcome) -> HttpAnswer {
        let mut response = problem.into_response(&self.settings.profile);
        response.extensions_mut().insert(outcome);
        response
    }

    /// The same, with a `Retry-After`.
    pub(super) fn retry_later(&self, problem: Problem, wait: Duration, outcome: Outcome) -> HttpAnswer {
        self.problem(problem.retry_after(self.operation().retry_after_of(wait)), outcome)
    }

    /// A problem of the moment: this request did nothing.
    pub(super) fn unavailable(&self, problem: ProblemType) -> HttpAnswer {
        self.retry_later(Problem::new(problem), Duration::ZERO, Outcome::NotExecuted)
    }

    /// The handler's answer does not count, or its outcome is not known.
    pub(super) fn not_known(&self, problem: Problem) -> HttpAnswer {
        self.retry_later(problem, Duration::ZERO, Outcome::PerhapsExecuted)
    }

    /// The answer if the handler panicked or failed.
    pub(super) fn broken(&self) -> HttpAnswer {
        self.not_known(Problem::new(ProblemType::OutcomeUnknown).status(StatusCode::INTERNAL_SERVER_ERROR))
    }

    fn in_flight(&self, key: &RecordKey, mount: &str, wait: Duration) -> HttpAnswer {
        if self.operation().while_in_flight != WhileInFlight::Accept {
            return self.retry_later(Problem::new(ProblemType::InFlight), wait, Outcome::NotExecuted);
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
}
