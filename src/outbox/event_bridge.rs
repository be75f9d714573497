//! EventBridge event buses as targets.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_eventbridge::{Client, types::PutEventsRequestEntry};

use super::{Target, TopicsError};
use crate::{
    config::ConfigError,
    error_chain::error_chain,
    queue::{QueueError, acceptable, in_last_seconds},
    store::OutboxMessage,
    time_budget::BUS_CHECK,
    world::{SystemWorld, Term, World},
};

/// An EventBridge event bus: `detail-type` is the topic, `source` the operation's name, and `detail` a
/// [CloudEvent](OutboxMessage::to_cloud_event). EventBridge gives each event an id of its own, another one at each delivery: a consumer's key
/// is the CloudEvent's. Needs `events:PutEvents` and `events:DescribeEventBus` on it.
///
/// EventBridge accepts events for a bus that does not exist, and drops them. So a delivery asks whether the bus exists, if that was not asked
/// within the last [minute](BUS_CHECK): what is delivered within a minute after the bus was deleted is lost. A bus that is named by its ARN
/// may belong to another account, which cannot be asked: then nobody notices that it is gone.
#[derive(Clone, Debug)]
pub struct EventBus {
    client: Client,
    name: Arc<str>,
    world: Arc<dyn World>,
    /// Until when it need not be asked whether it exists.
    exists_until: Arc<Mutex<Option<Term>>>,
}

impl EventBus {
    /// The bus of this name or ARN.
    pub fn new(config: &SdkConfig, name: impl Into<Arc<str>>) -> Self {
        Self {
            client: Client::new(&in_last_seconds(config)),
            name: name.into(),
            world: Arc::new(SystemWorld),
            exists_until: Arc::default(),
        }
    }

    /// Takes the clocks from `world`: for tests.
    #[must_use]
    pub fn world(mut self, world: impl World) -> Self {
        self.world = Arc::new(world);
        self
    }

    /// Asks whether there is this bus. If EventBridge does not answer, or does not allow the question, a warning is logged.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn check(&self) -> Result<(), ConfigError> {
        match self.exists().await {
            true => Ok(()),
            false => Err(TopicsError::no_bus(&self.name).into()),
        }
    }

    /// Whether there is this bus, as far as it is known.
    async fn exists(&self) -> bool {
        let name = &*self.name;
        if name.starts_with("arn:") {
            return true;
        }
        let until = self.world.term(BUS_CHECK);
        if let Err(error) = self.client.describe_event_bus().name(name).send().await {
            if error.as_service_error().is_some_and(|error| error.is_resource_not_found_exception()) {
                return false;
            }
            let cause = error_chain(&error);
            tracing::warn!(bus = name, cause, "whether there is this event bus is not known");
        }
        *self.exists_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        true
    }

    /// Whether it was asked within the last minute.
    fn was_asked(&self) -> bool {
        let until = *self.exists_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| !self.world.left(until).is_zero())
    }
}

#[async_trait]
impl Target for EventBus {
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), QueueError> {
        if !self.was_asked() && !self.exists().await {
            return Err(QueueError::new(TopicsError::no_bus(&self.name)));
        }
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
