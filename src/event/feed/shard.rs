//! What the sources with shards have in common: nothing is hidden, and a checkpoint moves for all.

use std::time::Duration;

use lambda_runtime::Error;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    data::Room,
    received::{Answers, Feed, Has, Received},
};
use crate::{
    event::{DeadMessage, disposition::Again},
    lambda::trigger::{Event, ItemId},
    time::Timestamp,
    time_budget::{LEASE_OVER, PARK_AFTER, STREAM_PAUSE},
};

/// What is sent of a record that is too long for a dead letter, in characters.
const CUT: usize = 10_000;

/// How the records of a stream are processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    park_after: Duration,
    lane_by_shard: bool,
}

impl Default for Shards {
    fn default() -> Self {
        Self { park_after: PARK_AFTER, lane_by_shard: false }
    }
}

impl Shards {
    /// After which time a record that cannot go on is parked. Default: 6 hours.
    #[must_use]
    pub fn park_after(self, park_after: Duration) -> Self {
        Self { park_after, ..self }
    }

    /// Whether nothing in a shard overtakes anything, instead of nothing of one key.
    #[must_use]
    pub fn lane_by_shard(self) -> Self {
        Self { lane_by_shard: true, ..self }
    }
}

/// How records of one kind look.
pub(super) trait Format: Send + Sync {
    /// OpenTelemetry's name of the system.
    const SYSTEM: &str;
    /// What a source is.
    const NOUN: &str;
    const HAS: Has = Has { deduplication_id: false, attributes: false, record_id: true };

    /// The records of an event.
    fn records(&self, event: &Event) -> Result<Vec<Box<RawValue>>, Error> {
        event.records()
    }

    /// Reads a record of a source of this name, whose lane is its shard, or its key.
    fn read(&self, raw: Box<RawValue>, name: &str, lane_by_shard: bool, room: &mut Room) -> Received;

    /// An event with this record alone, which says that it is a letter.
    fn alone(&self, raw: &str, _: Option<&ItemId>) -> String {
        format!("{{\"parked\":true,\"Records\":[{raw}]}}")
    }

    /// Whether its mapping brings again what was parked, if a record in front of it must come again. A letter is run by hand.
    fn brings_parked(&self, event: &Event) -> bool {
        #[derive(Deserialize)]
        struct Letter {
            parked: bool,
        }
        !serde_json::from_str::<Letter>(event.as_str()).is_ok_and(|letter| letter.parked)
    }

    /// Whether the source has its records for a while, so that a letter may be cut.
    fn is_kept(&self) -> bool {
        true
    }

    /// What its mapping takes as an answer.
    fn answers(&self) -> Answers {
        Answers::Partial
    }
}

/// A source of which nothing is hidden.
pub(super) struct Stream<F> {
    pub(super) format: F,
    pub(super) shards: Shards,
}

impl<F: Format> Feed for Stream<F> {
    fn system(&self) -> &'static str {
        F::SYSTEM
    }

    fn noun(&self) -> &'static str {
        F::NOUN
    }

    fn has(&self) -> Has {
        F::HAS
    }

    fn answers(&self) -> Answers {
        self.format.answers()
    }

    fn brings_parked(&self, event: &Event) -> bool {
        self.format.brings_parked(event)
    }

    fn counts_receives(&self) -> bool {
        false
    }

    fn records(&self, event: &Event) -> Result<Vec<Box<RawValue>>, Error> {
        self.format.records(event)
    }

    fn read(&self, raw: Box<RawValue>, name: &str, room: &mut Room) -> Received {
        self.format.read(raw, name, self.shards.lane_by_shard, room)
    }

    fn after(&self, again: Again, seen: u32, nonce: [u8; 16]) -> Duration {
        let pause = STREAM_PAUSE.after(seen, nonce);
        match again {
            Again::InFlight { lease_left } if !lease_left.is_zero() => pause.min(lease_left + LEASE_OVER),
            _ => pause,
        }
    }

    fn waits(&self) -> bool {
        true
    }

    fn gives_up(&self, again: Again, age: Duration, _: u32, is_last: bool) -> Option<String> {
        // The first has its tries. The others were not tried: an outage of the store must not park whole shards.
        if matches!(again, Again::Failed | Again::Unavailable | Again::NoTime | Again::NoRoom) {
            return None;
        }
        let after = self.shards.park_after;
        // After a day without a consumer all records are old: each has the time of an invocation.
        let is_over = age >= after && (is_last || after.is_zero());
        is_over.then(|| format!("it was {} s old: {}", age.as_secs(), again.why()))
    }

    /// As an event with that record alone, so that it can be handed to the function once more.
    fn letter(&self, received: &Received) -> DeadMessage {
        let raw = received.raw.as_deref().map_or("null", RawValue::get);
        let body = self.format.alone(raw, received.item.as_ref());
        let short = self.format.is_kept().then(|| body.chars().take(CUT).collect());
        DeadMessage { id: received.message.id.clone(), short, body, ..DeadMessage::default() }
    }
}

/// A time in seconds, as AWS writes it.
pub(super) fn time(seconds: &Value) -> Option<Timestamp> {
    let seconds = seconds.as_f64().filter(|seconds| seconds.is_finite() && *seconds >= 0.0)?;
    let since = Duration::try_from_secs_f64(seconds).ok()?;
    Some(Timestamp::from_millis(u64::try_from(since.as_millis()).ok()?))
}

/// Where a record is from, if not from this source: what stands between `before` and the next `/` of its ARN names another one.
pub(super) fn foreign(arn: &str, before: &str, is_kind: bool, name: &str) -> Option<String> {
    let named = arn.split_once(before).and_then(|(_, rest)| rest.split('/').next());
    let is_ours = is_kind && named == Some(name);
    (!is_ours).then(|| if arn.is_empty() { "an unknown source".to_owned() } else { arn.to_owned() })
}
