//! Sends what no delivery can help to a queue of dead letters.

use std::sync::Arc;

use aws_config::SdkConfig;
use aws_sdk_sqs::{
    Client,
    error::{BuildError, SdkError},
    primitives::Blob,
    types::{MessageAttributeValue, builders::MessageAttributeValueBuilder},
};
use sha2::{Digest, Sha256};

use super::{
    DeadMessage,
    dead::{DEDUPLICATION_ID, FIFO},
};
use crate::{
    queue::{QueueError, SqsQueue, acceptable},
    telemetry::{MESSAGE_CUT, count_message},
};

/// How many attributes a message has at most.
const MAX_ATTRIBUTES: usize = 10;

/// The attributes that say why a message is dead, and which one it was.
const REASON: &str = "idempotency-reason";
const MESSAGE_ID: &str = "idempotency-message-id";

/// The longest reason, in characters.
const MAX_REASON: usize = 1_000;

/// The longest body that is sent, if there is a shorter one. SQS takes 1 MiB, with the attributes.
const MAX_BODY: usize = 1_000_000;

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

/// The queue of dead letters of a source.
#[derive(Clone, Debug)]
pub(super) struct Letters {
    queue: SqsQueue,
    url: Arc<str>,
    /// The source.
    of: Arc<str>,
}

impl Letters {
    /// The queue of this URL, for the source `of`.
    pub(super) fn new(config: &SdkConfig, of: Arc<str>, url: Arc<str>) -> Self {
        Self { queue: SqsQueue::new(config, url.clone()), url, of }
    }

    /// Sends it there.
    pub(super) async fn bury(&self, message: DeadMessage) -> Result<(), QueueError> {
        bury(self.queue.client(), &self.url, &self.of, message).await
    }
}

/// Sends a message of this source to the queue of this URL.
pub(super) async fn bury(
    client: &Client,
    dead_letters: &str,
    source: &str,
    message: DeadMessage,
) -> Result<(), QueueError> {
    let DeadMessage { id, body, attributes, binary_attributes, group, deduplication_id, short, reason } =
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
    let all: Vec<_> = needed.iter().cloned().chain(ours).collect();
    let body = if body.is_empty() { "(empty)".to_owned() } else { acceptable(&body) };
    let with = |body: &str, attributes: &[(String, MessageAttributeValueBuilder)]| {
        let mut request = client.send_message().queue_url(dead_letters).message_body(body);
        if dead_letters.ends_with(FIFO) {
            // Without an id, the content tells messages apart: the queue would drop a second one with the same id.
            let id = id.clone().filter(|id| !id.is_empty());
            let id = id.unwrap_or_else(|| hex::encode(Sha256::digest(body)));
            let group = group.clone().unwrap_or_else(|| id.clone());
            request = request.message_group_id(group).message_deduplication_id(id);
        }
        for (name, value) in attributes.iter().take(MAX_ATTRIBUTES) {
            request = request.message_attributes(name, value.clone().build()?);
        }
        Ok::<_, BuildError>(request)
    };
    let short = short.map(|short| acceptable(&short));
    let is_sent = match &short {
        // It would be refused.
        Some(_) if body.len() > MAX_BODY => false,
        _ => match with(&body, &all).map_err(QueueError::new)?.send().await {
            Ok(_) => true,
            Err(SdkError::ServiceError(refused)) if is_too_long(refused.err().meta().code()) => false,
            Err(error) => return Err(QueueError::new(error)),
        },
    };
    if is_sent {
        return Ok(());
    }
    let shorter = match &short {
        // With its reason, which needs little place then.
        Some(short) => with(short, &all),
        None => with(&body, &needed),
    };
    shorter.map_err(QueueError::new)?.send().await.map_err(QueueError::new)?;
    if short.is_some() {
        tracing::error!(
            message_id = id,
            "a dead letter is cut: its message is too long for the queue. Its source has it, for as long as that retains it"
        );
        count_message(MESSAGE_CUT, &source.into());
    }
    Ok(())
}
