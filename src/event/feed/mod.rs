//! What differs between the sources of messages: how their events are read, when a message comes again, and how it is buried.
//!
//! A source is a file here and a variant of [`SourceKind`]. What is beside this folder knows no source.

mod data;
mod dynamodb;
mod invocation;
mod kafka;
mod kinesis;
mod received;
mod shard;
mod sqs;

pub(super) use data::Room;
pub use received::Answers;
pub(super) use received::{Feed, Has, Received};
pub use shard::Shards;
use shard::Stream;

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
    /// A topic of Kafka, whose mapping takes such answers.
    Kafka(Answers, Shards),
    /// What Lambda invokes the function with directly.
    Invocation,
}

impl SourceKind {
    /// Of a queue of this name; the names of others say nothing.
    pub(super) fn feed(self, name: &str) -> Box<dyn Feed> {
        match self {
            Self::Sqs => Box::new(sqs::Sqs::named(name)),
            Self::Kinesis(shards) => Box::new(Stream { format: kinesis::Kinesis, shards }),
            Self::DynamoDb(shards) => Box::new(Stream { format: dynamodb::DynamoDb, shards }),
            Self::Kafka(answers, shards) => Box::new(Stream { format: kafka::Kafka { answers }, shards }),
            Self::Invocation => {
                Box::new(Stream { format: invocation::Invocation, shards: Shards::default() })
            }
        }
    }
}
