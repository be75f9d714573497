//! The work of an environment.

use crate::journal;
use serde::{Serialize, Serializer, ser::SerializeStruct};
use serde_json::Value;
use std::collections::BTreeSet;

/// An invocation.
#[derive(Clone)]
pub struct Work {
    pub request_id: String,
    /// Its event: `POST /payments`, `job poll`, `10 messages of local-checks`, `3 stream records of local-idempotency`.
    pub what: String,
    /// The partition keys of the records that its event names; none of a request of HTTP.
    pub records: BTreeSet<String>,
}

impl Work {
    pub fn new(request_id: String, payload: &[u8]) -> Self {
        let event: Value = serde_json::from_slice(payload).unwrap_or_default();
        let records = if event["Records"].is_array() { journal::records(&event) } else { BTreeSet::new() };
        Self { request_id, what: what(&event), records }
    }
}

/// A description that operators recognize.
fn what(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let records = event["Records"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Value::Object(http) = &event["requestContext"]["http"] {
        let part = |name| http.get(name).map(text).unwrap_or_default();
        return format!("{} {}", part("method"), part("path"));
    }
    if let Value::String(job) = &event["job"] {
        return format!("job {job}");
    }
    let Some(first) = records.first() else { return "an event".to_owned() };
    let arn = text(&first["eventSourceARN"]);
    let (kind, source) = match first["eventSource"].as_str() {
        Some("aws:sqs") => ("message", arn.rsplit(':').next()),
        Some("aws:dynamodb") => ("stream record", arn.split('/').nth(1)),
        _ => ("record", None),
    };
    let plural = if records.len() == 1 { "" } else { "s" };
    let source = source.map(|source| format!(" of {source}")).unwrap_or_default();
    format!("{} {kind}{plural}{source}", records.len())
}

impl Serialize for Work {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown = serializer.serialize_struct("Work", 2)?;
        shown.serialize_field("requestId", &self.request_id)?;
        shown.serialize_field("what", &self.what)?;
        shown.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn work_is_named_by_its_event() {
        let queue =
            json!({ "eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:eu-central-1:1:local-checks" });
        let stream = json!({
            "eventSource": "aws:dynamodb",
            "eventSourceARN": "arn:aws:dynamodb:dynoxide:0:table/local-idempotency/stream/1.2",
        });
        for (event, what) in [
            (
                json!({ "requestContext": { "http": { "method": "POST", "path": "/payments" } } }),
                "POST /payments",
            ),
            (json!({ "job": "poll" }), "job poll"),
            (json!({ "Records": [queue, queue] }), "2 messages of local-checks"),
            (json!({ "Records": [stream] }), "1 stream record of local-idempotency"),
            (json!({ "Records": [{}] }), "1 record"),
            (json!({ "Records": [] }), "an event"),
            (json!(1), "an event"),
        ] {
            assert_eq!(Work::new("r".to_owned(), event.to_string().as_bytes()).what, what);
        }
        assert_eq!(Work::new("r".to_owned(), b"{").what, "an event");
    }
}
