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

/// A valid order of a charge.
pub struct NewPayment {
    /// The customer who pays.
    pub customer_id: String,
    /// How much, in the currency's minor unit.
    pub amount_cents: u64,
    /// ISO 4217.
    pub currency: String,
    /// The card's token. Never logged, never kept.
    pub source: String,
}

impl TryFrom<Order> for NewPayment {
    type Error = &'static str;

    fn try_from(order: Order) -> Result<Self, Self::Error> {
        let Order { customer_id, amount_cents, currency, source } = order;
        Self { customer_id, amount_cents, currency, source }.checked()
    }
}

impl NewPayment {
    /// Checks it.
    ///
    /// # Errors
    /// If it is invalid: why, in words of ours alone.
    pub fn checked(self) -> Result<Self, &'static str> {
        let Self { customer_id, amount_cents, currency, source } = &self;
        if customer_id.is_empty() || customer_id.len() > 128 {
            return Err("customerId must have 1 to 128 characters");
        }
        if !(1..=1_000_000_000).contains(amount_cents) {
            return Err("amountCents must be an integer from 1 to 1000000000");
        }
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err("currency must be an ISO 4217 code such as EUR");
        }
        if source.is_empty() || source.len() > 128 {
            return Err("source must be the token of a card");
        }
        Ok(self)
    }
}
