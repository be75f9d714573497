//! What other services wrap around a message that reaches its queue through them.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Message;

/// What is around the message that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Envelope {
    /// Nothing: the body is what the producer sent, also through SNS with raw message delivery.
    #[default]
    None,
    /// A notification of SNS. Its body is the published message; its id is SNS's `MessageId`, which is the same in each delivery.
    Sns,
    /// An event of EventBridge. Its body is `detail`; its id is `source` and `id`.
    EventBridge,
    /// An event notification of S3. Its body is the one record in it; its id is the event's name, the bucket, the object's key, version and
    /// `sequencer`. Only events of objects that are created or deleted have a sequencer. The id of another event has in its place the
    /// object's `eTag`, the `eventTime` and the id of the request that caused it; without a time it has none, and is not run. The test event that S3 sends when a notification is set up is acknowledged.
    S3,
}

/// What was in an envelope.
pub(super) enum Opened {
    /// The message.
    Message(Box<Message>),
    /// Nothing to do.
    Nothing,
    /// It is not such an envelope.
    Unusable(&'static str),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Notification {
    message_id: String,
    message: String,
    #[serde(default)]
    message_attributes: Option<HashMap<String, Attribute>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attribute {
    value: Option<String>,
}

#[derive(Deserialize)]
struct BusEvent<'a> {
    id: String,
    source: String,
    #[serde(borrow)]
    detail: &'a RawValue,
}

#[derive(Deserialize)]
struct S3Notification<'a> {
    #[serde(rename = "Event")]
    event: Option<String>,
    #[serde(rename = "Records", borrow)]
    records: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct S3Record {
    event_name: String,
    event_time: Option<String>,
    response_elements: Option<S3Response>,
    s3: S3Entity,
}

#[derive(Deserialize)]
struct S3Response {
    #[serde(rename = "x-amz-request-id")]
    request_id: Option<String>,
}

#[derive(Deserialize)]
struct S3Entity {
    bucket: S3Bucket,
    object: S3Object,
}

#[derive(Deserialize)]
struct S3Bucket {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct S3Object {
    key: String,
    version_id: Option<String>,
    e_tag: Option<String>,
    sequencer: Option<String>,
}

impl Envelope {
    /// Opens the envelope of a message.
    pub(super) fn open(self, message: Message) -> Opened {
        let opened = match self {
            Self::None => return Opened::Message(Box::new(message)),
            Self::Sns => sns(&message).ok_or("the body is not a notification of SNS"),
            Self::EventBridge => event_bridge(&message).ok_or("the body is not an event of EventBridge"),
            Self::S3 => return s3(message),
        };
        opened.map_or_else(Opened::Unusable, |message| Opened::Message(Box::new(message)))
    }
}

fn sns(message: &Message) -> Option<Message> {
    let Notification { message_id, message: body, message_attributes } =
        serde_json::from_str(&message.body).ok()?;
    let attributes = message_attributes.unwrap_or_default().into_iter();
    let attributes = attributes.filter_map(|(name, attribute)| Some((name, attribute.value?))).collect();
    Some(Message {
        body,
        attributes,
        binary_attributes: HashMap::new(),
        envelope_id: Some(vec![message_id]),
        ..message.clone()
    })
}

fn event_bridge(message: &Message) -> Option<Message> {
    let BusEvent { id, source, detail } = serde_json::from_str(&message.body).ok()?;
    Some(Message {
        body: detail.get().to_owned(),
        attributes: HashMap::new(),
        binary_attributes: HashMap::new(),
        envelope_id: Some(vec![source, id]),
        ..message.clone()
    })
}

fn s3(message: Message) -> Opened {
    let no_notification = Opened::Unusable("the body is not a notification of S3");
    let Ok(S3Notification { event, records }) = serde_json::from_str(&message.body) else {
        return no_notification;
    };
    let Some(records) = records else {
        return if event.as_deref() == Some("s3:TestEvent") { Opened::Nothing } else { no_notification };
    };
    let [record] = records[..] else {
        // S3 sends one record in each notification. Several would be several effects under one message.
        return Opened::Unusable("the notification of S3 does not have one record");
    };
    let Ok(event) = serde_json::from_str::<S3Record>(record.get()) else { return no_notification };
    let Some(id) = event.id() else {
        return Opened::Unusable(
            "the notification of S3 has neither a sequencer nor an eventTime, so it has no id",
        );
    };
    let body = record.get().to_owned();
    let (attributes, binary_attributes) = (HashMap::new(), HashMap::new());
    let message = Message { body, attributes, binary_attributes, envelope_id: Some(id), ..message };
    Opened::Message(Box::new(message))
}

impl S3Record {
    /// What tells it apart from all other events. Each delivery of it has the same.
    fn id(self) -> Option<Vec<String>> {
        let Self { event_name, event_time, response_elements, s3: S3Entity { bucket, object } } = self;
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let mut id = vec![event_name, bucket.name, object.key, object.version_id.unwrap_or_default()];
        match given(object.sequencer) {
            Some(sequencer) => id.push(sequencer),
            // Two changes of an object's tags leave its version and its eTag as they are.
            None => id.extend([
                object.e_tag.unwrap_or_default(),
                given(event_time)?,
                response_elements.and_then(|response| response.request_id).unwrap_or_default(),
            ]),
        }
        // With a dot, because a part of a key is never empty.
        Some(id.into_iter().map(|part| format!("{part}.")).collect())
    }
}
