//! Where messages go.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::{queue::QueueError, store::OutboxMessage};

/// Where the messages of a topic go: a queue, an event bus, or one of yours.
///
/// # What it promises
/// - What [`deliver`](Self::deliver) has accepted reaches its consumers. The message is removed from the outbox after that.
/// - An error says nothing about whether it will. So the message comes again, under the same id.
///
/// ```
/// use lambda_idempotency::{async_trait, outbox::Target, queue::QueueError, store::OutboxMessage};
///
/// struct Log;
///
/// #[async_trait]
/// impl Target for Log {
///     async fn deliver(&self, message: &OutboxMessage) -> Result<(), QueueError> {
///         println!("{} {}", message.id(), message.topic);
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait Target: Send + Sync + 'static {
    /// Hands one message over.
    ///
    /// # Errors
    /// If it was perhaps not accepted.
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), QueueError>;
}

/// A target for tests: remembers what was delivered. Clones are one target.
#[derive(Clone, Debug, Default)]
pub struct MemoryTarget(Arc<Mutex<Vec<OutboxMessage>>>);

impl MemoryTarget {
    /// A target to which nothing was delivered yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what was delivered, in that order.
    pub fn take(&self) -> Vec<OutboxMessage> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Target for MemoryTarget {
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), QueueError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message.clone());
        Ok(())
    }
}
