//! The document of a problem, which each contract writes in another shape.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::{ProblemType, problem_type::Words};

/// The shape of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// [RFC 9457](https://www.rfc-editor.org/rfc/rfc9457).
    Rfc9457,
    /// [Stripe's error object](https://docs.stripe.com/api/errors).
    Stripe,
    /// [ACP's flat error](https://github.com/agentic-commerce-protocol/agentic-commerce-protocol/blob/main/rfcs/rfc.agentic_checkout.md).
    Acp,
}

/// Where problems lead.
#[derive(Clone, Copy)]
pub(super) struct Links<'a> {
    /// What `type` begins with, if the API chooses it.
    pub(super) types: Option<&'a str>,
    pub(super) documentation: Option<&'a str>,
}

#[derive(Serialize)]
struct Rfc9457<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Error<'a> {
    r#type: &'a str,
    code: &'a str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    doc_url: Option<&'a str>,
}

impl Shape {
    pub(super) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Rfc9457 => "application/problem+json",
            Self::Stripe | Self::Acp => "application/json",
        })
    }

    /// The contract's own words for a problem.
    fn words(self, problem: ProblemType) -> Words {
        match self {
            Self::Rfc9457 => Words::default(),
            Self::Stripe => problem.entry().stripe,
            Self::Acp => problem.entry().acp,
        }
    }

    pub(super) fn status(self, problem: ProblemType) -> StatusCode {
        self.words(problem).status.unwrap_or(problem.entry().status)
    }

    pub(super) fn code(self, problem: ProblemType) -> &'static str {
        self.words(problem).code.unwrap_or(problem.name())
    }

    /// The contract's own `type`, for an answer of this status.
    fn kind(self, problem: ProblemType, status: StatusCode) -> &'static str {
        let by_status = match (self, status.is_server_error()) {
            (Self::Stripe, true) => "api_error",
            (Self::Stripe, false) => "invalid_request_error",
            (Self::Acp | Self::Rfc9457, true) => "processing_error",
            (Self::Acp | Self::Rfc9457, false) => "invalid_request",
        };
        self.words(problem).kind.unwrap_or(by_status)
    }

    /// The document of a problem. `detail` is text to read, `reason` a stable word.
    pub(super) fn write(
        self,
        problem: ProblemType,
        status: StatusCode,
        detail: &str,
        reason: Option<&str>,
        Links { types, documentation }: Links<'_>,
    ) -> Bytes {
        let (title, code) = (problem.entry().title, self.code(problem));
        let error = |doc_url| Error {
            r#type: self.kind(problem, status),
            code,
            message: format!("{title}. {detail}"),
            doc_url,
        };
        let written = match self {
            Self::Rfc9457 => serde_json::to_vec(&Rfc9457 {
                r#type: types.map_or_else(|| problem.uri(), |base| format!("{base}{}", problem.name())),
                title,
                status: status.as_u16(),
                detail,
                code,
                reason,
            }),
            Self::Stripe => serde_json::to_vec(&BTreeMap::from([("error", error(documentation))])),
            Self::Acp => serde_json::to_vec(&error(None)),
        };
        // Strings and a number: this cannot fail. An empty body with the right status would still be correct.
        written.unwrap_or_default().into()
    }
}
