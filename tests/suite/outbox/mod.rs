//! The outbox: what an operation publishes commits with it, and is delivered in order.

mod deliveries;
mod event_bus;
mod foreign;
mod kills;
mod load;
mod published;
mod queues;
mod reports;
mod shipped;
mod wakes;

use lambda_idempotency::{
    domain::Topic,
    outbox::Topics,
    store::{Outbox, OutboxMessage},
};

use crate::support::guarded::Guarded;
use lambda_idempotency::key::RecordKey;

const PLACED: &str = "order.placed";

fn topics() -> Topics {
    Topics::parse("order.placed=own order.paid=own").expect("a list")
}

fn topic() -> Topic {
    topics().topic(PLACED).expect("it is listed")
}

/// What waits for delivery, oldest first.
async fn undelivered(guarded: &Guarded, key: &RecordKey) -> Vec<OutboxMessage> {
    guarded.undisturbed_store().undelivered(key).await.expect("the store answers")
}

/// The bodies of what waits for delivery.
async fn bodies(guarded: &Guarded, key: &RecordKey) -> Vec<String> {
    undelivered(guarded, key).await.into_iter().map(|message| message.body).collect()
}
