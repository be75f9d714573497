//! The API's settings, and the services that its handlers need.

use std::time::Duration;

use lambda_idempotency::{
    http::{JwtClaim, LookUps, Profile},
    operation::Operation,
};

use crate::{Accounts, Ledger, Provider, SealingKeys};

/// The operation of `POST /payments`.
pub const CREATE_PAYMENT: &str = "create-payment";

/// The phase that charges the card: its downstream key is the provider's idempotency key.
pub const CHARGE_PHASE: &str = "charge";

/// The phase that records the payment: its downstream key is in the payment's id.
pub const PAYMENT_PHASE: &str = "payment";

/// The tenant: the subject of the token that API Gateway verified.
pub(crate) const TENANT: JwtClaim = JwtClaim("sub");

/// The contract of the sample's APIs. An API of your own links to its own documentation.
pub fn profile() -> Profile {
    Profile::ietf_draft().documentation("https://docs.rs/lambda-idempotency")
}

/// Stripe's window, and what clients of payment APIs expect.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// The operation with its settings.
pub fn create_payment() -> Operation {
    Operation::new(CREATE_PAYMENT).retain(RETENTION)
}

/// The operation of `POST /transfers`.
pub const TRANSFER: &str = "transfer";

/// The operation with its settings.
pub fn transfer() -> Operation {
    Operation::new(TRANSFER).retain(RETENTION)
}

/// The services that handlers need.
#[derive(Clone, Debug)]
pub struct Services {
    /// The payments.
    pub ledger: Ledger,
    /// The accounts.
    pub accounts: Accounts,
    /// Who charges cards.
    pub provider: Provider,
    /// Seals the correlation from a charge to its record.
    pub sealing_keys: SealingKeys,
    /// How often each tenant may look operations up.
    pub look_ups: LookUps,
}
