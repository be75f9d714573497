//! Refunds: a charge is given back, once for each idempotency key.

use super::{Provider, books::RefundOrder, failure, idempotency_key};
use axum::{
    Json,
    extract::{Path, State, rejection::JsonRejection},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::json;

pub async fn refund(
    State(provider): State<Provider>,
    headers: HeaderMap,
    order: Result<Json<RefundOrder>, JsonRejection>,
) -> Response {
    let Some(key) = idempotency_key(&headers) else {
        return failure(StatusCode::BAD_REQUEST, "idempotency_key_required");
    };
    let Ok(Json(order)) = order else { return failure(StatusCode::BAD_REQUEST, "invalid_request") };
    match provider.books().give_back(key, order) {
        Some(refund) => (StatusCode::CREATED, Json(refund)).into_response(),
        None => failure(StatusCode::UNPROCESSABLE_ENTITY, "no_such_charge"),
    }
}

/// The refund for a key.
pub async fn show(State(provider): State<Provider>, Path(key): Path<String>) -> Response {
    match provider.books().refund(&key) {
        Some(refund) => Json(refund).into_response(),
        None => failure(StatusCode::NOT_FOUND, "no_such_refund"),
    }
}

/// All refunds.
pub async fn list(State(provider): State<Provider>) -> Response {
    Json(json!({ "refunds": provider.books().refunds() })).into_response()
}
