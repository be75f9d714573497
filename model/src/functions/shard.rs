//! A shard of a stream, whose records a consumer of the library takes.
//!
//! 1. A batch is the next records behind the checkpoint. No other is given out while a consumer has one. A batch whose consumer does not
//!    answer in its time comes again.
//! 2. An answered batch moves the checkpoint to the first record that must come again, or behind the batch. Its mapping waits before it
//!    repeats records, each time for longer.
//! 3. The shard may be given to another consumer while one has a batch of it. What the first one answers then does not count, or, in the
//!    worse case, sets the checkpoint.
//! 4. The oldest record may leave the shard before any consumer was done with it.
//! 5. A child of the shard has a checkpoint of its own. It is read once its parent is at its end.
//! 6. What was parked is an event with that record alone. An operator hands it to the function.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use lambda_idempotency::event::{Shards, SourceKind};
use serde_json::{Value, json};

use super::{
    call::Source,
    ids::{BEGINNING, KEYS, MessageId, Receipt},
    input::InputMessage,
    scenario::{Fault, Lanes, Owners, Shard},
    universe::Universe,
};

/// The stream's name.
pub const STREAM: &str = "input";

/// How long an invocation may take, so that a record that must wait does so once in it.
pub const TIME: Duration = Duration::from_secs(6);

/// After which time a record that cannot go on is parked: after some questions about an unknown outcome.
const PARK_AFTER: Duration = Duration::from_secs(900);

/// How long the mapping waits before it repeats records, each time four times as long.
const REPEATED_AFTER: u64 = 1_000;

/// The kind of source that it is.
pub fn kind() -> SourceKind {
    SourceKind::Kinesis(Shards::default().park_after(PARK_AFTER))
}

/// A record as Lambda hands it over.
pub fn record(message: &InputMessage, shard: Shard) -> Value {
    let partition_key = match shard.lanes {
        Lanes::Keys => KEYS[usize::from(message.key)],
        Lanes::One => "lane",
    };
    json!({
        "eventID": format!("shardId-{:012}:{}", u8::from(shard.is_of_child(message.id)), message.id),
        "eventSource": "aws:kinesis",
        "eventSourceARN": format!("arn:aws:kinesis:eu-central-1:123456789012:stream/{STREAM}"),
        "awsRegion": "eu-central-1",
        "kinesis": {
            "partitionKey": partition_key,
            "sequenceNumber": message.id.to_string(),
            "data": BASE64_STANDARD.encode(&message.body),
            "approximateArrivalTimestamp": BEGINNING as f64 / 1e3
        }
    })
}

/// The place of the record that was parked so.
pub fn place_in(letter: &str) -> MessageId {
    let event: Value = serde_json::from_str(letter).expect("a letter is an event");
    let place = event["Records"][0]["kinesis"]["sequenceNumber"].as_str();
    place.and_then(|place| place.parse().ok()).expect("it is of our shard")
}

impl Universe {
    /// The records behind the checkpoint.
    fn records(&self) -> impl Iterator<Item = &InputMessage> {
        self.input.messages.iter().filter(|message| message.source == Source::Input)
    }

    /// Whether a consumer has a batch of the shard, or its mapping waits before it repeats one.
    fn is_taken(&self) -> bool {
        self.records().any(|record| record.visible_at > self.clock)
    }

    /// The batches that can be received of the shard: one record, or two.
    pub fn batches_of_shard(&self, shard: Shard) -> Vec<(MessageId, Option<MessageId>)> {
        let has_owner = self.processes.iter().any(|process| process.is_consumer() && !process.over);
        let can_move = has_owner && shard.owners != Owners::One && self.input.rebalances == 0;
        let mut ids = self.records().map(|record| record.id);
        let Some(first) = ids.next().filter(|_| can_move || !self.is_taken()) else { return Vec::new() };
        let is_next = |second: &MessageId| shard.is_of_child(first) == shard.is_of_child(*second);
        let has_two = self.scenario.input.is_some_and(|input| input.batch > 1);
        let second = ids.next().filter(|second| has_two && is_next(second));
        second.map(|second| (first, Some(second))).into_iter().chain([(first, None)]).collect()
    }

    /// A consumer receives records: no other does for this time.
    pub fn take_records(&mut self) -> u64 {
        self.input.rebalances += u8::from(self.is_taken());
        millis(TIME)
    }

    /// A batch is answered: the first of these records that must come again.
    pub fn end_records(&mut self, batch: &[Receipt], again: Option<MessageId>) {
        let (Some(shard), [first, ..]) = (self.scenario.shard(), batch) else { return };
        let last = batch.last().unwrap_or(first);
        let clock = self.clock;
        let is_in_time = |record: &InputMessage| record.receipt() == *first && record.visible_at > clock;
        let counts = self.records().any(is_in_time);
        if !counts && shard.owners != Owners::TwoThatAnswer {
            return self.tell(|_| "  it does not count".to_owned());
        }
        let checkpoint = again.unwrap_or(last.id + 1);
        if counts {
            let records = self.input.messages.iter_mut().filter(|message| message.source == Source::Input);
            records.for_each(|record| record.visible_at = record.visible_at.min(clock));
        }
        let is_ours = |message: &InputMessage| {
            message.source == Source::Input && shard.is_of_child(message.id) == shard.is_of_child(first.id)
        };
        for record in std::mem::take(&mut self.input.messages) {
            match is_ours(&record) && record.id < checkpoint {
                true => self.acknowledge(record),
                false => self.input.messages.push(record),
            }
        }
        for record in std::mem::take(&mut self.input.gone) {
            match is_ours(&record) && record.id >= checkpoint {
                true => self.input.messages.push(record),
                false => self.input.gone.push(record),
            }
        }
        self.input.messages.sort_by_key(|record| record.id);
        let is_again =
            |message: &&mut InputMessage| message.source == Source::Input && Some(message.id) == again;
        if let Some(record) = self.input.messages.iter_mut().find(is_again) {
            let waits = REPEATED_AFTER << (2 * record.receives.saturating_sub(1)).min(12);
            record.visible_at = record.visible_at.max(clock + waits);
        }
    }

    /// Whether the oldest record of the shard can leave it now: no consumer has it.
    pub fn can_be_trimmed(&self) -> bool {
        let may = self.scenario.faults.may(Fault::Trims) && self.faults_left() > 0;
        may && self.records().next().is_some() && !self.is_taken()
    }

    /// The oldest record leaves the shard.
    pub fn trim(&mut self) {
        self.faults += 1;
        let place = self.input.messages.iter().position(|message| message.source == Source::Input);
        let Some(place) = place else { return };
        let record = self.input.messages.remove(place);
        self.input.progress[usize::from(record.key)].trimmed += 1;
        self.tell(|_| format!("record {} leaves the shard", record.id));
    }

    /// Whether records of the shard are so old that they may be parked for that.
    pub fn may_be_parked(&self) -> bool {
        self.scenario.shard().is_some() && self.clock >= BEGINNING + millis(PARK_AFTER)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
