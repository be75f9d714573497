//! A queue of SQS, as the source of messages.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_sqs::{
    error::{BuildError, SdkError},
    primitives::Blob,
    types::{MessageAttributeValue, builders::MessageAttributeValueBuilder},
};
use sha2::{Digest, Sha256};

use super::{
    DeadMessage, Source,
    message::{DEDUPLICATION_ID, FIFO},
};
use crate::{
    config::{ConfigError, queue_url},
    queue::{QueueError, SqsQueue, acceptable},
};

/// How many attributes a message has at most.
const MAX_ATTRIBUTES: usize = 10;

/// The attributes that say why a message is dead, and which one it was.
const REASON: &str = "idempotency-reason";
const MESSAGE_ID: &str = "idempotency-message-id";

/// The longest reason, in characters.
const MAX_REASON: usize = 1_000;

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

/// An attribute that is text. `None` if it is empty: SQS takes no such attribute.
fn text_value(text: &str) -> Option<MessageAttributeValueBuilder> {
    let value = MessageAttributeValue::builder().data_type("String");
    (!text.is_empty()).then(|| value.string_value(acceptable(text)))
}

fn binary_value(bytes: Vec<u8>) -> MessageAttributeValueBuilder {
    MessageAttributeValue::builder().data_type("Binary").binary_value(Blob::new(bytes))
}

/// Whether SQS refuses a message that is perhaps too long.
fn is_too_long(code: Option<&str>) -> bool {
    code.is_some_and(|code| code.contains("InvalidParameterValue") || code.contains("TooLong"))
}

#[async_trait]
impl Source for SqsSource {
    fn name(&self) -> &str {
        self.queue.name()
    }

    async fn hide(&self, receipts: &[(String, Duration)]) -> Result<(), QueueError> {
        self.queue.hide(receipts).await
    }

    async fn bury(&self, message: DeadMessage) -> Result<(), QueueError> {
        let DeadMessage { id, body, attributes, binary_attributes, group, deduplication_id, reason } =
            message;
        let reason: String = reason.chars().take(MAX_REASON).collect();
        let ours = [(REASON, Some(reason)), (MESSAGE_ID, id.clone())];
        let text = attributes.into_iter().filter_map(|(name, value)| Some((name, text_value(&value)?)));
        let binary = binary_attributes.into_iter().filter(|(_, bytes)| !bytes.is_empty());
        let binary = binary.map(|(name, bytes)| (name, binary_value(bytes)));
        let own = text.chain(binary);
        let own = own.filter(|(name, _)| ![REASON, MESSAGE_ID, DEDUPLICATION_ID].contains(&&**name));
        let key = deduplication_id.and_then(|id| Some((DEDUPLICATION_ID.to_owned(), text_value(&id)?)));
        // Its key may be among its own.
        let needed: Vec<_> = key.into_iter().chain(own).collect();
        if needed.len() > MAX_ATTRIBUTES {
            return Err(QueueError::new(
                "its own attributes leave no place for its deduplication id, which is its key",
            ));
        }
        let ours = ours.into_iter().filter_map(|(name, value)| Some((name.to_owned(), text_value(&value?)?)));
        let body = if body.is_empty() { "(empty)".to_owned() } else { acceptable(&body) };
        let request = self.queue.client().send_message().queue_url(&*self.dead_letters).message_body(&body);
        let request = if self.dead_letters.ends_with(FIFO) {
            // Without an id, the content tells messages apart: the queue would drop a second one with the same id.
            let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| hex::encode(Sha256::digest(&body)));
            request.message_group_id(group.unwrap_or_else(|| id.clone())).message_deduplication_id(id)
        } else {
            request
        };
        let with = |attributes: &[(String, MessageAttributeValueBuilder)]| {
            let mut request = request.clone();
            for (name, value) in attributes.iter().take(MAX_ATTRIBUTES) {
                request = request.message_attributes(name, value.clone().build()?);
            }
            Ok::<_, BuildError>(request)
        };
        let all: Vec<_> = needed.iter().cloned().chain(ours).collect();
        match with(&all).map_err(QueueError::new)?.send().await {
            Ok(_) => Ok(()),
            Err(SdkError::ServiceError(refused)) if is_too_long(refused.err().meta().code()) => {
                let sent = with(&needed).map_err(QueueError::new)?.send().await;
                sent.map(|_| ()).map_err(QueueError::new)
            }
            Err(error) => Err(QueueError::new(error)),
        }
    }
}
