//! What differs between the sources of messages: how their events are read, when a message comes again, and how it is buried.
//!
//! A source is a file here and a variant of [`SourceKind`]. What is beside this folder knows no source.

mod data;
mod dynamodb;
mod kinesis;
mod shard;
mod sqs;

use std::time::Duration;

use serde_json::value::RawValue;

use super::{DeadMessage, Message, disposition::Again};
use crate::time::Timestamp;

pub use shard::Shards;

/// What kind of source messages come from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceKind {
    /// A queue of SQS.
    Sqs,
    /// A stream of Kinesis.
    Kinesis(Shards),
    /// The stream of a DynamoDB table.
    DynamoDb(Shards),
}

impl SourceKind {
    /// Of a queue of this name; a stream has none that matters.
    pub(super) fn feed(&self, name: &str) -> Box<dyn Feed> {
        match self {
            Self::Sqs => Box::new(sqs::Sqs::named(name)),
            Self::Kinesis(shards) => Box::new(kinesis::Kinesis(shards.clone())),
            Self::DynamoDb(shards) => Box::new(dynamodb::DynamoDb(shards.clone())),
        }
    }
}

/// What a source does in its own way.
pub(super) trait Feed: Send + Sync {
    /// OpenTelemetry's name of it.
    fn system(&self) -> &'static str;

    /// What one is, in origins and log lines.
    fn noun(&self) -> &'static str;

    /// What its messages can have, which a key may be.
    fn has(&self) -> Has;

    /// How many executions of a message there are, unless the consumer says so.
    fn max_attempts(&self) -> u32;

    /// How often a message may be seen for each execution that no record counts.
    fn seen_of_an_attempt(&self) -> u32;

    /// Reads one record of a batch. One that is not as AWS documents it is unusable, but keeps what can be read of it.
    fn read(&self, raw: Box<RawValue>, name: &str) -> Received;

    /// After which time a message comes again that was seen so often. `nonce` is the source of the jitter.
    fn after(&self, again: Again, seen: u32, nonce: [u8; 16]) -> Duration;

    /// Whether a message waits for that time within the invocation, because nothing can be hidden.
    fn waits(&self) -> bool;

    /// Why a message that must come again does not, but goes to the dead letters: it is so old. `is_last` is whether it would be handed back now.
    fn gives_up(&self, again: Again, age: Duration, is_last: bool) -> Option<String>;

    /// The message as it is buried.
    fn letter(&self, received: &Received) -> DeadMessage;
}

/// What messages of a source can have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Has {
    pub(super) deduplication_id: bool,
    pub(super) attributes: bool,
    pub(super) record_id: bool,
}

impl Has {
    /// A body alone.
    pub(super) const NOTHING: Self = Self { deduplication_id: false, attributes: false, record_id: false };
}

/// A message with what is needed to end it.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) message: Message,
    /// By which the source knows this receive, if it can hide one.
    pub(super) receipt: Option<String>,
    /// By which the answer names it.
    pub(super) item: Option<String>,
    /// Where it is from, if not from our source.
    pub(super) foreign: Option<String>,
    /// Why it cannot be used, if so.
    pub(super) unusable: Option<String>,
    /// Those of one such lane are in an order: none runs before those in front of it are done.
    pub(super) lane: Option<String>,
    /// When it was sent, by the source's clock.
    pub(super) sent_at: Option<Timestamp>,
    /// As it came, if it is buried so.
    pub(super) raw: Option<Box<RawValue>>,
}
