//! Delivers a queue's messages to a function, in batches.
//!
//! As in Lambda, a message that fails is left alone. It comes back when its consumer has said, or else when the queue's visibility time-out
//! is over.

use super::{Reports, invoke, warn};
use crate::{
    changes::{self, Changes},
    functions::Function,
    template::Queue,
};
use aws_sdk_sqs::{
    Client,
    types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName},
};
use aws_smithy_types::base64;
use lambda_idempotency::telemetry::error_chain;
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, convert::Infallible, error::Error, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use uuid::Uuid;

/// The wait before an empty queue is polled again, if it has changed. A long poll would notice the end of a delay only once a second.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A queue, and the function that takes its messages.
#[derive(Clone)]
pub struct Source {
    pub client: Client,
    pub queue: Queue,
    pub changes: Changes,
    /// A message that failed can be received again after this time.
    pub visibility: Duration,
    pub region: String,
    pub function: Arc<Function>,
    pub batch: i32,
    /// If its reports are not read, all of a batch are done, or none.
    pub reports: Reports,
}

/// One of a mapping's pollers, with one batch at a time.
pub async fn run(source: Source) {
    let (mut logged, mut changes) = (String::new(), source.changes.subscribe());
    loop {
        let Err(error) = poll(&source, &mut changes).await;
        let message = format!("queue {}: {}", source.queue.arn, error_chain(&*error));
        if message != logged {
            warn(&source.function, &message);
            logged = message;
        }
        time::sleep(POLL_INTERVAL).await;
    }
}

async fn poll(source: &Source, changes: &mut watch::Receiver<()>) -> Outcome<Infallible> {
    let Source { client, queue, region, function, batch, reports, .. } = source;
    // Until then a message may come back without a change.
    let mut restless = Instant::now();
    loop {
        // Lambda would receive some messages again and again, and not hand them over.
        if function.is_stopped() {
            time::sleep(POLL_INTERVAL).await;
            continue;
        }
        // Before the queue is read, so that no change is missed.
        changes.mark_unchanged();
        let receive = client.receive_message().queue_url(&queue.url).max_number_of_messages(*batch);
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
        let messages = receive.message_attribute_names("All").send().await?.messages.unwrap_or_default();
        if messages.is_empty() {
            time::sleep(POLL_INTERVAL).await;
            if Instant::now() > restless {
                changes::next(changes).await;
            }
            continue;
        }
        let records: Vec<_> = messages.iter().map(|message| record(message, queue, region)).collect();
        let ids: Vec<_> = messages.iter().map(|message| message.message_id().unwrap_or_default()).collect();
        let event = json!({ "Records": records }).to_string();
        let failed = match invoke(function, Uuid::new_v4(), event, &ids, reports).await {
            Ok(failed) => failed,
            Err(failure) => {
                warn(function, &format!("a batch of {} messages is retried: {failure}", messages.len()));
                (0..messages.len()).collect()
            }
        };
        if !failed.is_empty() {
            restless = Instant::now() + source.visibility + POLL_INTERVAL;
        }
        delete(client, queue, &messages, &failed).await?;
    }
}

/// Deletes the messages that are done.
async fn delete(
    client: &Client,
    queue: &Queue,
    messages: &[Message],
    failed: &BTreeSet<usize>,
) -> Outcome<()> {
    let done = messages.iter().enumerate().filter(|(place, _)| !failed.contains(place));
    let entries = done.map(|(place, message)| {
        let entry = DeleteMessageBatchRequestEntry::builder().id(place.to_string());
        entry.receipt_handle(message.receipt_handle().unwrap_or_default()).build()
    });
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    if !entries.is_empty() {
        client.delete_message_batch().queue_url(&queue.url).set_entries(Some(entries)).send().await?;
    }
    Ok(())
}

/// A message in the event.
fn record(message: &Message, queue: &Queue, region: &str) -> Value {
    let attributes: Map<String, Value> = message.attributes().map_or_else(Map::new, |attributes| {
        attributes.iter().map(|(name, value)| (name.as_str().to_owned(), json!(value))).collect()
    });
    let own = message.message_attributes().into_iter().flatten();
    let own: Map<String, Value> = own
        .map(|(name, value)| {
            let shown = json!({
                "stringValue": value.string_value(),
                "binaryValue": value.binary_value().map(base64::encode),
                "stringListValues": [],
                "binaryListValues": [],
                "dataType": value.data_type(),
            });
            (name.clone(), shown)
        })
        .collect();
    json!({
        "messageId": message.message_id(),
        "receiptHandle": message.receipt_handle(),
        "body": message.body(),
        "attributes": attributes,
        "messageAttributes": own,
        "md5OfBody": message.md5_of_body(),
        "eventSource": "aws:sqs",
        "eventSourceARN": queue.arn,
        "awsRegion": region,
    })
}
