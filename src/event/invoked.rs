//! What Lambda invokes a function with directly, as the source of messages.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_config::SdkConfig;

use super::{DeadMessage, Source, SourceKind, letters::Letters};
use crate::{
    config::{ConfigError, queue_url, text},
    queue::QueueError,
};

/// The variable in which Lambda tells a function its name.
const FUNCTION: &str = "AWS_LAMBDA_FUNCTION_NAME";

/// What Lambda invokes this function with, without a queue between: events of SNS, EventBridge and S3, and asynchronous calls; and the queue of SQS of
/// what is *parked*. Needs `sqs:SendMessage` on that queue.
///
/// Each event is one message, whose body is the event: [`Consumer::envelopes`](super::Consumer::envelopes) opens what the service wrapped around it. What a retry may mend
/// is an error to Lambda, which invokes the function twice more; everything else is settled, or parked. So the function needs an on-failure destination
/// (`EventInvokeConfig`) all the same: for what was in flight, unknown or without a store for longer than Lambda retries.
///
/// A caller that waits for a result needs [`invocation`](super::invocation).
///
/// ```no_run
/// use lambda_idempotency::{DynamoDbStore, Execution, Failure, Guard, Operation, lambda};
/// use lambda_idempotency::{event::{Consumer, Envelope, InvocationSource, KeyFrom}, key::Tenant};
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
///     let events = InvocationSource::from_env(&lambda::aws().await, "ORDERS_PARKED_QUEUE_URL")?;
///     let consumer = Consumer::new(events, KeyFrom::body("/id")).envelopes([Envelope::Sns]);
///     lambda::run(consumer.each(guard, ship)).await
/// }
/// ```
#[derive(Clone, Debug)]
pub struct InvocationSource {
    name: Arc<str>,
    parked: Letters,
}

impl InvocationSource {
    /// What this function is invoked with, and the queue for what is parked, whose URL this environment variable holds.
    ///
    /// # Errors
    /// If it is missing, or is not a URL, or if Lambda does not say the function's name.
    pub fn from_env(config: &SdkConfig, parked: &'static str) -> Result<Self, ConfigError> {
        Ok(Self::new(config, text(FUNCTION)?, queue_url(parked)?))
    }

    /// What the function of this name is invoked with, and the queue of this URL.
    pub fn new(config: &SdkConfig, function: impl Into<Arc<str>>, parked: impl Into<Arc<str>>) -> Self {
        let name = function.into();
        Self { parked: Letters::new(config, name.clone(), parked.into()), name }
    }
}

#[async_trait]
impl Source for InvocationSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> SourceKind {
        SourceKind::Invocation
    }

    async fn hide(&self, _: &[(String, Duration)]) -> Result<(), QueueError> {
        Ok(())
    }

    async fn bury(&self, message: DeadMessage) -> Result<(), QueueError> {
        self.parked.bury(message).await
    }
}
