//! Where work goes that is to be done later, or that nobody could do: queues of short JSON messages.
//!
//! A message is handed over at least once and in no order. So each of them says only *look at this record*, or carries an
//! outcome that is applied under the record's own fence: one that comes twice, or late, changes nothing.

mod memory;
#[cfg(feature = "sqs")]
mod sqs;

use std::{error::Error, fmt, future::Future, pin::Pin, time::Duration};

pub use memory::MemoryQueue;
#[cfg(feature = "sqs")]
pub use sqs::{LONGEST_DELAY, QueueConfigError, SqsQueue};

/// The future of a [`Queue`].
pub type Sending<'a> = Pin<Box<dyn Future<Output = Result<(), QueueError>> + Send + 'a>>;

/// A queue to send to.
///
/// # What it promises
/// - What [`send`](Self::send) has accepted is delivered at least once, not before `delay` is over; a delay beyond what the
///   queue can keep is cut to that, and the receiver sends the message again.
/// - An error says nothing about whether the message will be delivered.
pub trait Queue: Send + Sync + 'static {
    /// Sends one message, to be delivered after `delay`.
    fn send<'a>(&'a self, message: &'a str, delay: Duration) -> Sending<'a>;
}

/// A message that was perhaps not accepted.
#[derive(Debug)]
pub struct QueueError(Box<dyn Error + Send + Sync>);

impl QueueError {
    /// An error with what is behind it.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(source.into())
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
