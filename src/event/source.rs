//! The queue that messages come from, as far as its consumer needs it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use crate::queue::QueueError;

/// The queue that messages come from, and its dead letters.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// The queue's name: the last part of its ARN. A message of another queue is handed back.
    fn name(&self) -> &str;

    /// Makes received messages visible again after these times, counted from now, by their receipts. Those for which that fails come again
    /// when the queue's own visibility time-out is over.
    ///
    /// # Errors
    /// If it fails for any of them.
    async fn hide(&self, receipts: &[(String, Duration)]) -> Result<(), QueueError>;

    /// Sends a message to the dead letters, within [`SEND_TIMEOUT`](crate::time_budget::SEND_TIMEOUT).
    ///
    /// # Errors
    /// If it was perhaps not accepted.
    async fn bury(&self, message: DeadMessage) -> Result<(), QueueError>;
}

/// A message that no delivery can help.
#[derive(Clone, derive_more::Debug)]
// A reason may be a function's own words about its input.
#[debug("DeadMessage({:?})", id)]
#[non_exhaustive]
pub struct DeadMessage {
    /// SQS's id of the message.
    pub id: Option<String>,
    /// Its body as it came.
    pub body: String,
    /// Its message attributes that are text.
    pub attributes: HashMap<String, String>,
    /// Its message attributes that are bytes.
    pub binary_attributes: HashMap<String, Vec<u8>>,
    /// Its group, in a FIFO queue.
    pub group: Option<String>,
    /// Its deduplication id, if that is in its key.
    pub deduplication_id: Option<String>,
    /// Why it is dead.
    pub reason: String,
}

/// A queue for tests: remembers what its consumer did.
#[derive(Clone, Debug)]
pub struct MemorySource {
    name: Arc<str>,
    hidden: Arc<Mutex<Vec<(String, Duration)>>>,
    dead: Arc<Mutex<Vec<DeadMessage>>>,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemorySource {
    /// A queue of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), hidden: Arc::default(), dead: Arc::default() }
    }

    /// Takes the receipts of what was handed back, with the times until they are visible.
    pub fn take_hidden(&self) -> Vec<(String, Duration)> {
        std::mem::take(&mut lock(&self.hidden))
    }

    /// Takes the dead letters.
    pub fn take_dead(&self) -> Vec<DeadMessage> {
        std::mem::take(&mut lock(&self.dead))
    }
}

#[async_trait]
impl Source for MemorySource {
    fn name(&self) -> &str {
        &self.name
    }

    async fn hide(&self, receipts: &[(String, Duration)]) -> Result<(), QueueError> {
        lock(&self.hidden).extend_from_slice(receipts);
        Ok(())
    }

    async fn bury(&self, message: DeadMessage) -> Result<(), QueueError> {
        lock(&self.dead).push(message);
        Ok(())
    }
}
