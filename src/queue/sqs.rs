//! Queues in SQS.

use std::{env, sync::Arc, time::Duration};

use aws_config::{SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_sqs::{Client, config::Builder};

use super::{Queue, QueueError, Sending};

/// The longest delay of a message
/// ([quotas](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html)).
pub const LONGEST_DELAY: Duration = Duration::from_secs(15 * 60);

/// One try and all tries together: a worker hands its outcome over in the last seconds of its time.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(700);
const OPERATION_TIMEOUT: Duration = Duration::from_millis(1500);

/// What is wrong with the configuration of a queue. Found at start-up, by name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueConfigError {
    /// The environment does not say which queue.
    #[error("the environment variable {0} must be the URL of an SQS queue")]
    NoUrl(&'static str),
}

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
    /// Where the variable is missing or no URL.
    pub fn from_env(config: &SdkConfig, variable: &'static str) -> Result<Self, QueueConfigError> {
        match env::var(variable) {
            Ok(url) if url.starts_with("http") => Ok(Self::new(config, url)),
            _ => Err(QueueConfigError::NoUrl(variable)),
        }
    }

    /// The queue of this URL, with time-outs that suit a worker's last seconds.
    pub fn new(config: &SdkConfig, url: impl Into<Arc<str>>) -> Self {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(ATTEMPT_TIMEOUT)
            .operation_attempt_timeout(ATTEMPT_TIMEOUT)
            .operation_timeout(OPERATION_TIMEOUT)
            .build();
        let retries = RetryConfig::standard().with_initial_backoff(Duration::from_millis(25));
        let config = Builder::from(config).timeout_config(timeouts).retry_config(retries).build();
        Self { client: Client::from_conf(config), url: url.into() }
    }
}

impl Queue for SqsQueue {
    fn send<'a>(&'a self, message: &'a str, delay: Duration) -> Sending<'a> {
        // Rounded up: a message that comes too early is sent once more.
        let seconds = delay.min(LONGEST_DELAY).as_millis().div_ceil(1000) as i32;
        let request = self.client.send_message().queue_url(&*self.url).message_body(message);
        let request = request.delay_seconds(seconds);
        Box::pin(async move { request.send().await.map(|_| ()).map_err(QueueError::new) })
    }
}
