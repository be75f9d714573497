//! What differs between the sources of messages: how their events are read, when a message comes again, and how it is buried.
//!
//! A source is a file here and a variant of [`SourceKind`]. What is beside this folder knows no source.

mod data;
mod dynamodb;
mod kinesis;
mod received;
mod shard;
mod sqs;

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
}

impl SourceKind {
    /// Of a queue of this name; a stream has none that matters.
    pub(super) fn feed(&self, name: &str) -> Box<dyn Feed> {
        match self {
            Self::Sqs => Box::new(sqs::Sqs::named(name)),
            Self::Kinesis(shards) => {
                let (system, noun, read) = ("aws_kinesis", "stream", kinesis::read);
                Box::new(Stream { system, noun, read, shards: shards.clone() })
            }
            Self::DynamoDb(shards) => {
                let (system, noun, read) = ("aws_dynamodb", "table", dynamodb::read);
                Box::new(Stream { system, noun, read, shards: shards.clone() })
            }
        }
    }
}
