//! EventBridge event buses as targets.

use std::sync::Arc;

use async_trait::async_trait;
use aws_config::{SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_eventbridge::{Client, config::Builder, types::PutEventsRequestEntry};

use super::Target;
use crate::{
    queue::QueueError,
    store::OutboxMessage,
    time_budget::{CLIENT_BACKOFF, QUEUE_CALL_TIMEOUT, QUEUE_TRY},
};

/// An EventBridge event bus: `detail-type` is the topic, `source` the operation's name, and `detail` a
/// [CloudEvent](OutboxMessage::to_cloud_event). EventBridge gives each event an id of its own, another one at each delivery: a consumer's key
/// is the CloudEvent's. Needs `events:PutEvents` on it.
#[derive(Clone, Debug)]
pub struct EventBus {
    client: Client,
    name: Arc<str>,
}

impl EventBus {
    /// The bus of this name or ARN.
    pub fn new(config: &SdkConfig, name: impl Into<Arc<str>>) -> Self {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(QUEUE_TRY)
            .operation_attempt_timeout(QUEUE_TRY)
            .operation_timeout(QUEUE_CALL_TIMEOUT)
            .build();
        let retries = RetryConfig::standard().with_initial_backoff(CLIENT_BACKOFF);
        let config = Builder::from(config).timeout_config(timeouts).retry_config(retries).build();
        Self { client: Client::from_conf(config), name: name.into() }
    }
}

#[async_trait]
impl Target for EventBus {
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), QueueError> {
        let entry = PutEventsRequestEntry::builder()
            .event_bus_name(&*self.name)
            .source(message.key.operation().as_str())
            .detail_type(&message.topic)
            .detail(message.to_cloud_event())
            .build();
        let answer = self.client.put_events().entries(entry).send().await.map_err(QueueError::new)?;
        // The call succeeds even if it takes no event.
        let refused = answer.entries().iter().find_map(|entry| entry.error_code());
        match refused {
            Some(code) => Err(QueueError::new(code.to_owned())),
            None if answer.failed_entry_count() > 0 => Err(QueueError::new("the event bus took no event")),
            None => Ok(()),
        }
    }
}
