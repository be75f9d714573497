//! The outbox: items `message#<created_at>#<sequence>` with the record's partition key, without a time to live.

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, Get, TransactGetItem};
use serde::{Deserialize, Serialize};

use super::{
    DynamoDbStore, PK, SK,
    attributes::{form, named},
    conditions::Attributes,
};
use crate::{
    key::RecordKey,
    store::{
        Outbox, OutboxMessage, Result, StoreError, StoreErrorKind,
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
    first: u32,
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
    let OutboxMessage { created_at, sequence, first, topic, body, published_at, .. } = message.clone();
    let mut item = form(&Item { created_at, sequence, first, topic, body, published_at })?;
    item.extend(named(key, sort_key(created_at, sequence)));
    Ok(item)
}

fn from_item(key: &RecordKey, item: Attributes) -> Result<OutboxMessage> {
    let Stored { schema, item } = serde_dynamo::from_item(item).map_err(StoreError::unreadable)?;
    check_version(schema)?;
    let Item { created_at, sequence, first, topic, body, published_at } = item;
    Ok(OutboxMessage { key: key.clone(), created_at, sequence, first, topic, body, published_at })
}

/// Whether `message` follows `before`, or is the first of its record. Otherwise, a query may have seen a part of a transaction, or a later
/// transaction and not yet an earlier one: a message that comes first may be in the table and not in the answer
/// ([AWS](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-isolation)).
fn is_next(before: Option<&OutboxMessage>, message: &OutboxMessage) -> bool {
    let follows = |before: &OutboxMessage| {
        (before.created_at, before.sequence.saturating_add(1)) == (message.created_at, message.sequence)
    };
    message.sequence == 0 || before.is_some_and(follows)
}

impl DynamoDbStore {
    /// Whether nothing that was committed before this message, or with it, comes before it any more, in one atomic read.
    async fn is_first_left(&self, message: &OutboxMessage) -> Result<bool> {
        let get = |sequence: u32| {
            let [pk, sk] = [message.key.partition_key(), sort_key(message.created_at, sequence)];
            let get = Get::builder().table_name(&*self.table).projection_expression(PK);
            let get = get.key(PK, AttributeValue::S(pk)).key(SK, AttributeValue::S(sk));
            let get = get.build().map_err(StoreError::refused)?;
            Ok(TransactGetItem::builder().get(get).build())
        };
        // With itself: it is there only once all of its transaction is, and each earlier one. Messages are removed in their order: of the
        // earlier ones, the last tells of all.
        let gets =
            (message.first.saturating_sub(1)..=message.sequence).map(get).collect::<Result<Vec<_>>>()?;
        let read = self.client.transact_get_items().set_transact_items(Some(gets)).send().await?;
        let there = read.responses().iter().filter(|response| response.item().is_some());
        Ok(there.count() <= 1)
    }
}

#[async_trait]
impl Outbox for DynamoDbStore {
    /// Needs `dynamodb:Query` and `dynamodb:GetItem` on the table.
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
                Ok(message) if is_next(messages.last(), &message) => messages.push(message),
                Ok(message) if messages.is_empty() && self.is_first_left(&message).await? => {
                    messages.push(message)
                }
                Ok(_) if messages.is_empty() => {
                    let why = "a transaction that publishes messages is not complete";
                    return Err(StoreError::new(StoreErrorKind::Contended, why));
                }
                // It is looked at when those before it are delivered.
                Ok(_) => break,
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
