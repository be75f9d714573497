//! Queues in SQS.

use std::{error::Error, time::Duration};

use aws_config::{SdkConfig, timeout::TimeoutConfig};
use aws_sdk_sqs::{Client, config::Builder};

use crate::failure::Failure;

/// With time-outs: the SDK has none of its own.
pub fn client(config: &SdkConfig) -> Client {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(3))
        .operation_attempt_timeout(Duration::from_secs(10))
        .operation_timeout(Duration::from_secs(30));
    Client::from_conf(Builder::from(config).timeout_config(timeouts.build()).build())
}

pub async fn send(client: &Client, url: &str, body: &str) -> Result<(), Failure> {
    let sent = client.send_message().queue_url(url).message_body(body).send().await;
    sent.map(|_| ()).map_err(|error| failed(url, &error))
}

/// Which of several queues it is about.
pub fn failed(url: &str, error: &(dyn Error + 'static)) -> Failure {
    Failure::Error(format!("queue {url}: {}", Failure::from_error(error)))
}
