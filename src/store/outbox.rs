//! A store with the messages that are committed and not yet delivered.

use async_trait::async_trait;

use super::{OutboxMessage, Result, Store};
use crate::key::RecordKey;

/// A store whose undelivered messages can be read and removed.
#[async_trait]
pub trait Outbox: Store {
    /// The first messages of this record that are not removed, in their order; none if there are none. Strongly consistent.
    async fn undelivered(&self, key: &RecordKey) -> Result<Vec<OutboxMessage>>;

    /// Removes a message, if it is still there.
    async fn remove(&self, message: &OutboxMessage) -> Result<()>;
}
