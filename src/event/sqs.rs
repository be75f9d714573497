//! A queue of SQS, as the source of messages.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_config::SdkConfig;

use super::{DeadMessage, Source, SourceKind, letters::bury};
use crate::{
    config::{ConfigError, queue_url},
    queue::{QueueError, SqsQueue},
};

/// A queue of SQS, and the queue of its dead letters. Needs `sqs:ChangeMessageVisibility` on the first and `sqs:SendMessage` on the second,
/// besides what Lambda needs.
///
/// A dead message keeps its body, its group and its attributes. `idempotency-reason` says why it is dead, `idempotency-message-id` which
/// message it was; if its deduplication id is its key, it is in `idempotency-deduplication-id`. A message has at most 10 attributes, and a
/// size: if reason and id have no place, they are left out.
#[derive(Clone, Debug)]
pub struct SqsSource {
    queue: SqsQueue,
    dead_letters: Arc<str>,
}

impl SqsSource {
    /// The queues whose URLs these environment variables hold.
    ///
    /// # Errors
    /// If a variable is missing, or not a URL.
    pub fn from_env(
        config: &SdkConfig,
        queue: &'static str,
        dead_letters: &'static str,
    ) -> Result<Self, ConfigError> {
        Ok(Self::new(config, queue_url(queue)?, queue_url(dead_letters)?))
    }

    /// The queues of these URLs.
    pub fn new(config: &SdkConfig, queue: impl Into<Arc<str>>, dead_letters: impl Into<Arc<str>>) -> Self {
        Self { queue: SqsQueue::new(config, queue), dead_letters: dead_letters.into() }
    }
}

#[async_trait]
impl Source for SqsSource {
    fn name(&self) -> &str {
        self.queue.name()
    }

    fn kind(&self) -> SourceKind {
        SourceKind::Sqs
    }

    async fn hide(&self, receipts: &[(String, Duration)]) -> Result<(), QueueError> {
        self.queue.hide(receipts).await
    }

    async fn bury(&self, message: DeadMessage) -> Result<(), QueueError> {
        bury(self.queue.client(), &self.dead_letters, self.queue.name(), message).await
    }
}
