//! `POST /payments`: one charge for each idempotency key.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use lambda_idempotency::engine::Execution;

use crate::{
    Payment, answer,
    error::{PaymentError, malformed},
    order::{NewPayment, Order},
    policy::{CHARGE_PHASE, PAYMENT_PHASE, Services},
    provider::NotCharged,
};

pub(crate) async fn create(
    State(services): State<Services>,
    execution: Execution,
    order: Result<Json<Order>, JsonRejection>,
) -> Result<Response, PaymentError> {
    let order = parse(&execution, order)?;
    #[cfg(feature = "test-cards")]
    crate::test_cards::before_charge(&order.source);

    let key = execution.downstream_key(CHARGE_PHASE);
    let (provider, record) = (&services.provider, execution.record_key());
    let charge = provider.charge(record, &services.sealing_keys, &order, &key).await;
    let charge = charge.map_err(failure)?;

    #[cfg(feature = "test-cards")]
    if let Some(answer) = crate::test_cards::after_charge(&order.source) {
        return Ok(answer);
    }
    let payment = Payment::of(&charge, &execution.downstream_key(PAYMENT_PHASE))
        .ok_or_else(|| failure(NotCharged::Perhaps("the charge does not name its customer".to_owned())))?;
    // It commits together with the completion.
    let recording = services.ledger.recording(execution.tenant().as_str(), &payment, charge.created_at);
    if let Err(error) = execution.write(recording) {
        let cause = format!("charged, but the payment cannot be recorded: {error}");
        return Err(failure(NotCharged::Perhaps(cause)));
    }
    Ok(answer::created(&payment).into_response())
}

fn parse(
    execution: &Execution,
    order: Result<Json<Order>, JsonRejection>,
) -> Result<NewPayment, PaymentError> {
    // On a retry, the order was accepted before, and may have been paid.
    let invalid = |status, detail| match execution.attempts() {
        1 => PaymentError::Invalid(status, detail),
        _ => PaymentError::NoLongerValid(status, detail),
    };
    let Json(order) = order.map_err(|rejection| {
        let shape = "the body must be an object with customerId, amountCents (a whole number above 0), currency and source, \
                     and nothing else";
        invalid(rejection.status(), malformed(&rejection, shape))
    })?;
    order.try_into().map_err(|detail| invalid(StatusCode::UNPROCESSABLE_ENTITY, detail))
}

fn failure(not_charged: NotCharged) -> PaymentError {
    match not_charged {
        NotCharged::Declined => PaymentError::Declined,
        NotCharged::Rejected => PaymentError::Rejected,
        NotCharged::NeverSent => {
            tracing::warn!("the payment provider refuses connections: not charged");
            PaymentError::ProviderAway
        }
        NotCharged::Perhaps(cause) => {
            tracing::error!(cause, "the payment provider's answer was lost: perhaps charged");
            PaymentError::AnswerLost
        }
    }
}
