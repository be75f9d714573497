//! The 201 of a payment. It is built in one place, so that reconciliation records the same bytes that the handler would have
//! answered. The other final answer, [`declined`](crate::declined), is with the errors.

use lambda_idempotency::record::Answer;

use crate::Payment;

/// The 201 for this payment.
pub fn created(payment: &Payment) -> Answer {
    let headers =
        [("content-type", "application/json".to_owned()), ("location", format!("/payments/{}", payment.id))];
    // Strings and an integer: this cannot fail.
    let body = serde_json::to_vec(payment).unwrap_or_default();
    Answer::http(201, headers.map(|(name, value)| (name.to_owned(), value)).into(), body)
}
