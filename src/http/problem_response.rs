//! The response that a client gets instead of an answer: a problem, with its status and headers.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, LINK, RETRY_AFTER, WWW_AUTHENTICATE},
};
use http_body_util::Full;

use super::{ProblemType, Profile};
use crate::time_budget::DEFAULT_RETRY_AFTER;

/// A problem, as one request gets it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Problem {
    problem: ProblemType,
    status: Option<StatusCode>,
    detail: Option<String>,
    reason: Option<&'static str>,
    retry_after: Option<Duration>,
    advice: Option<ProblemType>,
}

impl Problem {
    /// A problem of this type.
    pub fn new(problem: ProblemType) -> Self {
        Self { problem, status: None, detail: None, reason: None, retry_after: None, advice: None }
    }

    /// Answers with this status, whatever the profile says.
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds what exactly is wrong: nothing internal, and nothing that the client sent.
    pub fn detail(mut self, detail: String) -> Self {
        self.detail = Some(detail);
        self
    }

    /// Adds the reason, in one stable word.
    pub fn reason(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Replaces the advice by another problem type's.
    pub(super) fn advice_of(mut self, problem: ProblemType) -> Self {
        self.advice = Some(problem);
        self
    }

    /// Sets `Retry-After`: whole seconds, at least one. Without this, a problem that may go away has
    /// [`DEFAULT_RETRY_AFTER`].
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The response, in the words of `profile`.
    pub fn into_response(self, profile: &Profile) -> Response<Full<Bytes>> {
        let (status, body) = self.document(profile);
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, profile.shape.content_type());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::UNAUTHORIZED {
            // Required by RFC 9110, section 15.5.2. Callers are verified in front of the function, not by it.
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let retry = self.problem.entry().retry.then_some(DEFAULT_RETRY_AFTER);
        if let Some(wait) = self.retry_after.or(retry) {
            headers.insert(RETRY_AFTER, seconds(wait));
        }
        if let Some(url) = &profile.documentation {
            let link = format!("<{url}>; rel=\"describedby\"; type=\"text/html\"");
            if let Ok(link) = HeaderValue::try_from(link) {
                headers.insert(LINK, link);
            }
        }
        response
    }

    /// The status and the document, in the words of `profile`.
    pub(crate) fn document(&self, profile: &Profile) -> (StatusCode, Bytes) {
        let advice = self.advice.unwrap_or(self.problem).entry().advice;
        let status = self.status.unwrap_or_else(|| profile.status_of(self.problem));
        let detail = match &self.detail {
            Some(detail) => &format!("{detail}. {advice}"),
            None => advice,
        };
        let documentation = profile.documentation.as_deref();
        (status, profile.shape.write(self.problem, status, detail, self.reason, documentation))
    }
}

/// A duration in whole seconds, rounded up, at least one.
pub(super) fn seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1))
}
