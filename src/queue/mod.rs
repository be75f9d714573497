//! Where work goes that is to be done later, or that nobody could do: queues of short JSON messages.
//!
//! A message is handed over at least once and in no order. So each of them says only *look at this record*, or carries an
//! outcome that is applied under the record's own fence: one that comes twice, or late, changes nothing.

mod memory;
#[cfg(feature = "sqs")]
mod sqs;

use std::{error::Error, fmt, time::Duration};

use async_trait::async_trait;

use crate::{key::OperationName, store::StoreError};

pub use memory::MemoryQueue;
#[cfg(feature = "sqs")]
pub use sqs::{LONGEST_DELAY, SqsQueue};

/// A queue to send to.
///
/// # What it promises
/// - What [`send`](Self::send) has accepted is delivered at least once, not before `delay` is over; a delay beyond what the
///   queue can keep is cut to that, and the receiver sends the message again.
/// - An error says nothing about whether the message will be delivered.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Sends one message, to be delivered after `delay`.
    async fn send(&self, message: &str, delay: Duration) -> Result<(), QueueError>;
}

/// A message that was perhaps not accepted.
#[derive(Debug)]
pub struct QueueError(Box<dyn Error + Send + Sync>);

impl QueueError {
    /// An error with what is behind it.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(source.into())
    }

    /// What is behind it, in words for a log.
    pub(crate) fn cause(&self) -> String {
        self.0.to_string()
    }
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue did not accept the message")
    }
}

impl Error for QueueError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// Why a message or a job failed. It is delivered again, and becomes a dead letter in the end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The store failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// A queue failed to which something had to be sent.
    #[error("a queue failed")]
    Queue(#[from] QueueError),
    /// The message says nothing that can be done; no retry helps.
    #[error("the message is malformed: {0}")]
    Malformed(&'static str),
    /// An ending could not be written in time. A retry may help.
    #[error("the ending could not be written in time")]
    Unwritten,
    /// Too little of the function's time is left to begin.
    #[error("too little time is left")]
    NoTime,
    /// Others change the record at this moment.
    #[error("others change the record at this moment")]
    Busy,
    /// No reconciler knows the operation.
    #[error("no reconciler knows the operation {0}")]
    UnknownOperation(OperationName),
}
