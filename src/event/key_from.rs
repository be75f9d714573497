//! Finds the key of a message where its consumer says that it is.

use serde_json::{Value, error::Category};

use super::{Message, feed::Has};
use crate::{
    fingerprint::{Content, FingerprintRule, JsonPointer},
    key::{FoundKey, KeyFrom, Place},
};

impl FoundKey {
    /// The origin of a message with this key, for operators.
    pub(super) fn origin(&self, from: &str) -> String {
        self.parts.as_ref().map_or_else(|| from.to_owned(), |parts| format!("{from} {parts}"))
    }
}

impl KeyFrom {
    /// The key of this message; as an error, why it has none.
    pub(super) fn of_message(&self, message: &Message) -> Result<FoundKey, String> {
        let mut parts = Vec::new();
        self.collect(message, &mut parts).map_err(Fault::into_reason)?;
        let parts: Vec<_> = parts.iter().map(|part| &**part).collect();
        FoundKey::of(&parts).map_err(|error| format!("the message's key is invalid: {error}"))
    }

    /// Whether the deduplication id is in the key.
    pub(super) fn has_deduplication_id(&self) -> bool {
        match &self.0 {
            Place::DeduplicationId => true,
            Place::All(several) | Place::First(several) => several.iter().any(Self::has_deduplication_id),
            _ => false,
        }
    }

    /// Panics if messages without these cannot have such a key: a mistake in the program, found at start-up.
    pub(super) fn assert_found(&self, has_envelope: bool, has: Has) {
        match &self.0 {
            Place::All(several) | Place::First(several) => {
                several.iter().for_each(|from| from.assert_found(has_envelope, has));
            }
            Place::Envelope => {
                assert!(has_envelope, "KeyFrom::envelope() needs an envelope: set Consumer::envelopes")
            }
            Place::DeduplicationId => {
                assert!(
                    has.deduplication_id,
                    "KeyFrom::deduplication_id() needs a FIFO queue, whose name ends in .fifo"
                );
            }
            Place::Attribute(name) => {
                assert!(
                    has.attributes,
                    "KeyFrom::attribute({name:?}): neither an invocation, nor a stream, nor what is in such an envelope, has attributes"
                );
            }
            Place::RecordId => {
                assert!(
                    has.record_id,
                    "KeyFrom::record_id() needs a stream or a topic: elsewhere, a message that comes again may have another id"
                );
            }
            Place::Body(_) | Place::Content => {}
            _ => panic!("{self:?} is for requests: a message has its key elsewhere"),
        }
    }

    fn collect(&self, message: &Message, parts: &mut Vec<String>) -> Result<(), Fault> {
        let absent = |why: &str| Fault::Absent(why.to_owned());
        let part = match &self.0 {
            Place::All(several) => return several.iter().try_for_each(|from| from.collect(message, parts)),
            Place::First(several) => {
                parts.extend(first(several, message)?);
                return Ok(());
            }
            Place::Envelope => {
                let id = message.envelope_id.as_ref();
                parts.extend(
                    id.ok_or_else(|| absent("the message has no envelope with an id"))?.iter().cloned(),
                );
                return Ok(());
            }
            Place::RecordId => {
                let id = message.record_id.as_ref();
                parts
                    .extend(id.ok_or_else(|| absent("the record does not say where it is"))?.iter().cloned());
                return Ok(());
            }
            Place::Body(pointer) => in_body(pointer, &message.body)?,
            Place::Attribute(name) => {
                let value = message.attributes.get(name).filter(|value| !value.is_empty()).cloned();
                value.ok_or_else(|| {
                    Fault::Absent(format!("the message has no attribute {name} for its key"))
                })?
            }
            Place::DeduplicationId => {
                let id = message.deduplication_id.clone();
                id.ok_or_else(|| absent("the message has no deduplication id: it is not from a FIFO queue"))?
            }
            Place::Content => {
                let content = Content::new("", "", message.body.as_bytes()).json();
                let prints = content.fingerprints("", &FingerprintRule::new(), &[]);
                hex::encode(prints.current().digest())
            }
            // Refused at start-up.
            _ => return Err(absent("its key is in a request")),
        };
        parts.push(part);
        Ok(())
    }
}

/// Why a message has no key.
enum Fault {
    /// It is not there.
    Absent(String),
    /// It is there, and is none.
    Invalid(String),
}

impl Fault {
    fn into_reason(self) -> String {
        match self {
            Self::Absent(reason) | Self::Invalid(reason) => reason,
        }
    }
}

/// The first of these that is there. If others are too, they are the same.
fn first(several: &[KeyFrom], message: &Message) -> Result<Vec<String>, Fault> {
    let (mut found, mut absent) = (None, Vec::new());
    for from in several {
        let mut parts = Vec::new();
        match from.collect(message, &mut parts) {
            Ok(()) if found.as_ref().is_some_and(|found| *found != parts) => {
                return Err(Fault::Invalid("the message has two keys that differ".to_owned()));
            }
            Ok(()) => found = Some(parts),
            Err(Fault::Absent(why)) => absent.push(why),
            Err(invalid) => return Err(invalid),
        }
    }
    found.ok_or_else(|| Fault::Absent(absent.join("; ")))
}

/// The member of the body.
fn in_body(pointer: &JsonPointer, body: &str) -> Result<String, Fault> {
    let found = pointer.find(body);
    let pointer = pointer.as_str();
    let found = found.map_err(|error| match error.classify() {
        Category::Data => {
            Fault::Invalid("the message's body has two keys, or none that can be read".to_owned())
        }
        _ => Fault::Absent(format!("the message's body is not JSON, so it has no key at {pointer}")),
    });
    match found? {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        Some(Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(number.to_string()),
        None => Err(Fault::Absent(format!("the message's body has no key at {pointer}"))),
        Some(_) => Err(Fault::Invalid(format!("the key at {pointer} is neither a text nor a whole number"))),
    }
}
