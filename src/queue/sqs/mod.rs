//! Queues in SQS.

#[cfg(feature = "lambda")]
mod receipts;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_config::{SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_sqs::Client;

use super::{FairQueue, FifoQueue, Queue, QueueError};
use crate::{
    config::{ConfigError, queue_url},
    time_budget::{CLIENT_BACKOFF, MAX_DELAY, QUEUE_CALL_TIMEOUT, QUEUE_TRY},
};

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
        let request = self.client.send_message().queue_url(&*self.url).message_body(acceptable(message));
        request.delay_seconds(seconds(delay)).send().await.map(|_| ()).map_err(QueueError::new)
    }
}

#[async_trait]
impl FairQueue for SqsQueue {
    async fn send_fairly(&self, message: &str, group: &str, delay: Duration) -> Result<(), QueueError> {
        let request = self.client.send_message().queue_url(&*self.url).message_body(acceptable(message));
        let request = request.message_group_id(group).delay_seconds(seconds(delay));
        request.send().await.map(|_| ()).map_err(QueueError::new)
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

/// Rounded up: a message that comes too early is sent once more.
fn seconds(delay: Duration) -> i32 {
    delay.min(MAX_DELAY).as_millis().div_ceil(1000) as i32
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
