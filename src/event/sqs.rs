//! A queue of SQS, as the source of messages.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_sqs::{
    Client,
    error::BuildError,
    types::{ChangeMessageVisibilityBatchRequestEntry, MessageAttributeValue},
};
use sha2::{Digest, Sha256};

use super::{DeadMessage, Source};
use crate::{
    config::{ConfigError, text},
    queue::{QueueError, SqsQueue, acceptable},
};

/// How many entries a batch has at most
/// ([AWS](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibilityBatch.html)).
const BATCH: usize = 10;

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
/// message it was.
#[derive(Clone, Debug)]
pub struct SqsSource {
    client: Client,
    url: Arc<str>,
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
        let url = |variable| match text(variable) {
            Ok(url) if url.starts_with("http") => Ok(url),
            Ok(_) => Err(ConfigError::Malformed(variable, "the URL of an SQS queue")),
            Err(error) => Err(error),
        };
        Ok(Self::new(config, url(queue)?, url(dead_letters)?))
    }

    /// The queues of these URLs.
    pub fn new(config: &SdkConfig, queue: impl Into<Arc<str>>, dead_letters: impl Into<Arc<str>>) -> Self {
        Self { client: SqsQueue::client(config), url: queue.into(), dead_letters: dead_letters.into() }
    }
}

#[async_trait]
impl Source for SqsSource {
    fn name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or_default()
    }

    async fn hide(&self, receipts: &[(String, Duration)]) -> Result<(), QueueError> {
        let mut failed = None;
        for batch in receipts.chunks(BATCH) {
            let entries: Result<Vec<_>, BuildError> = batch
                .iter()
                .enumerate()
                .map(|(place, (receipt, time))| {
                    let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(place.to_string());
                    let seconds = i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
                    entry.receipt_handle(receipt).visibility_timeout(seconds).build()
                })
                .collect();
            let request = self.client.change_message_visibility_batch().queue_url(&*self.url);
            let request = request.set_entries(Some(entries.map_err(QueueError::new)?));
            match request.send().await {
                Ok(answer) if answer.failed.is_empty() => {}
                Ok(answer) => {
                    let codes: Vec<_> = answer.failed.iter().map(|failed| failed.code()).collect();
                    failed = Some(QueueError::new(codes.join(", ")));
                }
                Err(error) => failed = Some(QueueError::new(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn bury(&self, message: DeadMessage) -> Result<(), QueueError> {
        let DeadMessage { id, body, attributes, group, reason } = message;
        let reason: String = reason.chars().take(MAX_REASON).collect();
        let ours = [(REASON, Some(reason)), (MESSAGE_ID, id.clone())];
        let ours = ours.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let others = attributes.into_iter().filter(|(name, _)| name != REASON && name != MESSAGE_ID);
        let body = if body.is_empty() { "(empty)".to_owned() } else { acceptable(&body) };
        // Identifies a message without an id: a FIFO queue would drop all of them but the first.
        let digest = hex::encode(Sha256::digest(&body));
        let mut request = self.client.send_message().queue_url(&*self.dead_letters).message_body(body);
        for (name, value) in ours.chain(others).filter(|(_, value)| !value.is_empty()).take(MAX_ATTRIBUTES) {
            let value = MessageAttributeValue::builder().data_type("String").string_value(acceptable(&value));
            request = request.message_attributes(name, value.build().map_err(QueueError::new)?);
        }
        if self.dead_letters.ends_with(".fifo") {
            let id = id.filter(|id| !id.is_empty()).unwrap_or(digest);
            request =
                request.message_group_id(group.unwrap_or_else(|| id.clone())).message_deduplication_id(id);
        }
        request.send().await.map(|_| ()).map_err(QueueError::new)
    }
}
