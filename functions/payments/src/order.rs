//! A client's order.

use serde::Deserialize;

/// An order as received.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Order {
    customer_id: String,
    amount_cents: u64,
    currency: String,
    source: String,
}

/// A valid order.
pub(crate) struct NewPayment {
    pub(crate) customer_id: String,
    pub(crate) amount_cents: u64,
    pub(crate) currency: String,
    /// The card's token. Never logged, never kept.
    pub(crate) source: String,
}

impl TryFrom<Order> for NewPayment {
    type Error = &'static str;

    fn try_from(order: Order) -> Result<Self, Self::Error> {
        let Order { customer_id, amount_cents, currency, source } = order;
        if customer_id.is_empty() || customer_id.len() > 128 {
            return Err("customerId must have 1 to 128 characters");
        }
        if !(1..=1_000_000_000).contains(&amount_cents) {
            return Err("amountCents must be an integer from 1 to 1000000000");
        }
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err("currency must be an ISO 4217 code such as EUR");
        }
        if source.is_empty() || source.len() > 128 {
            return Err("source must be the token of a card");
        }
        Ok(Self { customer_id, amount_cents, currency, source })
    }
}
