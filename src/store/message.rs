//! A message that is committed and not yet delivered.

use ::time::{OffsetDateTime, format_description::well_known::Rfc3339};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{key::RecordKey, time::Timestamp};

/// A message that was committed with an operation. It stays in the store, without a time to live, until it is removed.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
// Without the body: it does not belong in logs.
#[debug("OutboxMessage({}, {sequence}, {topic})", key.hash())]
#[non_exhaustive]
pub struct OutboxMessage {
    /// The operation that published it.
    pub key: RecordKey,
    /// When that record's key was first seen. A later record of the same key publishes other messages.
    pub created_at: Timestamp,
    /// Its place among the messages of this record, from 0.
    pub sequence: u32,
    /// The place of the first message that was committed with it.
    pub first: u32,
    /// What it is about.
    pub topic: String,
    /// What was published, as JSON.
    pub body: String,
    /// When it was committed.
    pub published_at: Timestamp,
}

impl OutboxMessage {
    /// Its id, the same at each delivery: the idempotency key for its consumer.
    pub fn id(&self) -> String {
        self.key.message_id(self.created_at, self.sequence)
    }

    /// The [CloudEvent](https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md) that a consumer gets, as
    /// JSON.
    ///
    /// | attribute | what |
    /// | --- | --- |
    /// | `id` | [`id`](Self::id), the same at each delivery |
    /// | `source` | the operation's name |
    /// | `type` | the topic |
    /// | `time` | when it was committed |
    /// | `sequence` | its place among the messages of this operation, ten digits, so that it sorts as text |
    /// | `tenant` | whose operation it was |
    /// | `idempotencykey` | the operation's idempotency key |
    /// | `data` | what was published |
    pub fn to_cloud_event(&self) -> String {
        #[derive(Serialize)]
        struct CloudEvent<'a> {
            specversion: &'a str,
            id: String,
            source: &'a str,
            r#type: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            time: Option<String>,
            datacontenttype: &'a str,
            sequence: String,
            tenant: &'a str,
            idempotencykey: &'a str,
            // As it was published: a reader that parses and writes it would change numbers.
            data: Box<RawValue>,
        }
        let nanos = i128::from(self.published_at.as_millis()) * 1_000_000;
        let time = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok();
        let data = RawValue::from_string(self.body.clone());
        let event = CloudEvent {
            specversion: "1.0",
            id: self.id(),
            source: self.key.operation().as_str(),
            r#type: &self.topic,
            time: time.and_then(|time| time.format(&Rfc3339).ok()),
            datacontenttype: "application/json",
            sequence: format!("{:010}", self.sequence),
            tenant: self.key.tenant().as_str(),
            idempotencykey: self.key.idempotency_key().as_str(),
            // It was checked when it was published.
            data: data.unwrap_or_else(|_| RawValue::NULL.to_owned()),
        };
        // Only strings, and JSON that was read before: this cannot fail.
        serde_json::to_string(&event).unwrap_or_default()
    }
}
