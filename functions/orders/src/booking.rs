//! Money that the provider moved for an order, as our ledger has it.

use payments::Kind;
use serde::{Deserialize, Serialize};

use crate::order::Order;

/// A charge or a refund of an order. The amount is what the order asked for, not what the provider says: the comparison of both ledgers shows
/// where they differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Booking {
    /// The provider's id of the charge or the refund.
    pub id: String,
    /// Which of them it is.
    pub kind: Kind,
    /// The order.
    pub order_id: String,
    /// How much, in the currency's minor unit.
    pub amount_cents: u64,
    /// ISO 4217.
    pub currency: String,
    /// The charge that a refund gives back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charge_id: Option<String>,
}

impl Booking {
    /// The charge of an order.
    pub(crate) fn charge(order: &Order, id: &str) -> Self {
        let (order_id, currency) = (order.id.clone(), order.currency.clone());
        let amount_cents = order.amount_cents;
        Self { id: id.to_owned(), kind: Kind::Charge, order_id, amount_cents, currency, charge_id: None }
    }

    /// The refund of an order's whole charge.
    pub(crate) fn refund(order: &Order, charge_id: &str, id: &str) -> Self {
        let charge_id = Some(charge_id.to_owned());
        Self { kind: Kind::Refund, charge_id, ..Self::charge(order, id) }
    }
}
