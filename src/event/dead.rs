//! A message that no delivery can help, on its way to the dead letters.

use std::collections::HashMap;

use super::Message;

/// The attribute with the deduplication id of a dead message: the queue gives it another one when it is sent back.
pub(super) const DEDUPLICATION_ID: &str = "idempotency-deduplication-id";

/// How the name of a FIFO queue ends.
pub(super) const FIFO: &str = ".fifo";

/// A message that no delivery can help.
#[derive(Clone, Default, derive_more::Debug)]
// A reason may be a function's own words about its input.
#[debug("DeadMessage({:?})", id)]
#[non_exhaustive]
pub struct DeadMessage {
    /// The source's id of the message.
    pub id: Option<String>,
    /// Its body as it came.
    pub body: String,
    /// Its message attributes that are text.
    pub attributes: HashMap<String, String>,
    /// Its message attributes that are bytes.
    pub binary_attributes: HashMap<String, Vec<u8>>,
    /// Its group, in a FIFO queue.
    pub group: Option<String>,
    /// Its deduplication id, if that is in its key.
    pub deduplication_id: Option<String>,
    /// What is sent if the body is too long, where the data is kept elsewhere for a while.
    pub short: Option<String>,
    /// Why it is dead.
    pub reason: String,
}

impl DeadMessage {
    /// This message, with a reason to be set.
    pub(super) fn of(message: &Message) -> Self {
        Self {
            id: message.id.clone(),
            body: message.body.clone(),
            attributes: message.attributes.clone(),
            binary_attributes: message.binary_attributes.clone(),
            group: message.group.clone(),
            deduplication_id: message.deduplication_id.clone(),
            short: None,
            reason: String::new(),
        }
    }
}
