//! A stream, as the source of messages.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_config::SdkConfig;

use super::{DeadMessage, Shards, Source, SourceKind, letters::bury};
use crate::{
    config::{ConfigError, queue_url, text},
    queue::{QueueError, SqsQueue},
};

/// A stream, and the queue of SQS of what is *parked*: records that no delivery can help, and those that could not go on for too long. Needs
/// `sqs:SendMessage` on that queue, besides what Lambda needs.
///
/// A parked record is an event with that record alone: `aws lambda invoke` with it runs the record once more. `idempotency-reason` says why it was
/// parked, `idempotency-message-id` which record it was. Of one that is longer than a message may be, the first 10,000 characters are sent: the
/// stream has it, for as long as it retains records.
///
/// ```no_run
/// use lambda_idempotency::{DynamoDbStore, Execution, Failure, Guard, Operation, lambda};
/// use lambda_idempotency::{event::{Consumer, KeyFrom, StreamSource}, key::Tenant};
/// use serde::Deserialize;
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
///     let guard = Guard::new(DynamoDbStore::from_env().await?, Operation::new("ship"), Tenant::parse("shop")?);
///     let stream = StreamSource::kinesis(&lambda::aws().await, "ORDERS_STREAM", "ORDERS_PARKED_QUEUE_URL")?;
///     lambda::run(Consumer::new(stream, KeyFrom::body("/id")).each(guard, ship)).await
/// }
/// ```
#[derive(Clone, Debug)]
pub struct StreamSource {
    name: Arc<str>,
    kind: SourceKind,
    parked: SqsQueue,
    parked_url: Arc<str>,
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
        Self::from_env(config, SourceKind::Kinesis(Shards::default()), stream, parked)
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
        Self::from_env(config, SourceKind::DynamoDb(Shards::default()), table, parked)
    }

    fn from_env(
        config: &SdkConfig,
        kind: SourceKind,
        name: &'static str,
        parked: &'static str,
    ) -> Result<Self, ConfigError> {
        let (name, parked_url): (_, Arc<str>) = (text(name)?.into(), queue_url(parked)?.into());
        Ok(Self { name, kind, parked: SqsQueue::new(config, parked_url.clone()), parked_url })
    }

    /// After which time a record that cannot go on is parked, instead of being handed back once more: one in flight, one whose outcome is unknown, one
    /// whose tenant is over a bound or stopped. Default: 6 hours. Zero parks it at once, and the records behind it go on: that breaks the order of
    /// its key. While the store does not answer, a record is parked after 12 hours at least.
    #[must_use]
    pub fn park_after(self, age: Duration) -> Self {
        self.shards(|shards| shards.park_after(age))
    }

    /// Lets nothing in a shard overtake anything. Otherwise the records of one key, or of one item, are in order, and others run at once.
    #[must_use]
    pub fn lane_by_shard(self) -> Self {
        self.shards(Shards::lane_by_shard)
    }

    fn shards(self, change: impl FnOnce(Shards) -> Shards) -> Self {
        let kind = match self.kind {
            SourceKind::Kinesis(shards) => SourceKind::Kinesis(change(shards)),
            SourceKind::DynamoDb(shards) => SourceKind::DynamoDb(change(shards)),
            SourceKind::Sqs => SourceKind::Sqs,
        };
        Self { kind, ..self }
    }
}

#[async_trait]
impl Source for StreamSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> SourceKind {
        self.kind.clone()
    }

    async fn hide(&self, _: &[(String, Duration)]) -> Result<(), QueueError> {
        Ok(())
    }

    async fn bury(&self, message: DeadMessage) -> Result<(), QueueError> {
        bury(self.parked.client(), &self.parked_url, message).await
    }
}
