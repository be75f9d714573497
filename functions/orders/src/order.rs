//! An order, from the request to its end.

use lambda_idempotency::{engine::CallError, time::Timestamp};
use payments::{Charge, Found, NewPayment, NotCharged};
use serde::{Deserialize, Serialize};

/// The largest quantity of one order.
pub(crate) const MAX_QUANTITY: u64 = 100;

/// An order as received.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OrderRequest {
    customer_id: String,
    sku: String,
    quantity: u64,
    amount_cents: u64,
    currency: String,
    source: String,
}

/// An order, as its row and its client have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// Its id; the same in every execution of the same operation.
    pub id: String,
    /// What became of it.
    pub status: Status,
    /// The customer who pays.
    pub customer_id: String,
    /// The article.
    pub sku: String,
    /// How many of it.
    pub quantity: u64,
    /// How much in all, in the currency's minor unit.
    pub amount_cents: u64,
    /// ISO 4217.
    pub currency: String,
    /// The provider's id of the charge, if the card was charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charge_id: Option<String>,
}

/// The message about an order that is confirmed. It names no card.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OrderPlaced<'a> {
    order_id: &'a str,
    customer_id: &'a str,
    sku: &'a str,
    quantity: u64,
    /// What the local cloud shall do with the message, for tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<&'static str>,
}

impl<'a> OrderPlaced<'a> {
    pub(crate) fn of(order: &'a Order, test: Option<&'static str>) -> Self {
        let Order { id, customer_id, sku, quantity, .. } = order;
        Self { order_id: id, customer_id, sku, quantity: *quantity, test }
    }
}

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Not decided yet.
    Pending,
    /// Paid, and taken from the stock.
    Confirmed,
    /// The card was declined.
    Declined,
    /// The provider rejected it.
    Rejected,
    /// There was not enough stock; the charge was given back.
    SoldOut,
}

/// The result of the phase [`CHARGE_PHASE`](crate::policy::CHARGE_PHASE): what the provider decided. It names no card and no customer, because
/// the record keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Charging {
    /// The card was charged.
    Charged {
        /// The provider's id of the charge.
        id: String,
        /// When, by the provider's clock.
        at: Timestamp,
    },
    /// The bank declined.
    Declined,
    /// The provider rejected the request.
    Rejected,
}

impl From<Charge> for Charging {
    fn from(charge: Charge) -> Self {
        Self::Charged { id: charge.id, at: charge.created_at }
    }
}

impl From<Found> for Charging {
    fn from(found: Found) -> Self {
        match found {
            Found::Charged(charge) => charge.into(),
            Found::Declined => Self::Declined,
        }
    }
}

impl TryFrom<NotCharged> for Charging {
    type Error = CallError;

    /// A final refusal is a result. Without an answer there is none.
    fn try_from(not_charged: NotCharged) -> Result<Self, CallError> {
        match not_charged {
            NotCharged::Declined => Ok(Self::Declined),
            NotCharged::Rejected => Ok(Self::Rejected),
            NotCharged::NeverSent => Err(CallError::not_executed("the payment provider refuses connections")),
            NotCharged::Perhaps(cause) => Err(cause.into()),
        }
    }
}

impl OrderRequest {
    /// The order with this id, and its payment, if it is valid.
    pub(crate) fn parse(self, id: String) -> Result<(Order, NewPayment), &'static str> {
        let Self { customer_id, sku, quantity, amount_cents, currency, source } = self;
        if !is_sku(&sku) {
            return Err("sku must have 1 to 64 letters, digits, - or _");
        }
        if !(1..=MAX_QUANTITY).contains(&quantity) {
            return Err("quantity must be an integer from 1 to 100");
        }
        let payment = NewPayment { customer_id, amount_cents, currency, source }.checked()?;
        let order = Order {
            id,
            status: Status::Pending,
            customer_id: payment.customer_id.clone(),
            sku,
            quantity,
            amount_cents,
            currency: payment.currency.clone(),
            charge_id: None,
        };
        Ok((order, payment))
    }
}

/// Whether this can be the name of an article.
pub(crate) fn is_sku(sku: &str) -> bool {
    (1..=64).contains(&sku.len())
        && sku.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}
