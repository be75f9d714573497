//! `POST /transfers`: money moves between two accounts, in one transaction with the answer.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use lambda_idempotency::engine::SingleTransaction;
use serde::Deserialize;
use serde_json::json;

use crate::{accounts::is_account, error::invalid, policy::Services};

/// A transfer as received.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Transfer {
    from: String,
    to: String,
    amount_cents: u64,
    /// `crash_before` or `crash_after` the commit.
    #[cfg(feature = "test-cards")]
    test: Option<String>,
}

/// Computes the answer and its writes. It may run more than once, and has no other effect.
pub(crate) async fn transfer(
    State(services): State<Services>,
    transaction: SingleTransaction,
    transfer: Result<Json<Transfer>, JsonRejection>,
) -> Response {
    let Ok(Json(transfer)) = transfer else {
        return invalid("the body must be a JSON object with from, to and amountCents, and nothing else");
    };
    let Transfer { from, to, amount_cents, .. } = &transfer;
    if !is_account(from) || !is_account(to) || from == to {
        return invalid("from and to must be two of the accounts a-0 to a-9");
    }
    if !(1..=1_000_000_000).contains(amount_cents) {
        return invalid("amountCents must be an integer from 1 to 1000000000");
    }
    for write in services.accounts.moving(transaction.tenant().as_str(), from, to, *amount_cents) {
        if let Err(error) = transaction.write(write) {
            tracing::error!(error = &error as &dyn std::error::Error, "a transfer cannot be written");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    }
    let moved = json!({ "from": from, "to": to, "amountCents": amount_cents });
    let response = (StatusCode::CREATED, Json(moved)).into_response();
    #[cfg(feature = "test-cards")]
    let response = crate::test_cards::of_transfer(transfer.test.as_deref(), response);
    response
}
