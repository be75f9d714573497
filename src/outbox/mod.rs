//! Delivers the messages that operations publish.
//!
//! ```text
//! handler ─▶ publish ─▶ one transaction: answer, domain writes, messages
//!                                    └─▶ table's stream ─▶ FIFO queue of wakes, grouped by record ─▶ deliver in order, remove
//! sweep of the stale function ─────────────────────────────┘ what the stream missed
//! ```
//!
//! 1. A message commits with its operation, or not at all. It has no time to live until it is delivered.
//! 2. A consumer gets it at least once, always under the same [id](crate::store::OutboxMessage::id). That is the consumer's idempotency
//!    key: [`KeyFrom::cloud_event`](crate::event::KeyFrom::cloud_event) reads it.
//! 3. The messages of one operation are first delivered in the order in which they were committed. A deliverer that was frozen may repeat
//!    an old one late.
//! 4. The queue's groups let one deliverer at a time work for an operation. A message that cannot be delivered holds up the later
//!    ones of its operation, and no others.
//! 5. One list names each topic and its target. The publisher and the deliverer read it when they start: see [`Topics`].

mod deliver;
#[cfg(feature = "eventbridge")]
mod event_bridge;
#[cfg(feature = "sqs")]
mod sqs;
mod target;
mod topics;
mod wake;

pub use crate::domain::Topic;
pub use deliver::{Deliverer, DeliveryError};
#[cfg(feature = "eventbridge")]
pub use event_bridge::EventBus;
#[cfg(feature = "sqs")]
pub use sqs::SqsTarget;
pub use target::{MemoryTarget, Target};
pub use topics::{Destination, Topics, TopicsError};
pub(crate) use wake::{group_of, queue_work, wake};
