//! SQS queues as targets.

use std::sync::Arc;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_sqs::Client;

use super::Target;
use crate::{
    queue::{ProducerKey, QueueError, acceptable, in_last_seconds},
    store::OutboxMessage,
};

/// An SQS queue: each message is a [CloudEvent](OutboxMessage::to_cloud_event), and has its id in the attribute
/// [`ProducerKey::NAME`] too. In a FIFO queue, the operation is the group, and the message's id is the deduplication id. Needs
/// `sqs:SendMessage` on it.
#[derive(Clone, Debug)]
pub struct SqsTarget {
    client: Client,
    url: Arc<str>,
}

impl SqsTarget {
    /// The queue of this URL.
    pub fn new(config: &SdkConfig, url: impl Into<Arc<str>>) -> Self {
        Self { client: Client::new(&in_last_seconds(config)), url: url.into() }
    }
}

#[async_trait]
impl Target for SqsTarget {
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), QueueError> {
        let event = acceptable(&message.to_cloud_event());
        let key = ProducerKey::parse(&message.id()).map_err(QueueError::new)?;
        let mut request = self.client.send_message().queue_url(&*self.url).message_body(event);
        request = request.message_attributes(ProducerKey::NAME, key.attribute());
        if self.url.ends_with(".fifo") {
            let group = message.key.hash().to_string();
            request = request.message_group_id(group).message_deduplication_id(key.as_str());
        }
        request.send().await.map(|_| ()).map_err(QueueError::new)
    }
}
