//! A problem, as one request gets it.

use std::{borrow::Cow, time::Duration};

use http::StatusCode;

use super::{
    ProblemType,
    tenant::{BEARER, TenantResolver},
};
use crate::{
    key::refusal::KeyRefusal,
    record::{Admission, Refusal},
};

/// Why a request is refused whose body is too long to be executed later.
pub(super) const BODY_TOO_LONG: &str = "body-too-long";

/// A problem, as one request gets it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Problem {
    pub(super) problem: ProblemType,
    /// The status, if the profile does not choose it.
    pub(super) status: Option<StatusCode>,
    /// What exactly is wrong: nothing internal, and nothing that the client sent.
    pub(super) detail: Option<Cow<'static, str>>,
    /// The reason, in one stable word.
    pub(super) reason: Option<&'static str>,
    /// The time until a retry. Without it, a problem that may go away has [`DEFAULT_RETRY_AFTER`](crate::time_budget::DEFAULT_RETRY_AFTER).
    pub(super) retry_after: Option<Duration>,
    /// The problem type whose advice the client gets.
    pub(super) advice: ProblemType,
    /// The challenge of a 401.
    pub(super) challenge: &'static str,
}

impl Problem {
    /// A problem of this type.
    pub fn new(problem: ProblemType) -> Self {
        Self {
            problem,
            status: None,
            detail: None,
            reason: None,
            retry_after: None,
            advice: problem,
            challenge: BEARER,
        }
    }

    /// That this resolver finds no verified caller: 401, with its [challenge](TenantResolver::challenge).
    pub fn unverified(resolver: &(impl TenantResolver + ?Sized)) -> Self {
        Self { challenge: resolver.challenge(), ..Self::new(ProblemType::TenantMissing) }
    }

    /// Why a request is refused: by its key alone.
    pub(super) fn refused(KeyRefusal { reason, detail }: KeyRefusal) -> Self {
        let problem = match reason {
            "missing" => ProblemType::KeyMissing,
            "too-old" => ProblemType::KeyTooOld,
            _ => ProblemType::KeyMalformed,
        };
        Self { detail: Some(detail), reason: Some(reason), ..Self::new(problem) }
    }

    /// What a client gets whose request may not begin an execution, if there is no record. It advises no new key, because the old one may
    /// have done something (T43): settings change, proxies drop headers, records expire.
    pub(super) fn not_admitted(admission: &Admission) -> Self {
        let Some(Refusal { reason, detail, .. }) = admission.refusal() else {
            return Self::new(ProblemType::KeyTooOld);
        };
        match *reason {
            BODY_TOO_LONG => Self { detail: Some(detail.clone()), ..Self::new(ProblemType::BodyTooLong) },
            reason => {
                let refusal = KeyRefusal { reason, detail: detail.clone() };
                Self { advice: ProblemType::KeyTooOld, ..Self::refused(refusal) }
            }
        }
    }

    /// Says what exactly is wrong.
    #[cfg(feature = "lambda")]
    pub(crate) fn detail(mut self, detail: &'static str) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// What it is.
    pub fn problem_type(&self) -> ProblemType {
        self.problem
    }

    /// Why, in one stable word, such as `too-long` for a key.
    pub fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// What is wrong, and what the client should do, in sentences. Nothing that it sent is in them.
    pub fn message(&self) -> String {
        format!("{}. {}", self.problem.entry().title, self.explained())
    }

    pub(super) fn explained(&self) -> Cow<'static, str> {
        let advice = self.advice.entry().advice;
        match &self.detail {
            Some(detail) => format!("{detail}. {advice}").into(),
            None => advice.into(),
        }
    }
}
