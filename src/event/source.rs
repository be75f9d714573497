//! Where messages come from, as far as their consumer needs it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use super::{DeadMessage, SourceKind};
use crate::queue::QueueError;

/// The queue or the stream that messages come from, and its dead letters.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// The name of the queue, the stream or the table, as its ARN has it. A message of another one is handed back.
    fn name(&self) -> &str;

    /// What kind of source it is.
    fn kind(&self) -> SourceKind;

    /// Makes received messages visible again after these times, counted from now, by their receipts. Those for which that fails come again
    /// when the queue's own visibility time-out is over. Not called for a stream, which hides nothing.
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

/// A queue, or a stream, for tests: remembers what its consumer did.
#[derive(Clone, Debug)]
pub struct MemorySource {
    name: Arc<str>,
    kind: SourceKind,
    hidden: Arc<Mutex<Vec<(String, Duration)>>>,
    dead: Arc<Mutex<Vec<DeadMessage>>>,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemorySource {
    /// A queue of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self::of(SourceKind::Sqs, name)
    }

    /// A source of this kind and name.
    pub fn of(kind: SourceKind, name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), kind, hidden: Arc::default(), dead: Arc::default() }
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

    fn kind(&self) -> SourceKind {
        self.kind.clone()
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
