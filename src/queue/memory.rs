//! A queue in this process's memory: for tests.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use super::{FairQueue, FifoQueue, Queue, QueueError};

/// Keeps the messages until a test takes them. Clones share one queue.
#[derive(Clone, Debug, Default)]
pub struct MemoryQueue(Arc<Mutex<Vec<(String, Duration)>>>);

impl MemoryQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes all messages, each with its delay, in the order in which they were sent.
    pub fn take(&self) -> Vec<(String, Duration)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Queue for MemoryQueue {
    async fn send(&self, message: &str, delay: Duration) -> Result<(), QueueError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((message.to_owned(), delay));
        Ok(())
    }
}

#[async_trait]
impl FairQueue for MemoryQueue {
    async fn send_fairly(&self, message: &str, _group: &str, delay: Duration) -> Result<(), QueueError> {
        self.send(message, delay).await
    }
}

#[async_trait]
impl FifoQueue for MemoryQueue {
    async fn send_in_group(&self, message: &str, _group: &str, _id: &str) -> Result<(), QueueError> {
        self.send(message, Duration::ZERO).await
    }
}
