//! The 201 of a payment, made in one place, so that what reconciliation writes down later is byte for byte what the
//! handler would have answered. The other answer that ends one, [`declined`](crate::declined), stands with the errors.

use axum::{
    body::Body,
    http::StatusCode,
    response::{AppendHeaders, IntoResponse, Response},
};

use crate::Payment;

/// Status, headers and body.
pub type Answer = (u16, Vec<(String, String)>, Vec<u8>);

/// The 201 for this payment.
pub fn created(payment: &Payment) -> Answer {
    let headers =
        [("content-type", "application/json".to_owned()), ("location", format!("/payments/{}", payment.id))];
    // Strings and an integer: this cannot fail.
    let body = serde_json::to_vec(payment).unwrap_or_default();
    (StatusCode::CREATED.as_u16(), headers.map(|(name, value)| (name.to_owned(), value)).into(), body)
}

pub(crate) fn response((status, headers, body): Answer) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // Names and values are plain text; what is not would be answered with 500, and looked into.
    (status, AppendHeaders(headers), Body::from(body)).into_response()
}
