//! The guard for messages of queues (SQS, standard and FIFO), of streams and topics (Kinesis, DynamoDB, Kafka), and for direct invocations.
//!
//! | the record of the message's key | what the queue sees |
//! | --- | --- |
//! | absent, released, or waiting between workers | the function runs |
//! | completed, now or before | the message is acknowledged |
//! | refused for good, now or before; another message's; too old; unreadable | it goes to the dead letters, with the reason |
//! | in progress | it is handed back until the lease is over |
//! | certainly not executed, or interrupted, now | it is handed back, each time for longer; after [some attempts](Consumer::max_attempts) it goes to the dead letters |
//! | unknown | it is held: handed back without a run until reconciliation asks next, but half an hour at most |
//! | the store is away | it is handed back, each time for longer, as often as it takes |
//!
//! 1. Each message is parsed alone: one that cannot be read blocks no other.
//! 2. Messages of one FIFO group run one after another. Once one of them is handed back, so are the rest of its group, unprocessed.
//! 3. So do messages of one key. Other messages run at once, as many as [`Consumer::at_once`] says.
//! 4. The key is what *you* say identifies the effect: see [`KeyFrom`]. It is never SQS's message id, because a redrive from the dead
//!    letters gives a message another one, and an effect with an unknown outcome would run again.
//! 5. What is around a message is opened first: [envelopes](Consumer::envelopes) of other services, pointers to payloads in S3.
//! 6. Only messages that are handed back are reported to Lambda, each by its id. If one has none, the invocation fails, and all come again.

mod batch;
mod cloud_event;
mod consumer;
mod dead;
mod disposition;
mod envelope;
mod feed;
mod invocation;
mod invoked;
mod key_from;
mod lanes;
mod letters;
mod message;
mod open;
mod outbox;
mod parked;
mod payload;
mod plan;
mod route;
mod source;
mod sqs;
mod stream;
mod worker;

pub use crate::key::KeyFrom;
pub use consumer::{BatchFunction, Consumer};
pub use dead::DeadMessage;
pub use envelope::Envelope;
pub use feed::{Answers, Shards, SourceKind};
pub use invocation::{invocation, invocation_with};
pub use invoked::InvocationSource;
pub use message::Message;
pub use outbox::{deliverer, deliveries, outbox};
pub use source::{MemorySource, Source};
pub use sqs::SqsSource;
pub use stream::StreamSource;
