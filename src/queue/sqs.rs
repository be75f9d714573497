//! Queues in SQS.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_config::{SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_sqs::{Client, error::BuildError, types::ChangeMessageVisibilityBatchRequestEntry};
use futures_util::{StreamExt, stream};

use super::{FifoQueue, Queue, QueueError};
use crate::{
    config::{ConfigError, queue_url},
    time_budget::{CLIENT_BACKOFF, MAX_DELAY, QUEUE_CALL_TIMEOUT, QUEUE_TRY},
};

/// How many entries a batch has at most
/// ([AWS](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibilityBatch.html)).
const BATCH: usize = 10;

/// How many such batches are sent at once.
const AT_ONCE: usize = 10;

/// An SQS queue. Needs `sqs:SendMessage` on it.
#[derive(Clone, Debug)]
pub struct SqsQueue {
    client: Client,
    url: Arc<str>,
}

impl SqsQueue {
    /// The queue whose URL the environment variable `variable` holds.
    ///
    /// # Errors
    /// If the variable is missing, or not a URL.
    pub fn from_env(config: &SdkConfig, variable: &'static str) -> Result<Self, ConfigError> {
        Ok(Self::new(config, queue_url(variable)?))
    }

    /// The queue of this URL, with time-outs that suit a worker's last seconds.
    pub fn new(config: &SdkConfig, url: impl Into<Arc<str>>) -> Self {
        Self { client: Client::new(&in_last_seconds(config)), url: url.into() }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Its name: the last part of its URL, and of its ARN.
    pub(crate) fn name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or_default()
    }

    /// Makes received messages visible again after these times, counted from now, by their receipts. Needs
    /// `sqs:ChangeMessageVisibility`.
    ///
    /// # Errors
    /// If it fails for any of them: these come again when the queue's own visibility time-out is over.
    pub(crate) async fn hide(&self, receipts: &[(String, Duration)]) -> Result<(), QueueError> {
        let hide = |batch: Vec<(String, Duration)>| async move {
            let entries: Result<Vec<_>, BuildError> = batch
                .iter()
                .enumerate()
                .map(|(place, (receipt, time))| {
                    let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(place.to_string());
                    // Up: a wait of less than a second would be none.
                    let seconds = i32::try_from(time.as_millis().div_ceil(1000)).unwrap_or(i32::MAX);
                    entry.receipt_handle(receipt).visibility_timeout(seconds).build()
                })
                .collect();
            let request = self.client.change_message_visibility_batch().queue_url(&*self.url);
            let request = request.set_entries(Some(entries.map_err(QueueError::new)?));
            let answer = request.send().await.map_err(QueueError::new)?;
            if answer.failed.is_empty() {
                return Ok(());
            }
            let codes: Vec<_> = answer.failed.iter().map(|failed| failed.code()).collect();
            Err(QueueError::new(codes.join(", ")))
        };
        let batches: Vec<_> = receipts.chunks(BATCH).map(<[_]>::to_vec).collect();
        let hidden = stream::iter(batches).map(hide).buffer_unordered(AT_ONCE);
        let hidden: Vec<Result<(), QueueError>> = hidden.collect().await;
        hidden.into_iter().collect()
    }
}

/// Time-outs that suit a worker's last seconds.
pub(crate) fn in_last_seconds(config: &SdkConfig) -> SdkConfig {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(QUEUE_TRY)
        .operation_attempt_timeout(QUEUE_TRY)
        .operation_timeout(QUEUE_CALL_TIMEOUT)
        .build();
    let retries = RetryConfig::standard().with_initial_backoff(CLIENT_BACKOFF);
    config.to_builder().timeout_config(timeouts).retry_config(retries).build()
}

#[async_trait]
impl Queue for SqsQueue {
    async fn send(&self, message: &str, delay: Duration) -> Result<(), QueueError> {
        // Rounded up: a message that comes too early is sent once more.
        let seconds = delay.min(MAX_DELAY).as_millis().div_ceil(1000) as i32;
        let request = self.client.send_message().queue_url(&*self.url).message_body(acceptable(message));
        request.delay_seconds(seconds).send().await.map(|_| ()).map_err(QueueError::new)
    }
}

#[async_trait]
impl FifoQueue for SqsQueue {
    async fn send_in_group(&self, message: &str, group: &str, id: &str) -> Result<(), QueueError> {
        let request = self.client.send_message().queue_url(&*self.url).message_body(acceptable(message));
        let request = request.message_group_id(group).message_deduplication_id(id);
        request.send().await.map(|_| ()).map_err(QueueError::new)
    }
}

/// Escapes the two characters that are valid in JSON but that SQS refuses
/// ([SendMessage](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html)). A key may
/// contain them. In JSON they occur only in strings, where an escape means the same.
pub(crate) fn acceptable(message: &str) -> String {
    message.replace('\u{FFFE}', "\\ufffe").replace('\u{FFFF}', "\\uffff")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_sqs_refuses_are_escaped() {
        let text = "\\\u{FFFF}\"\u{FFFE}\u{1F600}\n";
        let message = serde_json::to_string(text).unwrap();
        let sent = acceptable(&message);
        assert!(!sent.contains(['\u{FFFE}', '\u{FFFF}']), "{sent}");
        assert_eq!(serde_json::from_str::<String>(&sent).unwrap(), text);
        assert_eq!(acceptable("{\"kind\":\"sweep\"}"), "{\"kind\":\"sweep\"}");
    }
}
