//! The guard's responses: to a request that may not run, or whose outcome is not known.

use std::{mem, time::Duration};

use bytes::Bytes;
use http::{Extensions, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;

use super::{
    Outcome, Problem, ProblemType,
    guarded::{By, Guarded},
    problem_type::Entry,
    replay,
    settings::Guard,
};
use crate::{
    engine::{Replay, Request},
    key::RecordKey,
    operation::WhileInFlight,
    record::{Says, StateName},
    time_budget::MAX_RETRY_AFTER,
};

/// How much is left, and until when
/// ([draft](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-10#section-4)).
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Marks the response of a handler whose argument no guard provides.
#[derive(Clone, Copy)]
pub(super) struct NoArgument;

pub(super) type HttpAnswer = Response<Full<Bytes>>;

impl Guard {
    /// What the client is told in place of its handler's response.
    pub(super) fn instead(&self, says: Says<Replay>, request: &Request, mount: &str) -> HttpAnswer {
        match says {
            Says::Replay(replay) => replay::response(replay, &self.settings.profile),
            Says::Refused(Replay { answer, expires_at, .. }) => replay::first(answer, Some(expires_at)),
            Says::InFlight { wait, lease_left, state } => {
                let mut response = self.in_flight(&request.key, mount, state, wait);
                let by = By::Guard { problem: ProblemType::InFlight, wait, lease_left };
                response.extensions_mut().insert(Guarded::of(by));
                response
            }
            // Not 202: there may be no status yet.
            Says::PerhapsInFlight => self.problem(ProblemType::InFlight),
            Says::AnsweredElsewhere => self.problem(ProblemType::AnsweredElsewhere),
            Says::Mismatch => self.problem(ProblemType::KeyReused),
            Says::Unknown { wait } => self.retry_later(Problem::new(ProblemType::OutcomeUnknown), wait),
            Says::Unconfirmed => self.unknown(StatusCode::SERVICE_UNAVAILABLE),
            Says::MayNotBegin => self.retry_later(Problem::not_admitted(&request.admission), Duration::ZERO),
            // Nothing else has its own answer here: its front sends that. A handler that failed has none.
            Says::NotCommitted | Says::Own { .. } | Says::Released => {
                let mut response = self.problem(ProblemType::StoreUnavailable);
                response.extensions_mut().insert(Guarded::executed(Outcome::NotExecuted));
                response
            }
            Says::OverBound { wait } => self.over_bound(wait),
            Says::Stopped => self.retry_later(Problem::new(ProblemType::TenantStopped), MAX_RETRY_AFTER),
            Says::TooLate | Says::Unavailable | Says::Throttled => {
                self.problem(ProblemType::StoreUnavailable)
            }
            Says::Interrupted | Says::OtherPhases => self.problem(ProblemType::Interrupted),
            Says::Unreadable => self.problem(ProblemType::RecordUnreadable),
            Says::Gone => self.problem(ProblemType::OperationExpired),
        }
    }

    /// A problem of this type.
    pub(super) fn problem(&self, problem: ProblemType) -> HttpAnswer {
        self.retry_later(Problem::new(problem), Duration::ZERO)
    }

    /// The refusal of a handler's argument in the words of the profile, which the argument does not know; `None` for any other response.
    pub(super) fn in_its_words(&self, extensions: &mut Extensions) -> Option<HttpAnswer> {
        extensions.remove::<NoArgument>()?;
        let mut response = Problem::new(ProblemType::NotGuarded).into_response(&self.settings.profile);
        *response.extensions_mut() = mem::take(extensions);
        Some(response)
    }

    /// A problem, marked with its outcome for a guard around this one. If it may go away, its `Retry-After` is this wait, within the
    /// operation's bounds.
    pub(super) fn retry_later(&self, problem: Problem, wait: Duration) -> HttpAnswer {
        let Entry { retry, outcome, title, .. } = problem.problem.entry();
        let retry_after = retry.then(|| self.operation().retry_after_of(wait));
        let mut response = Problem { retry_after, ..problem.clone() }.into_response(&self.settings.profile);
        response.extensions_mut().insert(outcome);
        let why = Some(problem.detail.unwrap_or(title.into()));
        let (problem, wait) = (problem.problem, retry_after.unwrap_or_default());
        let by = By::Guard { problem, wait, lease_left: Duration::ZERO };
        response.extensions_mut().insert(Guarded { why, ..Guarded::of(by) });
        response
    }

    /// The outcome is not known, with a status of its own: the handler panicked or failed, or its transaction is not confirmed.
    pub(super) fn unknown(&self, status: StatusCode) -> HttpAnswer {
        let problem = Problem { status: Some(status), ..Problem::new(ProblemType::OutcomeUnknown) };
        self.retry_later(problem, Duration::ZERO)
    }

    /// Its tenant is over a bound for so long.
    fn over_bound(&self, wait: Duration) -> HttpAnswer {
        let mut response = self.retry_later(Problem::new(ProblemType::OverBound), wait);
        let seconds = wait.as_millis().div_ceil(1_000).max(1);
        if let Ok(limit) = HeaderValue::try_from(format!("\"new-operations\";r=0;t={seconds}")) {
            response.headers_mut().insert(RATE_LIMIT, limit);
        }
        response
    }

    fn in_flight(&self, key: &RecordKey, mount: &str, state: StateName, wait: Duration) -> HttpAnswer {
        let accepts = self.operation().while_in_flight == WhileInFlight::Accept;
        if !accepts && self.operation().asynchronous.is_none() {
            return self.retry_later(Problem::new(ProblemType::InFlight), wait);
        }
        self.waiting(key, mount, state, wait)
    }
}
