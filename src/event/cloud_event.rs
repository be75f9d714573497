//! What counts of a message that is a CloudEvent.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What of this body says which event it is, and what happened: of a
/// [CloudEvent](https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md) its `id`, `source`, `type`, `subject` and data, of another
/// body all of it.
///
/// The other members are about its way here. A proxy or a later version of the producer may add some, such as `traceparent`, and an event that is sent
/// again may have another `time`: it is no other event for that. An event with another `id` is, even if it says the same.
pub(super) fn intent(body: &str) -> Cow<'_, str> {
    // An array of as many elements would be read as one.
    if !body.trim_start().starts_with('{') {
        return body.into();
    }
    let Ok(event) = serde_json::from_str::<CloudEvent<'_>>(body) else { return body.into() };
    serde_json::to_string(&event).map_or(body.into(), Into::into)
}

/// Written without what does not count.
#[derive(Deserialize, Serialize)]
struct CloudEvent<'a> {
    #[serde(rename = "specversion", skip_serializing)]
    _specversion: String,
    id: String,
    source: String,
    // As they were sent: a reader that parses and writes them would change numbers.
    #[serde(borrow)]
    r#type: &'a RawValue,
    #[serde(borrow)]
    subject: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    data_base64: Option<&'a RawValue>,
}
