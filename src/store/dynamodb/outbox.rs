//! The outbox: items `message#<created_at>#<sequence>` with the record's partition key, without a time to live.

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use serde::{Deserialize, Serialize};

use super::{
    DynamoDbStore,
    attributes::{form, named},
    conditions::Attributes,
};
use crate::{
    key::RecordKey,
    store::{
        Outbox, OutboxMessage, Result, StoreError,
        item::{MESSAGE, check_version},
    },
    time::Timestamp,
};

/// How many messages are read at once: each may have 240 KiB.
const PAGE: i32 = 25;

/// The attributes of a message.
#[derive(Serialize, Deserialize)]
struct Item {
    created_at: Timestamp,
    sequence: u32,
    topic: String,
    body: String,
    published_at: Timestamp,
}

#[derive(Deserialize)]
struct Stored {
    schema: u32,
    #[serde(flatten)]
    item: Item,
}

/// Sorts in the order in which the messages were committed.
fn sort_key(created_at: Timestamp, sequence: u32) -> String {
    format!("{MESSAGE}{:013}#{sequence:010}", created_at.as_millis())
}

pub(super) fn to_item(key: &RecordKey, message: &OutboxMessage) -> Result<Attributes> {
    let OutboxMessage { created_at, sequence, topic, body, published_at, .. } = message.clone();
    let mut item = form(&Item { created_at, sequence, topic, body, published_at })?;
    item.extend(named(key, sort_key(created_at, sequence)));
    Ok(item)
}

fn from_item(key: &RecordKey, item: Attributes) -> Result<OutboxMessage> {
    let Stored { schema, item } = serde_dynamo::from_item(item).map_err(StoreError::unreadable)?;
    check_version(schema)?;
    let Item { created_at, sequence, topic, body, published_at } = item;
    Ok(OutboxMessage { key: key.clone(), created_at, sequence, topic, body, published_at })
}

#[async_trait]
impl Outbox for DynamoDbStore {
    /// Needs `dynamodb:Query` on the table.
    async fn undelivered(&self, key: &RecordKey) -> Result<Vec<OutboxMessage>> {
        let text = |text: String| AttributeValue::S(text);
        let query = self
            .client
            .query()
            .table_name(&*self.table)
            .consistent_read(true)
            .key_condition_expression("pk = :pk AND begins_with(sk, :message)")
            .expression_attribute_values(":pk", text(key.partition_key()))
            .expression_attribute_values(":message", text(MESSAGE.to_owned()))
            .limit(PAGE);
        let items = query.send().await?.items.unwrap_or_default();
        let mut messages = Vec::new();
        for item in items {
            match from_item(key, item) {
                Ok(message) => messages.push(message),
                // Those before it are delivered first.
                Err(_) if !messages.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(messages)
    }

    /// Needs `dynamodb:DeleteItem` on the table.
    async fn remove(&self, message: &OutboxMessage) -> Result<()> {
        let sort_key = sort_key(message.created_at, message.sequence);
        self.delete(&message.key.partition_key(), sort_key).await
    }
}
