//! The problems that clients get instead of an answer, with stable types and in the contract's shape.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, LINK, RETRY_AFTER, WWW_AUTHENTICATE},
};
use http_body_util::Full;

use super::{Profile, shape::Words};

/// The prefix of a problem's `type`.
const TYPE_PREFIX: &str = "urn:lambda-idempotency:";

/// The problems that the guard answers with. Their names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemType {
    /// A guarded operation was called without a key.
    KeyMissing,
    /// The key is invalid; `reason` says why.
    KeyMalformed,
    /// The key is older than the operation accepts; this request did nothing.
    KeyTooOld,
    /// Nobody verified who the caller is.
    TenantMissing,
    /// The body is too long to be read.
    BodyTooLong,
    /// The body could not be read to its end.
    BodyUnreadable,
    /// The key was used for another request.
    KeyReused,
    /// The first request under this key is still being worked on.
    InFlight,
    /// Perhaps the operation was executed; it is being reconciled.
    OutcomeUnknown,
    /// Another execution of the operation owns its record, or has settled it with an answer that cannot be read now: this one's
    /// answer does not count.
    AnsweredElsewhere,
    /// The store of records does not answer, or too little time is left to begin; this request did nothing.
    StoreUnavailable,
    /// There is a record that cannot be read; this request did nothing.
    RecordUnreadable,
    /// No operation of this key is known.
    OperationNotFound,
    /// The operation of this key has expired.
    OperationExpired,
    /// The operation was accepted, but no worker began it in time.
    Abandoned,
    /// The route is misconfigured; nothing was done.
    NotGuarded,
}

impl ProblemType {
    /// The name in the `type` URI.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyMissing => "key-missing",
            Self::KeyMalformed => "key-malformed",
            Self::KeyTooOld => "key-too-old",
            Self::TenantMissing => "tenant-missing",
            Self::BodyTooLong => "body-too-long",
            Self::BodyUnreadable => "body-unreadable",
            Self::KeyReused => "key-reused",
            Self::InFlight => "in-flight",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::AnsweredElsewhere => "answered-elsewhere",
            Self::StoreUnavailable => "store-unavailable",
            Self::RecordUnreadable => "record-unreadable",
            Self::OperationNotFound => "operation-not-found",
            Self::OperationExpired => "operation-expired",
            Self::Abandoned => "operation-abandoned",
            Self::NotGuarded => "not-guarded",
        }
    }

    /// The `type` URI.
    pub fn uri(self) -> String {
        format!("{TYPE_PREFIX}{}", self.name())
    }

    /// The status, unless the profile sets another.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::KeyMissing | Self::KeyMalformed | Self::KeyTooOld | Self::BodyUnreadable => {
                StatusCode::BAD_REQUEST
            }
            Self::TenantMissing => StatusCode::UNAUTHORIZED,
            Self::OperationNotFound => StatusCode::NOT_FOUND,
            Self::InFlight | Self::OutcomeUnknown => StatusCode::CONFLICT,
            Self::OperationExpired => StatusCode::GONE,
            Self::Abandoned => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NotGuarded => StatusCode::INTERNAL_SERVER_ERROR,
            Self::AnsweredElsewhere | Self::StoreUnavailable | Self::RecordUnreadable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::KeyMissing => "This operation needs an Idempotency-Key",
            Self::KeyMalformed => "The Idempotency-Key is malformed",
            Self::KeyTooOld => "The Idempotency-Key is too old",
            Self::TenantMissing => "The caller is not authenticated",
            Self::BodyTooLong => "The request body is too long",
            Self::BodyUnreadable => "The request body could not be read",
            Self::KeyReused => "The Idempotency-Key was used for another request",
            Self::InFlight => "A request with this Idempotency-Key is in progress",
            Self::OutcomeUnknown => "The outcome of this operation is not known yet",
            Self::AnsweredElsewhere => "The answer of this operation is not available now",
            Self::StoreUnavailable => "The service cannot guard this operation now",
            Self::RecordUnreadable => "The record of this operation cannot be read now",
            Self::OperationNotFound => "No such operation",
            Self::OperationExpired => "The operation has expired",
            Self::Abandoned => "The operation was not begun in time",
            Self::NotGuarded => "This operation is not guarded",
        }
    }

    /// What the client should do.
    const fn advice(self) -> &'static str {
        match self {
            Self::KeyMissing => {
                "Send the request with an Idempotency-Key that you made for this intent alone."
            }
            Self::KeyMalformed => {
                "Send one key of 1 to 255 visible ASCII characters, such as a UUID, in the form that this operation \
                 takes."
            }
            Self::KeyTooOld => {
                "This request did nothing; an earlier one with the same key may have. Look the resource itself up before \
                 you use a new key."
            }
            Self::TenantMissing => "Send the request with valid credentials.",
            Self::BodyTooLong => "Send a shorter body.",
            Self::BodyUnreadable => "Send the request again with the same key.",
            Self::KeyReused => {
                "This request did nothing; an earlier one with the same key may have. To retry that one, repeat it exactly; \
                 use a new key only for a new intent."
            }
            Self::InFlight => "Send the same request with the same key after the time in Retry-After.",
            Self::OutcomeUnknown => {
                "It may have been executed. Do not use a new key: send the same request with the same key after the \
                 time in Retry-After, until the outcome is known."
            }
            Self::AnsweredElsewhere => {
                "It was executed, or is being executed, by another request with this key, whose answer counts. Do not use a \
                 new key: send the same request with the same key after the time in Retry-After."
            }
            Self::StoreUnavailable | Self::RecordUnreadable => {
                "This request did nothing; an earlier one with the same key may have. Do not use a new key: send the \
                 same request with the same key after the time in Retry-After."
            }
            Self::OperationNotFound => {
                "Check the key and the operation, and that the credentials are those of the original request."
            }
            Self::OperationExpired => "Its answer is no longer kept. Look the resource itself up.",
            Self::Abandoned => {
                "Nothing was done. To have it done after all, send the request with a new key."
            }
            Self::NotGuarded => "Nothing was done. This is a fault of the service.",
        }
    }
}

/// A problem on its way to a client.
#[derive(Clone, Debug)]
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
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds what exactly is wrong: nothing internal, and nothing that the client sent.
    #[must_use]
    pub fn detail(mut self, detail: String) -> Self {
        self.detail = Some(detail);
        self
    }

    /// Adds the reason, in one stable word.
    #[must_use]
    pub fn reason(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Gives another problem type's advice instead.
    #[must_use]
    pub(super) fn advice_of(mut self, problem: ProblemType) -> Self {
        self.advice = Some(problem);
        self
    }

    /// Sets `Retry-After`: whole seconds, at least one.
    #[must_use]
    pub fn retry_after(mut self, span: Duration) -> Self {
        self.retry_after = Some(span);
        self
    }

    /// The response, in the words of `profile`.
    pub fn into_response(self, profile: &Profile) -> Response<Full<Bytes>> {
        let (status, body) = self.document(profile);
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, profile.shape().content_type());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::UNAUTHORIZED {
            // Required by RFC 9110, section 15.5.2. Callers are verified in front of the function, not by it.
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(span) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds(span));
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
        let advice = self.advice.unwrap_or(self.problem).advice();
        let status = self.status.unwrap_or_else(|| profile.status_of(self.problem));
        let words = Words {
            problem: self.problem,
            status,
            title: self.problem.title(),
            detail: match &self.detail {
                Some(detail) => format!("{detail}. {advice}"),
                None => advice.to_owned(),
            },
            code: profile.code(self.problem),
            reason: self.reason,
            documentation: profile.documentation.as_deref(),
        };
        (status, profile.shape().write(words))
    }
}

/// A span in whole seconds, rounded up, at least one.
pub(super) fn seconds(span: Duration) -> HeaderValue {
    HeaderValue::from(u64::try_from(span.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1))
}
