//! One message, as its function sees it.

use std::collections::HashMap;

/// A message of a queue, or a record of a stream, without its envelopes.
#[derive(Clone, Default, derive_more::Debug)]
// Bodies and attributes do not belong in logs.
#[debug("Message({:?})", id)]
#[non_exhaustive]
pub struct Message {
    /// The source's id of the message. SQS gives it another one at a redrive.
    pub id: Option<String>,
    /// What was sent; if there were envelopes, what was in the innermost one; if it was a pointer, its payload.
    pub body: String,
    /// Its message attributes that are text, or those of its innermost envelope.
    pub attributes: HashMap<String, String>,
    /// The same for bytes.
    pub binary_attributes: HashMap<String, Vec<u8>>,
    /// What identifies it within its innermost envelope: see [`Envelope`](super::Envelope).
    pub envelope_id: Option<Vec<String>>,
    /// What identifies its record in a stream: where it is. Not in a queue, where a redrive changes that.
    pub record_id: Option<Vec<String>>,
    /// Its group in a FIFO queue, or its partition key in a stream.
    pub group: Option<String>,
    /// Its deduplication id, in a FIFO queue: the first one, if it comes back from the dead letters.
    pub deduplication_id: Option<String>,
    /// How often a queue has handed it out, this time included. A stream does not count that.
    pub receives: u32,
}

impl Message {
    /// What is in an envelope around this message: a body with this id. Attributes are the envelope's affair.
    pub(super) fn holding(&self, body: String, envelope_id: Vec<String>) -> Self {
        Self {
            id: self.id.clone(),
            body,
            attributes: HashMap::new(),
            binary_attributes: HashMap::new(),
            envelope_id: Some(envelope_id),
            group: self.group.clone(),
            deduplication_id: self.deduplication_id.clone(),
            receives: self.receives,
            record_id: self.record_id.clone(),
        }
    }
}
