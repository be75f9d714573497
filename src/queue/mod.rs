//! Queues of short JSON messages, for work that is done later and for dead letters.
//!
//! 1. A message is delivered at least once, and in no order.
//! 2. A message asks for a look at a record, or carries a report that is fenced by the record. So one that comes twice, or
//!    late, changes nothing.
//! 3. A message whose work fails is delivered again, and finally becomes a dead letter.
//!
//! This module only sends: Lambda's triggers deliver the messages. [`ProducerKey`] is for messages of yours, to a consumer.
#[cfg(feature = "eventbridge")]
mod detail;
mod memory;
#[cfg(feature = "sqs")]
mod producer_key;
#[cfg(feature = "sqs")]
mod sqs;

use std::{error::Error, time::Duration};

use async_trait::async_trait;

use crate::{key::OperationName, store::StoreError};

#[cfg(feature = "eventbridge")]
pub use detail::DetailError;
pub use memory::MemoryQueue;
#[cfg(feature = "sqs")]
pub use producer_key::ProducerKey;
#[cfg(feature = "sqs")]
pub use sqs::SqsQueue;
#[cfg(feature = "sqs")]
pub(crate) use sqs::{acceptable, in_last_seconds};

/// A queue to send to.
///
/// # What it promises
/// - What [`send`](Self::send) has accepted is delivered at least once, and not before `delay` is over. A delay longer than the
///   queue's maximum is cut to the maximum; the receiver then sends the message again.
/// - An error says nothing about whether the message will be delivered. A send that takes longer than
///   [`SEND_TIMEOUT`](crate::time_budget::SEND_TIMEOUT) counts as failed.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Sends one message, to be delivered after `delay`.
    async fn send(&self, message: &str, delay: Duration) -> Result<(), QueueError>;
}

/// A queue with groups, each in order: a FIFO queue of SQS.
///
/// # What it promises
/// - As a [`Queue`]. Besides, the messages of one group are delivered in the order in which they were accepted, one batch at a time.
#[async_trait]
pub trait FifoQueue: Send + Sync + 'static {
    /// Sends one message of a group. A second one with this `id` may be dropped.
    async fn send_in_group(&self, message: &str, group: &str, id: &str) -> Result<(), QueueError>;
}

/// A queue that keeps one group's many messages from delaying those of others: a standard queue of SQS, which is a
/// [fair queue](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html) for messages with a group.
///
/// # What it promises
/// - As a [`Queue`]. A group has no order. SQS passes over a group only while others wait, and only once that group has about a tenth of
///   what is in flight and 30 messages of it, or takes a tenth of the consumers' time.
#[async_trait]
pub trait FairQueue: Send + Sync + 'static {
    /// Sends one message of a group, to be delivered after `delay`.
    async fn send_fairly(&self, message: &str, group: &str, delay: Duration) -> Result<(), QueueError>;
}

/// A message that was perhaps not accepted.
#[derive(Debug, thiserror::Error)]
#[error("the queue did not accept the message")]
pub struct QueueError(#[source] Box<dyn Error + Send + Sync>);

impl QueueError {
    /// An error with its source.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(source.into())
    }

    /// The source's text, for a log.
    pub(crate) fn cause(&self) -> String {
        self.0.to_string()
    }
}

/// Why a message or a job failed. It is delivered again, and finally becomes a dead letter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The store failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// Sending to a queue failed.
    #[error("a queue failed")]
    Queue(#[from] QueueError),
    /// The message is malformed. No retry helps.
    #[error("the message is malformed: {0}")]
    Malformed(&'static str),
    /// A report could not be written in time. A retry may help.
    #[error("the report could not be written in time")]
    Unwritten,
    /// Too little of the function's time is left to begin.
    #[error("too little time is left")]
    NoTime,
    /// Others are changing the record.
    #[error("others are changing the record")]
    Busy,
    /// No reconciler knows the operation.
    #[error("no reconciler knows the operation {0}")]
    UnknownOperation(OperationName),
}

#[cfg(test)]
pub(crate) mod tests {
    use std::future::pending;

    use super::*;

    /// A queue that never answers.
    pub(crate) struct Silent;

    #[async_trait]
    impl Queue for Silent {
        async fn send(&self, _: &str, _: Duration) -> Result<(), QueueError> {
            pending().await
        }
    }

    #[async_trait]
    impl FairQueue for Silent {
        async fn send_fairly(&self, _: &str, _: &str, _: Duration) -> Result<(), QueueError> {
            pending().await
        }
    }

    #[async_trait]
    impl FifoQueue for Silent {
        async fn send_in_group(&self, _: &str, _: &str, _: &str) -> Result<(), QueueError> {
            pending().await
        }
    }
}
