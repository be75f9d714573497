//! How a problem is serialized: each contract has a shape of its own.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::ProblemType;

/// The shape of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// [RFC 9457](https://www.rfc-editor.org/rfc/rfc9457).
    Problem,
    /// [Stripe's error object](https://docs.stripe.com/api/errors).
    Stripe,
    /// [ACP's flat error](https://github.com/agentic-commerce-protocol/agentic-commerce-protocol/blob/main/rfcs/rfc.agentic_checkout.md).
    Acp,
}

/// What a problem says.
pub(super) struct Words<'a> {
    pub(super) problem: ProblemType,
    pub(super) status: StatusCode,
    pub(super) title: &'a str,
    pub(super) detail: String,
    pub(super) code: &'a str,
    pub(super) reason: Option<&'a str>,
    pub(super) documentation: Option<&'a str>,
}

#[derive(Serialize)]
struct Document<'a> {
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

#[derive(Serialize)]
struct Envelope<'a> {
    error: Error<'a>,
}

impl Shape {
    pub(super) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Problem => "application/problem+json",
            Self::Stripe | Self::Acp => "application/json",
        })
    }

    pub(super) fn write(self, words: Words<'_>) -> Bytes {
        let Words { problem, status, title, detail, code, reason, documentation } = words;
        let error = |r#type, doc_url| Error { r#type, code, message: format!("{title}. {detail}"), doc_url };
        let written = match self {
            Self::Problem => serde_json::to_vec(&Document {
                r#type: problem.uri(),
                title,
                status: status.as_u16(),
                detail: &detail,
                code,
                reason,
            }),
            Self::Stripe => {
                serde_json::to_vec(&Envelope { error: error(stripe_type(problem, status), documentation) })
            }
            Self::Acp => serde_json::to_vec(&error(acp_type(problem, status), None)),
        };
        // Strings and a number: this cannot fail. An empty body with the right status would still be correct.
        written.unwrap_or_default().into()
    }
}

fn stripe_type(problem: ProblemType, status: StatusCode) -> &'static str {
    match problem {
        ProblemType::KeyReused => "idempotency_error",
        _ if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}

fn acp_type(problem: ProblemType, status: StatusCode) -> &'static str {
    match problem {
        ProblemType::StoreUnavailable | ProblemType::RecordUnreadable => "service_unavailable",
        ProblemType::OutcomeUnknown | ProblemType::AnsweredElsewhere => "processing_error",
        _ if status.is_server_error() => "processing_error",
        _ => "invalid_request",
    }
}
