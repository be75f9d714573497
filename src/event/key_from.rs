//! Where the idempotency key of a message is.

use protocol::record::is_hidden;
use serde_json::{Value, error::Category, json};

use super::Message;
use crate::{
    fingerprint::{Content, FingerprintRule, JsonPointer},
    key::{IdempotencyKey, is_hash},
};

/// Where the idempotency key of a message is: what identifies the intended effect, whoever sends it, however often.
///
/// A message whose key is missing or invalid is not run. It goes to the dead letters, with the reason.
///
/// ```
/// use lambda_idempotency::event::KeyFrom;
///
/// // `{"orderId": "o-1"}`
/// let order = KeyFrom::body("/orderId");
/// // An id that is unique only for its source needs the source too.
/// let event = KeyFrom::all([KeyFrom::body("/shop"), KeyFrom::body("/number")]);
/// ```
#[derive(Clone, Debug)]
pub struct KeyFrom(From);

/// The key of a message.
#[derive(Clone)]
pub(super) struct MessageKey {
    pub(super) key: IdempotencyKey,
    /// What it is made of, as a JSON array, if it is a hash, which tells operators nothing.
    pub(super) parts: Option<String>,
}

impl MessageKey {
    /// The origin of a message with this key, for operators.
    pub(super) fn origin(&self, from: &str) -> String {
        self.parts.as_ref().map_or_else(|| from.to_owned(), |parts| format!("{from} {parts}"))
    }
}

#[derive(Clone, Debug)]
enum From {
    Body(JsonPointer),
    Attribute(String),
    Envelope,
    DeduplicationId,
    Content,
    All(Vec<KeyFrom>),
}

impl KeyFrom {
    /// The member at this JSON Pointer (RFC 6901) of the body: a string that is not empty, or a whole number. A body with two members of
    /// that name has no key, because readers differ in which one counts.
    ///
    /// # Panics
    /// If it is not a pointer to a member.
    pub fn body(pointer: impl AsRef<str>) -> Self {
        let pointer = pointer.as_ref();
        let parsed = JsonPointer::parse(pointer);
        Self(From::Body(parsed.unwrap_or_else(|error| panic!("KeyFrom::body({pointer:?}): {error}"))))
    }

    /// The message attribute of this name, as text.
    pub fn attribute(name: impl Into<String>) -> Self {
        Self(From::Attribute(name.into()))
    }

    /// The `source` and `id` of a [CloudEvent](https://cloudevents.io) in the body.
    pub fn cloud_event() -> Self {
        Self::all([Self::body("/source"), Self::body("/id")])
    }

    /// The id that the innermost [envelope](super::Envelope) gives to the message.
    ///
    /// One of S3 is of the event. One of SNS or EventBridge is of a *publication*: whoever publishes one fact twice, such as a publisher that
    /// repeats a call whose answer was lost, gives it two ids, and it has two effects. If the message itself says which fact it is, take that.
    pub const fn envelope() -> Self {
        Self(From::Envelope)
    }

    /// The deduplication id of a FIFO queue, if the producer chose it, or the queue by the content. SQS itself forgets it after 5 minutes.
    pub const fn deduplication_id() -> Self {
        Self(From::DeduplicationId)
    }

    /// The hash of the whole content, by its value if it is JSON: the last choice. Two orders with the same content are one effect, even if both are meant.
    pub const fn content() -> Self {
        Self(From::Content)
    }

    /// Several together.
    ///
    /// # Panics
    /// If there are none.
    pub fn all(several: impl IntoIterator<Item = Self>) -> Self {
        let several: Vec<_> = several.into_iter().collect();
        assert!(!several.is_empty(), "a key has at least one part");
        Self(From::All(several))
    }

    /// The key of this message; as an error, why it has none.
    pub(super) fn key(&self, message: &Message) -> Result<MessageKey, String> {
        let mut parts = Vec::new();
        self.collect(message, &mut parts)?;
        let parts: Vec<_> = parts.iter().map(|part| &**part).collect();
        let key = IdempotencyKey::of(&parts);
        let key = key.map_err(|error| format!("the message's key is invalid: {error}"))?;
        let parts = is_hash(key.as_str()).then(|| escaped(&json!(parts).to_string()));
        Ok(MessageKey { key, parts })
    }

    /// Whether the deduplication id is in the key.
    pub(super) fn has_deduplication_id(&self) -> bool {
        match &self.0 {
            From::DeduplicationId => true,
            From::All(several) => several.iter().any(Self::has_deduplication_id),
            _ => false,
        }
    }

    /// Panics if messages without these cannot have such a key: a mistake in the program, found at start-up.
    pub(super) fn assert_found(&self, has_envelope: bool, is_fifo: bool, has_attributes: bool) {
        match &self.0 {
            From::All(several) => {
                several.iter().for_each(|from| from.assert_found(has_envelope, is_fifo, has_attributes));
            }
            From::Envelope => {
                assert!(has_envelope, "KeyFrom::envelope() needs an envelope: set Consumer::envelopes")
            }
            From::DeduplicationId => {
                assert!(is_fifo, "KeyFrom::deduplication_id() needs a FIFO queue, whose name ends in .fifo");
            }
            From::Attribute(name) => {
                assert!(
                    has_attributes,
                    "KeyFrom::attribute({name:?}): neither an invocation, nor what is in such an envelope, has attributes"
                );
            }
            From::Body(_) | From::Content => {}
        }
    }

    fn collect(&self, message: &Message, parts: &mut Vec<String>) -> Result<(), String> {
        let part = match &self.0 {
            From::All(several) => return several.iter().try_for_each(|from| from.collect(message, parts)),
            From::Envelope => {
                let id = message.envelope_id.as_ref().ok_or("the message has no envelope with an id")?;
                parts.extend(id.iter().cloned());
                return Ok(());
            }
            From::Body(pointer) => {
                let found = pointer.find(&message.body).map_err(|error| match error.classify() {
                    Category::Data => "the message's body has two keys, or none that can be read",
                    _ => "the message's body is not JSON, and its key is there",
                });
                let pointer = pointer.as_str();
                match found? {
                    Some(Value::String(text)) if !text.is_empty() => text,
                    Some(Value::Number(number)) if number.is_i64() || number.is_u64() => number.to_string(),
                    None => return Err(format!("the message's body has no key at {pointer}")),
                    Some(_) => {
                        return Err(format!("the key at {pointer} is neither a text nor a whole number"));
                    }
                }
            }
            From::Attribute(name) => {
                let value = message.attributes.get(name).filter(|value| !value.is_empty());
                value.cloned().ok_or_else(|| format!("the message has no attribute {name} for its key"))?
            }
            From::DeduplicationId => {
                let id = message.deduplication_id.clone();
                id.ok_or("the message has no deduplication id: it is not from a FIFO queue")?
            }
            From::Content => {
                let content = Content::new("", "", message.body.as_bytes()).json();
                let prints = content.fingerprints("", &FingerprintRule::new(), &[]);
                hex::encode(prints.current().digest())
            }
        };
        parts.push(part);
        Ok(())
    }
}

/// JSON with escapes in place of what a note of the record leaves out, because a terminal hides it: another key would look like this one.
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for char in json.chars() {
        match is_hidden(char) {
            true => escaped += &format!("\\u{:04x}", u32::from(char)),
            false => escaped.push(char),
        }
    }
    escaped
}
