//! Events of EventBridge
//! ([format](https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html)).

use serde::Deserialize;
use serde_json::value::RawValue;

use super::s3::ObjectEvent;
use crate::event::Message;

/// The source of S3's events. AWS refuses it to all others.
const S3: &str = "aws.s3";

/// How the `detail-type` of S3's own events begins, such as `Object Created`.
const OF_OBJECTS: &str = "Object ";

#[derive(Deserialize)]
struct BusEvent<'a> {
    id: String,
    source: String,
    #[serde(rename = "detail-type")]
    kind: Option<String>,
    time: Option<String>,
    #[serde(borrow)]
    detail: &'a RawValue,
}

/// [What S3 says](https://docs.aws.amazon.com/AmazonS3/latest/userguide/ev-events.html) of an object.
#[derive(Deserialize)]
struct Detail {
    bucket: Bucket,
    object: Object,
    #[serde(rename = "request-id")]
    request: Option<String>,
}

#[derive(Deserialize)]
struct Bucket {
    name: String,
}

#[derive(Deserialize)]
struct Object {
    key: String,
    #[serde(rename = "version-id")]
    version: Option<String>,
    etag: Option<String>,
    sequencer: Option<String>,
}

/// The detail of an event.
pub(super) fn open(message: &Message) -> Result<Message, &'static str> {
    let event: BusEvent<'_> =
        serde_json::from_str(&message.body).map_err(|_| "the body is not an event of EventBridge")?;
    let detail = event.detail.get().to_owned();
    Ok(message.holding(detail, event.id()?))
}

impl BusEvent<'_> {
    fn id(self) -> Result<Vec<String>, &'static str> {
        let of_object = self.object_event()?.and_then(ObjectEvent::id);
        Ok(of_object.unwrap_or_else(|| vec![self.source, self.id]))
    }

    /// S3's event of an object. `None` if it is not one, as what CloudTrail publishes of S3 is not; or if nothing but its id tells it apart from
    /// others: its time has no fractions of a second.
    fn object_event(&self) -> Result<Option<ObjectEvent>, &'static str> {
        if self.source != S3 {
            return Ok(None);
        }
        let Detail { bucket, object, request } = match serde_json::from_str(self.detail.get()) {
            Ok(detail) => detail,
            // By the publication's id, a second publication would be another fact.
            Err(_) if self.kind.as_deref().is_some_and(|kind| kind.starts_with(OF_OBJECTS)) => {
                return Err("the detail is not an object's, as S3 writes it");
            }
            Err(_) => return Ok(None),
        };
        let is_given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
        Ok((is_given(&object.sequencer) || is_given(&request)).then(|| ObjectEvent {
            name: self.kind.clone().unwrap_or_default(),
            bucket: bucket.name,
            key: object.key,
            version: object.version,
            e_tag: object.etag,
            sequencer: object.sequencer,
            time: self.time.clone(),
            request,
        }))
    }
}
