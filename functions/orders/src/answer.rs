//! The answers of an order.

use lambda_idempotency::record::Answer;
use payments::problem;

use crate::Order;

/// The 201 for this order.
pub(crate) fn created(order: &Order) -> Answer {
    let headers =
        [("content-type", "application/json".to_owned()), ("location", format!("/orders/{}", order.id))];
    // Strings and integers: this cannot fail.
    let body = serde_json::to_vec(order).unwrap_or_default();
    Answer::http(201, headers.map(|(name, value)| (name.to_owned(), value)).into(), body)
}

/// There is not enough of the article, and the charge was given back.
pub(crate) fn sold_out() -> Answer {
    let detail = "The charge was given back. Use a new key for another order.";
    problem(409, "urn:orders:sold-out", "There is not enough of the article", detail)
}

/// The same order was placed before, longer ago than answers are kept.
pub(crate) fn exists(order: &Order) -> Answer {
    let detail = format!("See /orders/{}. Use a new key for another order.", order.id);
    problem(409, "urn:orders:exists", "The order was placed before", &detail)
}

/// The order is invalid, and nothing was done.
pub(crate) fn invalid(status: u16, detail: &str) -> Answer {
    let detail = format!("{detail}. Correct it and send it again with the same key.");
    problem(status, "urn:orders:invalid-order", "The order is invalid", &detail)
}

pub(crate) fn not_found(title: &str) -> Answer {
    problem(404, "urn:orders:not-found", title, "It is none of yours.")
}
