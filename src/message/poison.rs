//! A stream record that cannot be read, for operators.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::store::stream::{self, Named};

/// The length of the longest stream record that goes whole into its message. SQS takes messages of 1 MiB, and took 256 KiB until
/// August 2025.
const MAX_RECORD_BYTES: usize = 200_000;

/// How many characters of a longer record go into the message. Each takes at most six bytes there.
const MAX_CUT_CHARS: usize = 10_000;

/// Why a stream record cannot be read, its ids as far as they are readable, and the record or its beginning.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Poison {
    pub(crate) reason: String,
    #[serde(flatten)]
    named: Named,
    /// The unchanged record. It is never parsed again: an operator reads the message's text.
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    record: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<Cut>,
}

/// What is left of a record that is too long for a message.
#[derive(Clone, Serialize, Deserialize)]
struct Cut {
    bytes: usize,
    begins: String,
}

impl Poison {
    /// The report about this stream record.
    pub(crate) fn of(record: &RawValue, reason: &str) -> Self {
        let text = record.get();
        let whole = text.len() <= MAX_RECORD_BYTES;
        Self {
            reason: reason.to_owned(),
            named: stream::named(text),
            record: whole.then(|| record.to_owned()),
            cut: (!whole)
                .then(|| Cut { bytes: text.len(), begins: text.chars().take(MAX_CUT_CHARS).collect() }),
        }
    }

    /// The partition key of its item, if that can be read.
    pub(super) fn key(&self) -> Option<&String> {
        self.named.key.as_ref()
    }

    /// Its place in the stream, if that can be read.
    pub(crate) fn sequence_number(&self) -> Option<&str> {
        self.named.sequence_number.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::message::Message;

    /// What SQS took of a message before it took 1 MiB.
    const OLDER_LIMIT: usize = 256 * 1024;

    fn dead_letter(record: &str) -> Value {
        let record = RawValue::from_string(record.to_owned()).unwrap();
        let reason = "it is not a change of this table";
        let dead_letter = Message::Poison(Box::new(Poison::of(&record, reason))).to_json();
        assert!(matches!(Message::read(&dead_letter), Ok(Message::Poison(_))), "{dead_letter}");
        assert!(dead_letter.len() <= OLDER_LIMIT, "{} bytes of {}", dead_letter.len(), record.get().len());
        let dead_letter: Value = serde_json::from_str(&dead_letter).unwrap();
        assert_eq!((&dead_letter["kind"], &dead_letter["reason"]), (&json!("poison"), &json!(reason)));
        dead_letter
    }

    fn change(image: Value) -> Value {
        json!({
            "eventID": "f07f8ca4b0b26cb9c4e5e77e69f274ee",
            "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/idempotency/stream/2026",
            "dynamodb": {
                "Keys": { "pk": { "S": "acme#pay#order-1" }, "sk": { "S": "record" } },
                "SequenceNumber": "400000000000000000499660",
                "NewImage": image,
            },
        })
    }

    // T19
    #[test]
    fn a_dead_letter_has_the_whole_record_and_says_which_it_is() {
        let change = change(json!({ "state": { "S": "a_state_of_another_version" } }));
        let dead_letter = dead_letter(&change.to_string());
        assert_eq!(dead_letter["record"], change);
        assert_eq!((&dead_letter["key"], &dead_letter["sk"]), (&json!("acme#pay#order-1"), &json!("record")));
        assert_eq!(dead_letter["sequence_number"], "400000000000000000499660");
        assert_eq!(dead_letter["event_id"], "f07f8ca4b0b26cb9c4e5e77e69f274ee");
        assert!(dead_letter["stream"].as_str().unwrap().contains("table/idempotency"));
    }

    // T19
    #[test]
    fn a_dead_letter_is_bounded_and_still_says_which_record_it_is() {
        for text in ["x".repeat(390_000), "\u{1}".repeat(400_000), "\u{1F600}".repeat(100_000)] {
            let change = change(json!({ "state": { "S": text } }));
            let dead_letter = dead_letter(&change.to_string());
            assert_eq!(dead_letter["record"], Value::Null);
            assert_eq!(dead_letter["key"], "acme#pay#order-1");
            assert_eq!(dead_letter["sequence_number"], "400000000000000000499660");
            assert_eq!(dead_letter["cut"]["bytes"], change.to_string().len());
            assert!(change.to_string().starts_with(dead_letter["cut"]["begins"].as_str().unwrap()));
        }
    }

    // T19
    #[test]
    fn a_dead_letter_is_made_of_anything() {
        let long = "\u{1}".repeat(300_000);
        let anything = [
            json!(null),
            json!(long),
            json!([long]),
            json!({ "dynamodb": long, "eventID": long }),
            json!({ "dynamodb": { "Keys": { "pk": { "S": long }, "sk": { "N": "1" } }, "SequenceNumber": long } }),
            json!({ "eventID": 1, "eventSourceARN": [], "dynamodb": { "Keys": [], "SequenceNumber": 7 } }),
        ];
        for record in anything {
            let dead_letter = dead_letter(&record.to_string());
            assert!(dead_letter["event_id"].as_str().is_none_or(|id| id.len() < 1_000), "{dead_letter}");
        }
    }
}
