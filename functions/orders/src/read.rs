//! The routes that only read.

use axum::{
    Json,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use payments::{Caller, MAX_ID, failed};

use crate::{answer, order::is_sku, policy::Services, shop::Stock};

pub(crate) async fn order(
    State(services): State<Services>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
) -> Response {
    let not_found = || answer::not_found("No such order").into_response();
    if id.len() > MAX_ID {
        return not_found();
    }
    match services.shop.order(tenant.as_str(), &id).await {
        Ok(Some(order)) => Json(order).into_response(),
        Ok(None) => not_found(),
        Err(error) => failed(&*error),
    }
}

pub(crate) async fn stock(
    State(services): State<Services>,
    Caller(tenant): Caller,
    Path(sku): Path<String>,
) -> Response {
    if !is_sku(&sku) {
        return answer::not_found("No such article").into_response();
    }
    match services.shop.available(tenant.as_str(), &sku).await {
        Ok(available) => Json(Stock { sku: &sku, available }).into_response(),
        Err(error) => failed(&*error),
    }
}
