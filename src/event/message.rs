//! One message, as Lambda hands it over.

use std::collections::HashMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{store::stream::text_member, time::Timestamp};

/// Lambda's name for SQS.
pub(super) const SQS: &str = "aws:sqs";

/// The attribute with the deduplication id of a dead message: the queue gives it another one when it is sent back.
pub(super) const DEDUPLICATION_ID: &str = "idempotency-deduplication-id";

/// How the name of a FIFO queue ends.
pub(super) const FIFO: &str = ".fifo";

/// A message of a queue, without its envelopes.
#[derive(Clone, Default, derive_more::Debug)]
// Bodies and attributes do not belong in logs.
#[debug("Message({:?})", id)]
#[non_exhaustive]
pub struct Message {
    /// SQS's id of the message. A redrive gives it another one.
    pub id: Option<String>,
    /// What was sent; if there were envelopes, what was in the innermost one; if it was a pointer, its payload.
    pub body: String,
    /// Its message attributes that are text, or those of its innermost envelope.
    pub attributes: HashMap<String, String>,
    /// The same for bytes.
    pub binary_attributes: HashMap<String, Vec<u8>>,
    /// What identifies it within its innermost envelope: see [`Envelope`](super::Envelope).
    pub envelope_id: Option<Vec<String>>,
    /// Its group, in a FIFO queue.
    pub group: Option<String>,
    /// Its deduplication id, in a FIFO queue: the first one, if it comes back from the dead letters.
    pub deduplication_id: Option<String>,
    /// How often it was received, this time included.
    pub receives: u32,
    /// When it was sent, by the queue's clock.
    pub sent_at: Option<Timestamp>,
}

impl Message {
    /// What is in an envelope around this message: a body with this id. Attributes are the envelope's affair.
    pub(super) fn holding(&self, body: String, envelope_id: Vec<String>) -> Self {
        Self {
            id: self.id.clone(),
            body,
            attributes: HashMap::new(),
            binary_attributes: HashMap::new(),
            envelope_id: Some(envelope_id),
            group: self.group.clone(),
            deduplication_id: self.deduplication_id.clone(),
            receives: self.receives,
            sent_at: self.sent_at,
        }
    }
}

/// A message with what is needed to end it.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) message: Message,
    /// By which the queue knows this receive.
    pub(super) receipt: Option<String>,
    /// The queue's ARN.
    pub(super) queue: Option<String>,
    pub(super) kind: Option<String>,
    /// Why it cannot be used, if so.
    pub(super) unusable: Option<String>,
}

/// A message as Lambda hands it over. Any member may be missing or null, and there may be others.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SqsMessage {
    message_id: Option<String>,
    receipt_handle: Option<String>,
    body: Option<String>,
    attributes: Option<HashMap<String, Option<String>>>,
    message_attributes: Option<HashMap<String, Option<MessageAttribute>>>,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: Option<String>,
    event_source: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageAttribute {
    string_value: Option<String>,
    binary_value: Option<String>,
}

const NOT_OF_SQS: &str = "the message is not as SQS writes it";

impl Received {
    /// Reads one record of a batch. One that is not as AWS documents it is unusable, but keeps what can be read of it.
    pub(super) fn read(raw: &RawValue) -> Self {
        match serde_json::from_str::<SqsMessage>(raw.get()) {
            Ok(message) => Self::of(message),
            Err(_) => {
                let [id, receipt, queue, kind, body] =
                    ["messageId", "receiptHandle", "eventSourceARN", "eventSource", "body"]
                        .map(|name| text_member(raw.get(), name));
                // Its group waits behind it, if its burial fails.
                let record: Value = serde_json::from_str(raw.get()).unwrap_or_default();
                let group = record["attributes"]["MessageGroupId"].as_str().map(str::to_owned);
                let group = group.filter(|_| queue.as_deref().is_some_and(|arn| arn.ends_with(FIFO)));
                let text = |value: &Value| value.as_str().map(str::to_owned);
                let body = body.unwrap_or_else(|| match &record["body"] {
                    // The whole record, if it is nothing that can be read.
                    Value::Null if record.is_null() => raw.get().to_owned(),
                    Value::Null => String::new(),
                    body => body.to_string(),
                });
                let attributes = record["messageAttributes"].as_object().into_iter().flatten();
                let mut attributes: HashMap<_, _> = attributes
                    .filter_map(|(name, value)| Some((name.clone(), text(&value["stringValue"])?)))
                    .collect();
                let deduplication_id = attributes.remove(DEDUPLICATION_ID);
                let deduplication_id =
                    deduplication_id.or_else(|| text(&record["attributes"]["MessageDeduplicationId"]));
                let receives = record["attributes"]["ApproximateReceiveCount"].as_str();
                let receives = receives.and_then(|receives| receives.parse().ok()).unwrap_or(1);
                let message =
                    Message { id, body, attributes, group, deduplication_id, receives, ..Message::default() };
                let unusable = Some(NOT_OF_SQS.to_owned());
                Self { message, receipt, queue, kind, unusable }
            }
        }
    }

    /// Where it is from, for a log.
    pub(super) fn source(&self) -> &str {
        self.queue.as_deref().or(self.kind.as_deref()).unwrap_or("an unknown source")
    }

    fn of(message: SqsMessage) -> Self {
        let (mut text, mut binary) = (HashMap::new(), HashMap::new());
        let mut unusable = message.body.is_none().then_some("the message has no body");
        for (name, value) in message.message_attributes.unwrap_or_default() {
            match value.map(|value| (value.string_value, value.binary_value)) {
                Some((Some(value), _)) => drop(text.insert(name, value)),
                Some((None, Some(bytes))) => match BASE64_STANDARD.decode(bytes) {
                    Ok(bytes) => drop(binary.insert(name, bytes)),
                    Err(_) => unusable = Some(NOT_OF_SQS),
                },
                Some((None, None)) | None => {}
            }
        }
        let mut attributes = message.attributes.unwrap_or_default();
        // If it comes back from the dead letters, it has another one of the queue's.
        let deduplication_id = text.remove(DEDUPLICATION_ID);
        let mut system = |name: &str| attributes.remove(name).flatten();
        let is_fifo = message.event_source_arn.as_ref().is_some_and(|arn| arn.ends_with(FIFO));
        Self {
            message: Message {
                id: message.message_id.filter(|id| !id.is_empty()),
                body: message.body.unwrap_or_default(),
                attributes: text,
                binary_attributes: binary,
                envelope_id: None,
                // A standard queue may have groups too, for fairness: they have no order.
                group: system("MessageGroupId").filter(|_| is_fifo),
                deduplication_id: deduplication_id.or_else(|| system("MessageDeduplicationId")),
                receives: system("ApproximateReceiveCount").and_then(|count| count.parse().ok()).unwrap_or(1),
                sent_at: system("SentTimestamp").and_then(|at| at.parse().ok()).map(Timestamp::from_millis),
            },
            receipt: message.receipt_handle,
            queue: message.event_source_arn,
            kind: message.event_source,
            unusable: unusable.map(str::to_owned),
        }
    }
}
