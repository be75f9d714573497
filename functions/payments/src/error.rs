//! What clients are told when there is no payment, and what the guard is told about the card.

use axum::{
    Extension,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use lambda_idempotency::{http::Outcome, record::Answer};
use serde_json::json;

/// Why there is no payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PaymentError {
    /// The order makes no sense, and nothing was done: a corrected one may come under the same key.
    Invalid(StatusCode, &'static str),
    /// The order makes no sense, and did when it came first: it may have been paid then.
    NoLongerValid(StatusCode, &'static str),
    /// The card was declined. Final: a completed operation.
    Declined,
    /// The provider would not take the order. Final.
    Rejected,
    /// The provider could not be reached: certainly not charged.
    ProviderAway,
    /// The provider's answer was lost: perhaps charged.
    AnswerLost,
    /// Charged, and not written down.
    NotRecorded,
}

impl PaymentError {
    /// What this says of the effect.
    fn outcome(self) -> Outcome {
        match self {
            Self::Invalid(..) => Outcome::NotBegun,
            Self::Declined | Self::Rejected => Outcome::Completed,
            Self::ProviderAway | Self::NoLongerValid(..) => Outcome::NotExecuted,
            Self::AnswerLost | Self::NotRecorded => Outcome::PerhapsExecuted,
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Invalid(status, _) | Self::NoLongerValid(status, _) => status,
            Self::Declined => StatusCode::PAYMENT_REQUIRED,
            Self::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
            Self::ProviderAway => StatusCode::SERVICE_UNAVAILABLE,
            Self::AnswerLost => StatusCode::GATEWAY_TIMEOUT,
            Self::NotRecorded => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn words(self) -> (&'static str, &'static str, &'static str) {
        let same_key = "Send the same request with the same key again.";
        match self {
            Self::Invalid(_, detail) | Self::NoLongerValid(_, detail) => {
                ("invalid-order", "The order makes no sense", detail)
            }
            Self::Declined => ("card-declined", "The card was declined", "Use another card, and a new key."),
            Self::Rejected => {
                ("order-rejected", "The provider rejected the order", "Correct it, and use a new key.")
            }
            Self::ProviderAway => ("provider-away", "The card was not charged", same_key),
            Self::AnswerLost | Self::NotRecorded => (
                "charge-unknown",
                "It is not known whether the card was charged",
                "Do not use a new key: send the same request with the same key later.",
            ),
        }
    }

    pub(crate) fn answer(self) -> Answer {
        let (kind, title, detail) = self.words();
        let problem = json!({
            "type": format!("urn:payments:{kind}"),
            "title": title,
            "status": self.status().as_u16(),
            "detail": match self {
                Self::Invalid(..) => format!("{detail}. Correct it; the same key will do."),
                Self::NoLongerValid(..) => {
                    format!("{detail}. It was taken before: look the payment up before you use a new key.")
                }
                _ => detail.to_owned(),
            },
        });
        let content_type = ("content-type".to_owned(), "application/problem+json".to_owned());
        Answer::http(self.status().as_u16(), vec![content_type], problem.to_string())
    }
}

/// The 402 for a card that was declined, as the handler answers it and as reconciliation writes it down.
pub fn declined() -> Answer {
    PaymentError::Declined.answer()
}

impl IntoResponse for PaymentError {
    fn into_response(self) -> Response {
        let mut response = (Extension(self.outcome()), self.answer()).into_response();
        if matches!(self, Self::ProviderAway | Self::AnswerLost | Self::NotRecorded) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
