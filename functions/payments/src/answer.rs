//! The answers that end a payment: made in one place, so that what reconciliation writes down later is byte for byte what
//! the handler would have answered.

use axum::{body::Body, http::StatusCode, response::Response};

use crate::{Payment, error::PaymentError};

/// Status, headers and body.
pub type Answer = (u16, Vec<(String, String)>, Vec<u8>);

/// The 201 for this payment.
pub fn created(payment: &Payment) -> Answer {
    let headers =
        [("content-type", "application/json".to_owned()), ("location", format!("/payments/{}", payment.id))];
    let body = serde_json::to_vec(payment).expect("a payment is strings and an integer");
    (StatusCode::CREATED.as_u16(), headers.map(|(name, value)| (name.to_owned(), value)).into(), body)
}

/// The 402 for a card that was declined.
pub fn declined() -> Answer {
    PaymentError::Declined.answer()
}

pub(crate) fn response((status, headers, body): Answer) -> Response {
    let builder = headers
        .iter()
        .fold(Response::builder().status(status), |builder, (name, value)| builder.header(name, value));
    builder
        .body(Body::from(body))
        .expect("names and values are plain text, and the payment's id is made by us")
}
