//! Hands the messages of a record over, in order.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tracing::Instrument;

use super::{Target, Topics, TopicsError};
use crate::{
    engine::Engine,
    error_chain::error_chain,
    key::RecordKey,
    queue::{FairQueue, FifoQueue, QueueError},
    store::{Outbox, StoreError},
    telemetry::{self, Count, DELIVERY_AGE},
    world::{SystemWorld, World},
};

/// Why messages of a record are not delivered yet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryError {
    /// The store failed.
    #[error("the store failed: {}", .0.cause())]
    Store(#[from] StoreError),
    /// The target did not accept one.
    #[error("the target of the topic {topic} failed: {}", error_chain(.error))]
    Target {
        /// The topic.
        topic: String,
        /// Why.
        error: QueueError,
    },
    /// The list of topics lacks its topic.
    #[error("the topic {0} has no target in the list of topics")]
    NoTarget(String),
    /// The time was up.
    #[error("the time was up")]
    Late,
}

/// Delivers the messages of a store. See the [module](super).
#[derive(Clone)]
#[must_use]
pub struct Deliverer {
    pub(crate) engine: Engine,
    outbox: Arc<dyn Outbox>,
    pub(super) wakes: Arc<dyn FifoQueue>,
    pub(super) work: Option<Arc<dyn FairQueue>>,
    topics: Topics,
    targets: HashMap<String, Arc<dyn Target>>,
}

impl Deliverer {
    /// A deliverer of the messages in `store`, of these topics, without their targets. It asks for deliveries through the queue `wakes`.
    pub fn new(store: impl Outbox, wakes: impl FifoQueue, topics: Topics) -> Self {
        let outbox: Arc<dyn Outbox> = Arc::new(store);
        Self {
            engine: Engine { store: outbox.clone(), world: Arc::new(SystemWorld) },
            outbox,
            wakes: Arc::new(wakes),
            work: None,
            topics,
            targets: HashMap::new(),
        }
    }

    /// Sends accepted work that waits for a worker to this queue, from which a [worker](crate::event::Consumer::work) takes it.
    pub fn work_to(mut self, queue: impl FairQueue) -> Self {
        self.work = Some(Arc::new(queue));
        self
    }

    /// Delivers the messages of this topic to `target`. The last one counts.
    pub fn target(mut self, topic: impl Into<String>, target: impl Target) -> Self {
        self.targets.insert(topic.into(), Arc::new(target));
        self
    }

    /// Takes clocks and randomness from `world`: for tests.
    pub fn world(mut self, world: impl World) -> Self {
        self.engine.world = Arc::new(world);
        self
    }

    /// Checks that each topic of the list has a target, and each target its topic in the list.
    ///
    /// # Errors
    /// If not: this names the topic.
    pub fn check(&self) -> Result<(), TopicsError> {
        let without = self.topics.destinations().find(|(topic, _)| !self.targets.contains_key(*topic));
        if let Some((topic, _)) = without {
            return Err(TopicsError::of_list(format_args!(
                "has {topic}, and this function has no target for it"
            )));
        }
        self.targets.keys().try_for_each(|topic| self.topics.topic(topic).map(|_| ()))
    }

    /// Delivers the messages of a record in their order, and removes each that was delivered. Stops at the first one that fails.
    ///
    /// Two of these for one record at once would deliver messages twice, and out of order: the queue's groups prevent that. No
    /// message is begun once the `time` is up.
    ///
    /// # Errors
    /// If one is not delivered. Those before it are.
    pub async fn deliver(&self, key: &RecordKey, time: Duration) -> Result<(), DeliveryError> {
        let deliver = async {
            self.delivered(key, time).await.inspect_err(|error| {
                tracing::warn!(error = error_chain(error), "a message is not delivered");
                Count::NotDelivered.add(key.operation());
            })
        };
        deliver.instrument(telemetry::record_span(key)).await
    }

    async fn delivered(&self, key: &RecordKey, time: Duration) -> Result<(), DeliveryError> {
        let world = &self.engine.world;
        let until = world.term(time);
        loop {
            let messages = self.engine.bounded(None, self.outbox.undelivered(key)).await?;
            if messages.is_empty() {
                return Ok(());
            }
            for message in &messages {
                let target = self.targets.get(&message.topic);
                let target = target.ok_or_else(|| DeliveryError::NoTarget(message.topic.clone()))?;
                // After a freeze another deliverer may be at work: its group is free again by then.
                let left = world.left(until);
                let handed = match left.is_zero() {
                    true => None,
                    false => world.within(left, target.deliver(message)).await,
                };
                let handed = handed.ok_or(DeliveryError::Late)?;
                handed.map_err(|error| DeliveryError::Target { topic: message.topic.clone(), error })?;
                Count::Delivered.add(key.operation());
                telemetry::took(DELIVERY_AGE, key.operation(), world.now().since(message.published_at));
                self.engine.sent_again(|| self.outbox.remove(message)).await?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use async_trait::async_trait;

    use super::*;
    use crate::{
        outbox::MemoryTarget,
        queue::MemoryQueue,
        record::{
            Record, Revision,
            tests::{Mint, reservation},
        },
        store::{Companion, OutboxMessage, Store, memory::MemoryStore},
        time::Timestamp,
        world::ManualWorld,
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const MINUTE: Duration = Duration::from_secs(60);

    /// A target that never answers.
    struct Hangs;

    #[async_trait]
    impl Target for Hangs {
        async fn deliver(&self, _: &OutboxMessage) -> Result<(), QueueError> {
            pending().await
        }
    }

    /// A new record that published a message of this topic.
    async fn published(store: &MemoryStore, topic: &str) -> RecordKey {
        let record = Record::reserve(&reservation(topic), Revision::mint(), NOW);
        let message = OutboxMessage {
            key: record.key.clone(),
            created_at: NOW,
            sequence: 0,
            first: 0,
            topic: topic.to_owned(),
            body: "1".to_owned(),
            published_at: NOW,
        };
        store.put(None, &record, &[Companion::Message(message)]).await.expect("there is none");
        record.key
    }

    // Whoever waits for it is killed midway, and with it the deliveries of the other records.
    #[tokio::test]
    async fn a_target_that_never_answers_is_left_in_time() {
        let (store, world, target) = (MemoryStore::new(), ManualWorld::at(NOW), MemoryTarget::new());
        let topics = Topics::parse("hangs=own works=own").expect("a list");
        let deliverer = Deliverer::new(store.clone(), MemoryQueue::new(), topics)
            .world(world.clone())
            .target("hangs", Hangs)
            .target("works", target.clone());
        let [hangs, works] = [published(&store, "hangs").await, published(&store, "works").await];
        let both =
            async { tokio::join!(deliverer.deliver(&hangs, MINUTE), deliverer.deliver(&works, MINUTE)) };
        let (late, delivered) = world.passing(both).await;
        assert!(matches!(late, Err(DeliveryError::Late)), "{late:?}");
        assert!(delivered.is_ok(), "{delivered:?}");
        assert_eq!((target.take().len(), world.running()), (1, MINUTE));
        assert_eq!(store.undelivered(&hangs).await.expect("the store answers").len(), 1, "it comes later");
    }
}
