//! Event notifications of S3
//! ([format](https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html)).

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::event::Message;

const NO_NOTIFICATION: &str = "the body is not a notification of S3";

/// An event of an object, by whichever way it comes.
pub(super) struct ObjectEvent {
    pub(super) name: String,
    pub(super) bucket: String,
    pub(super) key: String,
    pub(super) version: Option<String>,
    pub(super) e_tag: Option<String>,
    pub(super) sequencer: Option<String>,
    pub(super) time: Option<String>,
    pub(super) request: Option<String>,
}

#[derive(Deserialize)]
struct Notification<'a> {
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
    response_elements: Option<Response>,
    s3: Entity,
}

#[derive(Deserialize)]
struct Response {
    #[serde(rename = "x-amz-request-id")]
    request_id: Option<String>,
}

#[derive(Deserialize)]
struct Entity {
    bucket: Bucket,
    object: Object,
}

#[derive(Deserialize)]
struct Bucket {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    key: String,
    version_id: Option<String>,
    e_tag: Option<String>,
    sequencer: Option<String>,
}

/// The record in a notification; `None` if S3 only tests whether it may send any.
pub(super) fn open(message: &Message) -> Result<Option<Message>, &'static str> {
    let Notification { event, records } = serde_json::from_str(&message.body).map_err(|_| NO_NOTIFICATION)?;
    let Some(records) = records else {
        let is_test = event.as_deref() == Some("s3:TestEvent");
        return if is_test { Ok(None) } else { Err(NO_NOTIFICATION) };
    };
    let [record] = records[..] else {
        // S3 sends one record in each notification. Several would be several effects under one message.
        return Err("the notification of S3 does not have one record");
    };
    let Ok(event) = serde_json::from_str::<S3Record>(record.get()) else { return Err(NO_NOTIFICATION) };
    let Some(id) = event.object_event().id() else {
        return Err("the notification of S3 has neither a sequencer nor an eventTime, so it has no id");
    };
    Ok(Some(message.holding(record.get().to_owned(), id)))
}

impl S3Record {
    fn object_event(self) -> ObjectEvent {
        let Self { event_name, event_time, response_elements, s3: Entity { bucket, object } } = self;
        ObjectEvent {
            name: event_name,
            bucket: bucket.name,
            key: object.key,
            version: object.version_id,
            e_tag: object.e_tag,
            sequencer: object.sequencer,
            time: event_time,
            request: response_elements.and_then(|response| response.request_id),
        }
    }
}

impl ObjectEvent {
    /// What tells it apart from all other events. Each delivery and each publication of it has the same.
    pub(super) fn id(self) -> Option<Vec<String>> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let mut id = vec![self.name, self.bucket, self.key, self.version.unwrap_or_default()];
        match given(self.sequencer) {
            Some(sequencer) => id.push(sequencer),
            // Two changes of an object's tags leave its version and its eTag as they are.
            None => id.extend([
                self.e_tag.unwrap_or_default(),
                given(self.time)?,
                self.request.unwrap_or_default(),
            ]),
        }
        // With a dot, because a part of a key is never empty.
        Some(id.into_iter().map(|part| format!("{part}.")).collect())
    }
}
