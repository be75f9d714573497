//! A stream, or a topic, as the source of messages.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_config::SdkConfig;

use super::{Answers, DeadMessage, Shards, Source, SourceKind, letters::Letters};
use crate::{
    config::{ConfigError, queue_url, text},
    queue::QueueError,
};

/// A stream or a topic, and the queue of SQS of what is *parked*: records that no delivery can help, and those that could not go on for too long. Needs
/// `sqs:SendMessage` on that queue, besides what Lambda needs.
///
/// A parked record is an event with that record alone: `aws lambda invoke` with it runs the record once more. Its mapping does not. `idempotency-reason` says why it was
/// parked, `idempotency-message-id` which record it was. Of one that is longer than a message may be, the first 10,000 characters are sent: the
/// stream has it, for as long as it retains records.
///
/// ```no_run
/// use lambda_idempotency::{DynamoDbStore, Execution, Failure, Guard, Operation, lambda};
/// use lambda_idempotency::{event::{Consumer, KeyFrom, StreamSource}, key::Tenant};
/// use serde::Deserialize;
/// use std::time::Duration;
///
/// #[derive(Deserialize)]
/// struct Order {
///     id: String,
/// }
///
/// async fn ship(execution: Execution, order: Order) -> Result<(), Failure> {
///     Ok(println!("{} {}", order.id, execution.downstream_key("carrier")))
/// }
///
/// #[tokio::main]
/// async fn main() -> Result<(), lambda::Error> {
///     lambda::logs();
///     let ship_once = Operation::new("ship").retain(Duration::from_hours(15 * 24)); // as long as a record can come again
///     let guard = Guard::new(DynamoDbStore::from_env().await?, ship_once, Tenant::parse("shop")?);
///     let stream = StreamSource::kinesis(&lambda::aws().await, "ORDERS_STREAM", "ORDERS_PARKED_QUEUE_URL")?;
///     lambda::run(Consumer::new(stream, KeyFrom::body("/id")).each(guard, ship)).await
/// }
/// ```
#[derive(Clone, Debug)]
pub struct StreamSource {
    name: Arc<str>,
    kind: fn(Shards) -> SourceKind,
    shards: Shards,
    parked: Letters,
}

impl StreamSource {
    /// The stream of Kinesis and the queue for what is parked, whose name and whose URL these environment variables hold.
    ///
    /// # Errors
    /// If a variable is missing, or the second one is not a URL.
    pub fn kinesis(
        config: &SdkConfig,
        stream: &'static str,
        parked: &'static str,
    ) -> Result<Self, ConfigError> {
        Self::from_env(config, SourceKind::Kinesis, stream, parked)
    }

    /// The stream of the DynamoDB table, and the queue for what is parked, whose name and whose URL these environment variables hold. A message's
    /// body is the change as Lambda hands it over.
    ///
    /// # Errors
    /// If a variable is missing, or the second one is not a URL.
    pub fn dynamodb(
        config: &SdkConfig,
        table: &'static str,
        parked: &'static str,
    ) -> Result<Self, ConfigError> {
        Self::from_env(config, SourceKind::DynamoDb, table, parked)
    }

    /// The topic of Kafka, of Amazon MSK or of a cluster of one's own, and the queue for what is parked, whose name and whose URL these environment
    /// variables hold. A message's body is the record's value, which must be text; of a tombstone it is `null`. Its attributes are the headers.
    ///
    /// `answers` says what the mapping is: only one with provisioned pollers can have `ReportBatchItemFailures`.
    ///
    /// # Errors
    /// If a variable is missing, or the second one is not a URL.
    pub fn kafka(
        config: &SdkConfig,
        answers: Answers,
        topic: &'static str,
        parked: &'static str,
    ) -> Result<Self, ConfigError> {
        let kind = match answers {
            Answers::Partial => |shards| SourceKind::Kafka(Answers::Partial, shards),
            Answers::Whole => |shards| SourceKind::Kafka(Answers::Whole, shards),
        };
        Self::from_env(config, kind, topic, parked)
    }

    fn from_env(
        config: &SdkConfig,
        kind: fn(Shards) -> SourceKind,
        name: &'static str,
        parked: &'static str,
    ) -> Result<Self, ConfigError> {
        Ok(Self::new(config, kind, text(name)?, queue_url(parked)?))
    }

    /// The source of this kind and name, such as `SourceKind::Kinesis`, and the queue of this URL.
    pub fn new(
        config: &SdkConfig,
        kind: fn(Shards) -> SourceKind,
        name: impl Into<Arc<str>>,
        parked: impl Into<Arc<str>>,
    ) -> Self {
        let name = name.into();
        let parked = Letters::new(config, name.clone(), parked.into());
        Self { name, kind, shards: Shards::default(), parked }
    }

    /// After which time a record that cannot go on is parked, instead of being handed back once more: one in flight, one whose outcome is unknown, one
    /// whose tenant is over a bound or stopped. Default: 6 hours. Zero parks it at once, and the records behind it go on: that breaks the order of
    /// its key. While the store does not answer, none is parked.
    #[must_use]
    pub fn park_after(self, age: Duration) -> Self {
        Self { shards: self.shards.park_after(age), ..self }
    }

    /// Lets nothing in a shard, or in a partition, overtake anything. Otherwise the records of one key, or of one item, are in order, and others run at
    /// once.
    #[must_use]
    pub fn lane_by_shard(self) -> Self {
        Self { shards: self.shards.lane_by_shard(), ..self }
    }
}

#[async_trait]
impl Source for StreamSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> SourceKind {
        (self.kind)(self.shards.clone())
    }

    async fn hide(&self, _: &[(String, Duration)]) -> Result<(), QueueError> {
        Ok(())
    }

    async fn bury(&self, message: DeadMessage) -> Result<(), QueueError> {
        self.parked.bury(message).await
    }
}
