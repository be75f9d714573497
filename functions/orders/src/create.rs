//! `POST /orders`: one charge and one piece of stock for each idempotency key, whatever interrupts it.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
    response::{IntoResponse, Response},
};
use lambda_idempotency::{
    engine::{CallError, Committed, Execution, PhaseError},
    http::NotBegun,
    record::Answer,
};
use payments::{NewPayment, Refund, malformed};

use crate::{
    answer,
    booking::Booking,
    order::{Charging, Order, OrderPlaced, OrderRequest, Status},
    policy::{CHARGE_PHASE, INTENT_PHASE, KEYS_LIVE, REFUND_PHASE, STOCK_PHASE, Services},
    test_cards,
};

const SHAPE: &str = "the body must be an object with customerId, sku, quantity and amountCents (whole numbers above 0), currency and \
                     source, and nothing else";

pub(crate) async fn create(
    State(services): State<Services>,
    execution: Execution,
    order: Result<Json<OrderRequest>, JsonRejection>,
) -> Response {
    let parsed = match order {
        Ok(Json(order)) => {
            // Made of the operation's identity, so that every execution has the same.
            let id = format!("ord_{}", execution.downstream_key(INTENT_PHASE));
            order.parse(id).map_err(|detail| answer::invalid(422, detail))
        }
        Err(rejection) => Err(answer::invalid(rejection.status().as_u16(), malformed(&rejection, SHAPE))),
    };
    match parsed {
        Ok((order, payment)) => place(&services, &execution, order, &payment).await.into_response(),
        // An execution that resumes does not free its key by this.
        Err(invalid) => NotBegun(invalid).into_response(),
    }
}

/// Each phase is kept before the next one begins. An execution that resumes runs this from its top.
async fn place(
    services: &Services,
    execution: &Execution,
    mut order: Order,
    payment: &NewPayment,
) -> Result<Answer, PhaseError> {
    let Services { shop, provider, sealing_keys, placed } = services;
    let (tenant, record) = (execution.tenant().as_str(), execution.record_key());
    let card = test_cards::Card { execution, source: &payment.source };

    // Write first, call second: whatever happens later, there is an order to look at.
    let intent = shop.recording(tenant, &order).if_absent();
    if let Committed::Refused(_) = execution.commit(INTENT_PHASE, vec![intent]).await? {
        return Ok(answer::exists(&order));
    }
    card.at("phase_1");

    let charging = execution
        .phase(CHARGE_PHASE)
        .keys_live(KEYS_LIVE)
        .ask(|key| async move { Ok(provider.find(&key).await?.map(Charging::from)) })
        .call(async |key| {
            card.at("before");
            let charge = provider.charge(record, sealing_keys, payment, &key).await;
            card.at("after");
            charge.map_or_else(Charging::try_from, |charge| Ok(charge.into()))
        })
        .await?;
    card.at("phase_2");
    if card.is_error() {
        return Ok(Answer::http(500, Vec::new(), "test card: an error without a class"));
    }

    let answer;
    (order.status, answer) = match charging {
        Charging::Declined => (Status::Declined, payments::declined()),
        Charging::Rejected => (Status::Rejected, payments::rejected()),
        Charging::Charged { id, at } => {
            let taken = execution.commit(STOCK_PHASE, vec![shop.taking(tenant, &order)]).await?;
            card.at("phase_3");
            order.charge_id = Some(id.clone());
            let charge_id = &id;
            let ended = if taken == Committed::Written {
                order.status = Status::Confirmed;
                (order.status, answer::created(&order))
            } else {
                let refund: Refund = execution
                    .phase(REFUND_PHASE)
                    .keys_live(KEYS_LIVE)
                    .ask(|key| async move { Ok::<_, CallError>(provider.find_refund(&key).await?) })
                    .call(async |key| {
                        let refund = provider.refund(record, sealing_keys, charge_id, &key).await;
                        card.at("refund");
                        refund
                    })
                    .await?;
                card.at("phase_4");
                let booking = Booking::refund(&order, &id, &refund.id);
                execution.write(shop.booking(tenant, &booking, refund.created_at))?;
                (Status::SoldOut, answer::sold_out())
            };
            execution.write(shop.booking(tenant, &Booking::charge(&order, &id), at))?;
            ended
        }
    };
    // It commits together with the completion, and with what was booked above.
    if order.status == Status::Confirmed {
        execution.publish(placed, &OrderPlaced::of(&order, card.test()))?;
    }
    execution.write(shop.recording(tenant, &order))?;
    Ok(answer)
}
