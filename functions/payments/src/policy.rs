//! What the API chose, and what its handlers need.

use std::time::Duration;

use lambda_idempotency::{http::JwtClaim, operation::Operation};

use crate::{Ledger, Provider, SealingKeys};

/// The operation of `POST /payments`.
pub const CREATE_PAYMENT: &str = "create-payment";

/// The phase that charges the card: its downstream key is the provider's idempotency key.
pub const CHARGE_PHASE: &str = "charge";

/// The phase that writes the payment down: its downstream key is in the payment's id.
pub const PAYMENT_PHASE: &str = "payment";

/// Who the caller is: the subject of the token that API Gateway verified.
pub(crate) const TENANT: JwtClaim = JwtClaim("sub");

/// Stripe's window, and what clients of payment APIs expect.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// The operation, with what it chose.
pub fn create_payment() -> Operation {
    Operation::new(CREATE_PAYMENT).retain(RETENTION)
}

/// What handlers need.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) ledger: Ledger,
    pub(crate) provider: Provider,
    pub(crate) sealing_keys: SealingKeys,
}
