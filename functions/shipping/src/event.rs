//! What comes from the event bus.

use lambda_idempotency::key::Tenant;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The topic of which this function consumes the messages.
const ORDER_PLACED: &str = "order.placed";

/// The longest id of an order, in bytes: it is in a sort key.
const MAX_ID: usize = 255;

/// A CloudEvent. More attributes may come.
#[derive(Deserialize)]
pub(crate) struct Event {
    #[serde(rename = "type")]
    topic: String,
    data: Option<Box<RawValue>>,
}

/// What was ordered. More members may come.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OrderPlaced {
    pub(crate) order_id: String,
    pub(crate) sku: String,
    pub(crate) quantity: u64,
}

impl Event {
    /// The order that was placed; as an error, why it is none. Its sender would have to send another event.
    pub(crate) fn order_placed(&self) -> Result<OrderPlaced, &'static str> {
        if self.topic != ORDER_PLACED {
            return Err("the event is not an order.placed");
        }
        let data = self.data.as_ref().map(|data| serde_json::from_str::<OrderPlaced>(data.get()));
        match data {
            Some(Ok(placed)) if (1..=MAX_ID).contains(&placed.order_id.len()) => Ok(placed),
            _ => Err("the event's data is not an order: orderId, sku and quantity"),
        }
    }
}

/// The tenant whose order the event is about.
pub(crate) fn tenant(event: &str) -> Option<Tenant> {
    #[derive(Deserialize)]
    struct Named {
        tenant: String,
    }
    Tenant::parse(&serde_json::from_str::<Named>(event).ok()?.tenant).ok()
}
