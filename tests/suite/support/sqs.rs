//! Somebody else's SQS, with queues that no function empties: the emulator of a local cloud, or ElasticMQ.
//!
//! The first hands out one message of a FIFO group at a time. The second hands out several in one batch, as SQS may.

use std::{any::Any, collections::HashMap, time::Duration};

use aws_config::SdkConfig;
use aws_sdk_sqs::{
    Client,
    primitives::Blob,
    types::{
        DeleteMessageBatchRequestEntry, Message, MessageAttributeValue, MessageSystemAttributeName,
        QueueAttributeName, SendMessageBatchRequestEntry,
    },
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};

use super::{client::connect, elasticmq, local_cloud::LocalCloud};

/// How many messages SQS sends, receives or deletes in one request at most.
pub const BATCH: usize = 10;

/// As the template has it: the most that SQS allows.
const MAX_RECEIVES: u32 = 1_000;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long a test waits for a message. Only a failure takes as long.
const TIMEOUT: Duration = Duration::from_secs(180);

/// An SQS, which runs until it is dropped.
pub struct Sqs {
    url: String,
    client: Client,
    /// Ends when this is dropped.
    _server: Box<dyn Any + Send>,
}

/// A queue with a queue for its dead letters.
#[derive(Clone, Debug)]
pub struct Queue {
    client: Client,
    pub name: String,
    pub url: String,
    /// Where its dead letters are.
    pub dead_letters: String,
}

/// A message to send.
#[derive(Clone, Debug)]
pub struct NewMessage {
    pub body: String,
    /// Only in a FIFO queue.
    pub group: Option<String>,
    pub attributes: Vec<(String, String)>,
    /// Attributes that are bytes.
    pub binary: Vec<(String, Vec<u8>)>,
}

impl NewMessage {
    pub fn new(body: impl ToString) -> Self {
        Self { body: body.to_string(), group: None, attributes: Vec::new(), binary: Vec::new() }
    }

    pub fn of_group(group: &str, body: impl ToString) -> Self {
        Self { group: Some(group.to_owned()), ..Self::new(body) }
    }
}

impl Sqs {
    pub async fn start() -> Self {
        let cloud = LocalCloud::start(&[]).await;
        Self::at(cloud.queues().to_owned(), cloud)
    }

    /// ElasticMQ.
    pub fn elasticmq() -> Self {
        let running = elasticmq::start();
        Self::at(running.endpoint.clone(), running)
    }

    fn at(url: String, server: impl Any + Send) -> Self {
        let client = Client::new(&connect(&url).sdk_config());
        Self { url, client, _server: Box::new(server) }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The configuration of its clients.
    pub fn config(&self) -> SdkConfig {
        connect(self.url()).sdk_config()
    }

    /// Creates a queue of this name. It is FIFO if the name ends with `.fifo`. Its own visibility time-out has this many seconds.
    pub async fn queue(&self, name: &str, visibility: u32) -> Queue {
        let fifo = name.ends_with(".fifo");
        let create = async |name: &str, others: &[(QueueAttributeName, String)]| {
            let mut attributes: HashMap<_, _> = others.iter().cloned().collect();
            if fifo {
                attributes.insert(QueueAttributeName::FifoQueue, "true".to_owned());
            }
            let create = self.client.create_queue().queue_name(name).set_attributes(Some(attributes));
            create.send().await.expect("the queue is created").queue_url.expect("it has a URL")
        };
        let dead_name = format!("dead-{name}");
        let dead_letters = create(&dead_name, &[]).await;
        let get = self.client.get_queue_attributes().queue_url(&dead_letters);
        let got = get.attribute_names(QueueAttributeName::QueueArn).send().await.expect("SQS answers");
        let arn = got.attributes.expect("it has attributes")[&QueueAttributeName::QueueArn].clone();
        let policy = json!({ "deadLetterTargetArn": arn, "maxReceiveCount": MAX_RECEIVES });
        let attributes = [
            (QueueAttributeName::VisibilityTimeout, visibility.to_string()),
            (QueueAttributeName::RedrivePolicy, policy.to_string()),
        ];
        let url = create(name, &attributes).await;
        Queue { client: self.client.clone(), name: name.to_owned(), url, dead_letters }
    }
}

impl Queue {
    /// Sends messages in this order, as many in one request as SQS allows. Each is sent: no two have one deduplication id.
    pub async fn send(&self, messages: &[NewMessage]) {
        for batch in messages.chunks(BATCH) {
            let entries = batch.iter().enumerate().map(|(place, message)| {
                let attributes = message.attributes.iter().map(|(name, value)| {
                    let value = MessageAttributeValue::builder().data_type("String").string_value(value);
                    (name.clone(), value.build().expect("it has a type"))
                });
                let binary = message.binary.iter().map(|(name, bytes)| {
                    let value = MessageAttributeValue::builder().data_type("Binary");
                    let value = value.binary_value(Blob::new(bytes.clone()));
                    (name.clone(), value.build().expect("it has a type"))
                });
                let attributes = attributes.chain(binary);
                let id = message.group.as_ref().map(|_| uuid::Uuid::new_v4().to_string());
                let entry = SendMessageBatchRequestEntry::builder().id(place.to_string());
                let entry =
                    entry.message_body(&message.body).set_message_attributes(Some(attributes.collect()));
                let entry =
                    entry.set_message_group_id(message.group.clone()).set_message_deduplication_id(id);
                entry.build().expect("it has an id and a body")
            });
            let send = self.client.send_message_batch().queue_url(&self.url);
            let sent = send.set_entries(Some(entries.collect())).send().await.expect("SQS answers");
            assert!(sent.failed.is_empty(), "{:?}", sent.failed);
        }
    }

    /// Up to ten messages that are visible now.
    pub async fn receive(&self) -> Vec<Message> {
        self.receive_from(&self.url, None).await
    }

    /// The same, hidden for this many seconds.
    pub async fn receive_for(&self, seconds: i32) -> Vec<Message> {
        self.receive_from(&self.url, Some(seconds)).await
    }

    async fn receive_from(&self, url: &str, hidden: Option<i32>) -> Vec<Message> {
        let receive = self.client.receive_message().queue_url(url).max_number_of_messages(BATCH as i32);
        let receive = receive.set_visibility_timeout(hidden);
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
        let received = receive.message_attribute_names("All").send().await.expect("SQS answers");
        received.messages.unwrap_or_default()
    }

    /// The next messages that are visible.
    pub async fn next(&self) -> Vec<Message> {
        let next = async {
            loop {
                let messages = self.receive().await;
                if !messages.is_empty() {
                    return messages;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(TIMEOUT, next).await.expect("a message should be visible by now")
    }

    /// Deletes messages by the receipts of this receive.
    pub async fn delete(&self, messages: impl IntoIterator<Item = &Message>) {
        self.delete_from(&self.url, messages).await;
    }

    async fn delete_from(&self, url: &str, messages: impl IntoIterator<Item = &Message>) {
        let entries = messages.into_iter().enumerate().map(|(place, message)| {
            let entry = DeleteMessageBatchRequestEntry::builder().id(place.to_string());
            entry.receipt_handle(receipt(message)).build().expect("it has an id and a receipt")
        });
        let entries: Vec<_> = entries.collect();
        if !entries.is_empty() {
            let delete = self.client.delete_message_batch().queue_url(url).set_entries(Some(entries));
            delete.send().await.expect("SQS answers");
        }
    }

    /// Takes all dead letters out of their queue.
    pub async fn take_dead_letters(&self) -> Vec<Message> {
        let mut all = Vec::new();
        loop {
            let letters = self.receive_from(&self.dead_letters, None).await;
            if letters.is_empty() {
                return all;
            }
            self.delete_from(&self.dead_letters, &letters).await;
            all.extend(letters);
        }
    }

    /// How many messages there are, visible or not.
    pub async fn left(&self) -> usize {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let get = self.client.get_queue_attributes().queue_url(&self.url);
        let got = get.set_attribute_names(Some(names.to_vec())).send().await.expect("SQS answers");
        let numbers = got.attributes.expect("it has attributes");
        names.iter().map(|name| numbers[name].parse::<usize>().expect("a number")).sum()
    }

    /// A message as Lambda hands it over.
    pub fn record(&self, message: &Message) -> Value {
        let system = message.attributes().into_iter().flatten();
        let system: Map<_, _> =
            system.map(|(name, value)| (name.as_str().to_owned(), json!(value))).collect();
        let own = message.message_attributes().into_iter().flatten().map(|(name, value)| {
            let bytes = value.binary_value().map(|bytes| BASE64_STANDARD.encode(bytes));
            let shown = json!({
                "stringValue": value.string_value(), "binaryValue": bytes, "dataType": value.data_type()
            });
            (name.clone(), shown)
        });
        json!({
            "messageId": message.message_id(),
            "receiptHandle": message.receipt_handle(),
            "body": message.body(),
            "attributes": system,
            "messageAttributes": own.collect::<Map<_, _>>(),
            "md5OfBody": message.md5_of_body(),
            "eventSource": "aws:sqs",
            "eventSourceARN": format!("arn:aws:sqs:eu-central-1:123456789012:{}", self.name),
            "awsRegion": "eu-central-1"
        })
    }
}

pub fn receipt(message: &Message) -> &str {
    message.receipt_handle().expect("a received message has a receipt")
}

/// The message attribute of this name.
pub fn attribute<'m>(message: &'m Message, name: &str) -> Option<&'m str> {
    message.message_attributes()?.get(name)?.string_value()
}

/// What SQS itself says of the message.
pub fn system_attribute(message: &Message, name: MessageSystemAttributeName) -> Option<&str> {
    message.attributes()?.get(&name).map(String::as_str)
}
