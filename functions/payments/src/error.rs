//! The problems that clients get when there is no payment, and the outcome that each reports to the guard.

use axum::{
    Extension,
    extract::rejection::JsonRejection,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use lambda_idempotency::{http::Outcome, record::Answer};
use serde_json::json;

/// Why there is no payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PaymentError {
    /// The order is invalid, and nothing was done. A corrected one may have the same key.
    Invalid(StatusCode, &'static str),
    /// The order is invalid now, but was accepted in an earlier attempt, which may have paid it.
    NoLongerValid(StatusCode, &'static str),
    /// The card was declined. Final: a completed operation.
    Declined,
    /// The provider rejected the order. Final.
    Rejected,
    /// The provider could not be reached: certainly not charged.
    ProviderAway,
    /// The provider's answer was lost: perhaps charged.
    AnswerLost,
}

impl PaymentError {
    /// What is known of the effect.
    fn outcome(self) -> Outcome {
        match self {
            Self::Invalid(..) => Outcome::NotBegun,
            Self::Declined | Self::Rejected => Outcome::Completed,
            Self::ProviderAway | Self::NoLongerValid(..) => Outcome::NotExecuted,
            Self::AnswerLost => Outcome::PerhapsExecuted,
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Invalid(status, _) | Self::NoLongerValid(status, _) => status,
            Self::Declined => StatusCode::PAYMENT_REQUIRED,
            Self::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
            Self::ProviderAway => StatusCode::SERVICE_UNAVAILABLE,
            Self::AnswerLost => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Type, title and detail.
    fn texts(self) -> (&'static str, &'static str, &'static str) {
        let same_key = "Send the same request with the same key again.";
        match self {
            Self::Invalid(_, detail) | Self::NoLongerValid(_, detail) => {
                ("invalid-order", "The order is invalid", detail)
            }
            Self::Declined => ("card-declined", "The card was declined", "Use another card, and a new key."),
            Self::Rejected => {
                ("order-rejected", "The provider rejected the order", "Correct it, and use a new key.")
            }
            Self::ProviderAway => ("provider-away", "The card was not charged", same_key),
            Self::AnswerLost => (
                "charge-unknown",
                "It is not known whether the card was charged",
                "Do not use a new key: send the same request with the same key later.",
            ),
        }
    }

    pub(crate) fn answer(self) -> Answer {
        let (kind, title, detail) = self.texts();
        let detail = match self {
            Self::Invalid(..) => format!("{detail}. Correct it and send it again with the same key."),
            Self::NoLongerValid(..) => {
                format!("{detail}. It was accepted before: look up the payment before you use a new key.")
            }
            _ => detail.to_owned(),
        };
        problem(self.status().as_u16(), &format!("urn:payments:{kind}"), title, &detail)
    }
}

/// A problem (RFC 9457) as an answer.
pub fn problem(status: u16, kind: &str, title: &str, detail: &str) -> Answer {
    let problem = json!({ "type": kind, "title": title, "status": status, "detail": detail });
    let content_type = ("content-type".to_owned(), "application/problem+json".to_owned());
    Answer::http(status, vec![content_type], problem.to_string())
}

/// What is wrong with a body that should have had this `shape`. Not the rejection's own text: it can repeat what the client sent.
pub fn malformed(rejection: &JsonRejection, shape: &'static str) -> &'static str {
    match rejection {
        JsonRejection::JsonSyntaxError(_) => "the body is not JSON",
        JsonRejection::MissingJsonContentType(_) => "the content type must be application/json",
        JsonRejection::BytesRejection(_) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            "the body is larger than 2 MB"
        }
        JsonRejection::BytesRejection(_) => "the body cannot be read",
        _ => shape,
    }
}

/// The refusal of an invalid transfer, before anything is done. A corrected one may have the same key.
pub(crate) fn invalid(detail: &'static str) -> Response {
    let problem = json!({
        "type": "urn:payments:invalid-transfer",
        "title": "The transfer is invalid",
        "status": 422,
        "detail": format!("{detail}. Correct it and send it again with the same key."),
    });
    let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
    (StatusCode::UNPROCESSABLE_ENTITY, Extension(Outcome::NotBegun), content_type, problem.to_string())
        .into_response()
}

/// The 402 for a declined card, as the handler answers it and as reconciliation records it.
pub fn declined() -> Answer {
    PaymentError::Declined.answer()
}

/// The 422 for an order that the provider rejected.
pub fn rejected() -> Answer {
    PaymentError::Rejected.answer()
}

impl IntoResponse for PaymentError {
    fn into_response(self) -> Response {
        let mut response = (Extension(self.outcome()), self.answer()).into_response();
        if matches!(self, Self::ProviderAway | Self::AnswerLost) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
