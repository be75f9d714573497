//! EventBridge event buses as targets.

use std::sync::Arc;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_eventbridge::{Client, types::PutEventsRequestEntry};

use super::{Target, Topics};
use crate::{
    config::ConfigError,
    error_chain::error_chain,
    queue::{QueueError, acceptable, in_last_seconds},
    store::OutboxMessage,
};

/// An EventBridge event bus: `detail-type` is the topic, `source` the operation's name, and `detail` a
/// [CloudEvent](OutboxMessage::to_cloud_event). EventBridge gives each event an id of its own, another one at each delivery: a consumer's key
/// is the CloudEvent's. Needs `events:PutEvents` and `events:DescribeEventBus` on it.
#[derive(Clone, Debug)]
pub struct EventBus {
    client: Client,
    name: Arc<str>,
}

impl EventBus {
    /// The bus of this name or ARN.
    pub fn new(config: &SdkConfig, name: impl Into<Arc<str>>) -> Self {
        Self { client: Client::new(&in_last_seconds(config)), name: name.into() }
    }

    /// Looks whether there is this bus: EventBridge accepts events for a bus that does not exist, and drops them. If it does not answer, or
    /// may not say, a warning is logged.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn check(&self) -> Result<(), ConfigError> {
        let name = &*self.name;
        let Err(error) = self.client.describe_event_bus().name(name).send().await else { return Ok(()) };
        if error.as_service_error().is_some_and(|error| error.is_resource_not_found_exception()) {
            return Err(ConfigError::Topics(Topics::VARIABLE, format!("there is no event bus {name}")));
        }
        let cause = error_chain(&error);
        tracing::warn!(bus = name, cause, "whether there is this event bus is not known");
        Ok(())
    }
}

#[async_trait]
impl Target for EventBus {
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), QueueError> {
        let entry = PutEventsRequestEntry::builder()
            .event_bus_name(&*self.name)
            .source(message.key.operation().as_str())
            .detail_type(&message.topic)
            // A rule may send it to a queue of SQS.
            .detail(acceptable(&message.to_cloud_event()))
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
