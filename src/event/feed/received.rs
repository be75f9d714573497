//! A message as its source hands it over, and what a source does in its own way.

use std::time::Duration;

use lambda_runtime::Error;
use serde_json::value::RawValue;

use super::data::Room;
use crate::{
    event::{
        DeadMessage, Message,
        disposition::{Again, Disposition},
    },
    lambda::trigger::{Event, ItemId},
    time::Timestamp,
};

/// What a source does in its own way.
pub(in crate::event) trait Feed: Send + Sync {
    /// OpenTelemetry's name of it.
    fn system(&self) -> &'static str;

    /// What one is, in origins and log lines.
    fn noun(&self) -> &'static str;

    /// What its messages can have, which a key may be.
    fn has(&self) -> Has;

    /// Whether a message that was buried comes again with the others of its batch: a checkpoint moves for all.
    fn brings_parked(&self, event: &Event) -> bool;

    /// Whether it counts how often a message was received.
    fn counts_receives(&self) -> bool;

    /// What its mapping takes as an answer.
    fn answers(&self) -> Answers;

    /// The records of an event.
    ///
    /// # Errors
    /// If it has none. The error is logged.
    fn records(&self, event: &Event) -> Result<Vec<Box<RawValue>>, Error>;

    /// Reads one record of a batch. One that is not as AWS documents it is unusable, but keeps what can be read of it.
    fn read(&self, raw: Box<RawValue>, name: &str, room: &mut Room) -> Received;

    /// After which time a message comes again that was seen so often. `nonce` is the source of the jitter.
    fn after(&self, again: Again, seen: u32, nonce: [u8; 16]) -> Duration;

    /// Whether a message waits for that time within the invocation, because nothing can be hidden.
    fn waits(&self) -> bool;

    /// Why a message that must come again does not, but goes to the dead letters: it is so old. It was `seen` so often; `is_last` is whether it
    /// would be handed back now.
    fn gives_up(&self, again: Again, age: Duration, seen: u32, is_last: bool) -> Option<String>;

    /// The message as it is buried.
    fn letter(&self, received: &Received) -> DeadMessage;
}

/// What the mapping of a source takes as an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Which records must come again: its `FunctionResponseTypes` has `ReportBatchItemFailures`. A mapping without that takes this answer for a
    /// success, and records are lost.
    Partial,
    /// An error, if any record must come again. Then all records of the batch do.
    Whole,
}

/// What messages of a source can have.
#[derive(Clone, Copy, Debug)]
pub(in crate::event) struct Has {
    pub(in crate::event) deduplication_id: bool,
    pub(in crate::event) attributes: bool,
    pub(in crate::event) record_id: bool,
}

impl Has {
    /// A body alone.
    pub(in crate::event) const NOTHING: Self =
        Self { deduplication_id: false, attributes: false, record_id: false };
}

/// A message with what is needed to end it.
#[derive(Debug)]
pub(in crate::event) struct Received {
    pub(in crate::event) message: Message,
    /// By which the source knows this receive, if it can hide one.
    pub(in crate::event) receipt: Option<String>,
    /// By which the answer names it.
    pub(in crate::event) item: Option<ItemId>,
    /// Where it is from, if not from our source.
    pub(in crate::event) foreign: Option<String>,
    /// What becomes of it, if it cannot be used.
    pub(in crate::event) unusable: Option<Disposition>,
    /// Those of one such lane are in an order: none runs before those in front of it are done.
    pub(in crate::event) lane: Option<String>,
    /// When it was sent, by the source's clock.
    pub(in crate::event) sent_at: Option<Timestamp>,
    /// As it came, if it is buried so.
    pub(in crate::event) raw: Option<Box<RawValue>>,
}
