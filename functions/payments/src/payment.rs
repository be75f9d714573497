//! The payment that a client gets.

use serde::{Deserialize, Serialize};

use crate::provider::{CUSTOMER, Charge};

/// A payment that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Payment {
    /// Its id; the same in every attempt of the same operation.
    pub id: String,
    /// The provider's id of the charge.
    pub charge_id: String,
    /// The customer who pays.
    pub customer_id: String,
    /// How much, in the currency's minor unit.
    pub amount_cents: u64,
    /// ISO 4217.
    pub currency: String,
}

impl Payment {
    /// The payment of this charge; `None` if the charge's metadata does not name its customer. `key` is the operation's
    /// downstream key of the phase [`PAYMENT_PHASE`](crate::policy::PAYMENT_PHASE).
    ///
    /// It depends on nothing else, so that reconciliation makes the same payment from the charge.
    pub fn of(charge: &Charge, key: &str) -> Option<Self> {
        Some(Self {
            id: format!("pay_{key}"),
            charge_id: charge.id.clone(),
            customer_id: charge.metadata.get(CUSTOMER)?.clone(),
            amount_cents: charge.amount_cents,
            currency: charge.currency.clone(),
        })
    }
}
