//! Queues in SQS.

use std::error::Error;

use aws_config::SdkConfig;
use aws_sdk_sqs::{Client, config::Builder};

use crate::{context, failure::Failure};

pub fn client(config: &SdkConfig) -> Client {
    Client::from_conf(Builder::from(config).timeout_config(context::timeouts()).build())
}

/// The queue that a command works with, from its option or this environment variable.
pub fn named<'a>(url: Option<&'a str>, variable: &str) -> Result<&'a str, Failure> {
    url.ok_or_else(|| Failure::Usage(format!("which queue? Give --queue, or set {variable}")))
}

pub async fn send(client: &Client, url: &str, body: &str) -> Result<(), Failure> {
    let sent = client.send_message().queue_url(url).message_body(body).send().await;
    sent.map(|_| ()).map_err(|error| failed(url, &error))
}

/// Sends a message of this group to a standard queue, which passes over groups with many messages.
pub async fn send_fairly(client: &Client, url: &str, body: &str, group: &str) -> Result<(), Failure> {
    let sent = client.send_message().queue_url(url).message_body(body).message_group_id(group).send().await;
    sent.map(|_| ()).map_err(|error| failed(url, &error))
}

/// Sends a message into this group of a FIFO queue. A second one with this id within five minutes is dropped.
pub async fn send_in_group(
    client: &Client,
    url: &str,
    body: &str,
    group: &str,
    id: &str,
) -> Result<(), Failure> {
    let request = client.send_message().queue_url(url).message_body(body);
    let sent = request.message_group_id(group).message_deduplication_id(id).send().await;
    sent.map(|_| ()).map_err(|error| failed(url, &error))
}

/// A failure that names the queue.
pub fn failed(url: &str, error: &(dyn Error + 'static)) -> Failure {
    Failure::Error(format!("queue {url}: {}", Failure::from_error(error)))
}
