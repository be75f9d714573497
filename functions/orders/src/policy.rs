//! The API's settings, and the services that its handlers need.

use std::time::Duration;

use lambda_idempotency::{domain::Topic, http::JwtClaim, operation::Operation};
use payments::{Provider, SealingKeys};

use crate::Shop;

/// The operation of `POST /orders`.
pub const CREATE_ORDER: &str = "create-order";

/// The phase that writes the order, before anything else is done.
pub const INTENT_PHASE: &str = "intent";

/// The phase that charges the card: its downstream key is the provider's idempotency key.
pub const CHARGE_PHASE: &str = "charge";

/// The phase that takes the articles from the stock.
pub const STOCK_PHASE: &str = "stock";

/// The phase that gives the charge back, if there is not enough stock.
pub const REFUND_PHASE: &str = "refund";

/// All of them, in the order in which an order comes to them.
const PHASES: [&str; 4] = [INTENT_PHASE, CHARGE_PHASE, STOCK_PHASE, REFUND_PHASE];

/// The topic of orders that are confirmed. Its message is in the transaction that completes the order.
pub const ORDER_PLACED: &str = "order.placed";

/// The tenant: the subject of the token that API Gateway verified.
pub(crate) const TENANT: JwtClaim = JwtClaim("sub");

/// As long as a message can come again: 14 days in the dead letters, and 14 more in the queue to which it was sent back. An order whose
/// record is gone would be placed once more.
const RETENTION: Duration = Duration::from_secs(28 * 24 * 60 * 60);

/// How long the provider remembers idempotency keys, by its contract: as Stripe, at least a day.
pub(crate) const KEYS_LIVE: Duration = Duration::from_secs(24 * 60 * 60);

/// How long an interrupted order waits for a retry. A client that is still interested retries within a day. Until then, the provider
/// remembers the keys. After that, an operator decides: a customer may be charged without an order.
const RESUME_WITHIN: Duration = KEYS_LIVE;

/// The operation with its settings.
pub fn create_order() -> Operation {
    Operation::new(CREATE_ORDER).retain(RETENTION).resumes(PHASES, RESUME_WITHIN)
}

/// The services that handlers need.
#[derive(Clone, Debug)]
pub struct Services {
    /// The orders and the stock.
    pub shop: Shop,
    /// Who charges cards.
    pub provider: Provider,
    /// Seals the correlation from a charge to its record.
    pub sealing_keys: SealingKeys,
    /// The topic [`ORDER_PLACED`].
    pub placed: Topic,
}
