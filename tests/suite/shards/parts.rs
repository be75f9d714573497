//! A stream or a topic in parts, and its mapping: batches, checkpoints, and what a failed batch means.

use std::{
    cell::{Cell, RefCell},
    hash::{DefaultHasher, Hash, Hasher},
};

use lambda_idempotency::{
    event::{Answers, Shards, SourceKind},
    world::{SystemWorld, World},
};
use serde_json::{Value, json};

use crate::support::{
    random::Random,
    sqs::NewMessage,
    streams::{batch_of_topic, of_topic, record},
};

/// How many records a batch has at most.
const BATCH: usize = 25;

/// One batch in so many goes to a second consumer, while the first one still has it.
const MOVED: usize = 8;

/// A stream of Kinesis, of which a shard is split; or a topic of Kafka.
pub struct Stream {
    pub kind: SourceKind,
    parts: RefCell<Vec<Part>>,
    /// How often a part got another consumer while it had one.
    pub moved: Cell<usize>,
}

/// A shard, or a partition.
#[derive(Default)]
struct Part {
    records: Vec<Value>,
    checkpoint: usize,
    /// Its next batch. Halved after one that failed.
    size: usize,
    /// It begins once that part is at its end.
    parent: Option<usize>,
    is_taken: bool,
    /// Another one after each move: an older owner's answer moves nothing.
    owner: usize,
}

/// A batch of a part, as an owner has it.
pub struct Batch {
    part: usize,
    owner: usize,
    from: usize,
    pub records: Vec<Value>,
}

fn below(key: &str, parts: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() % parts as u64) as usize
}

impl Stream {
    /// A stream of two shards with these messages. In the middle, one of them is split in two.
    pub fn kinesis(messages: &[NewMessage]) -> Self {
        let mut parts: Vec<_> = (0..4).map(|_| Part { size: BATCH, ..Part::default() }).collect();
        for (number, message) in messages.iter().enumerate() {
            let key = message.group.as_deref().expect("a group");
            let part = match below(key, 4) {
                n @ (0 | 2) if number * 2 > messages.len() => 2 + n / 2,
                n => n % 2,
            };
            let number = u32::try_from(number).expect("a number");
            parts[part].records.push(record(number, key, &message.body, SystemWorld.now()));
        }
        for child in &mut parts[2..] {
            child.parent = Some(0);
        }
        let kind = SourceKind::Kinesis(Shards::default());
        Self { kind, parts: RefCell::new(parts), moved: Cell::new(0) }
    }

    /// A topic of four partitions with these messages.
    pub fn kafka(answers: Answers, messages: &[NewMessage]) -> Self {
        let mut parts: Vec<_> = (0..4).map(|_| Part { size: BATCH, ..Part::default() }).collect();
        for message in messages {
            let key = message.group.as_deref().expect("a group");
            let part = below(key, parts.len());
            let [partition, offset] =
                [part, parts[part].records.len()].map(|n| u32::try_from(n).expect("a number"));
            parts[part].records.push(of_topic(
                partition,
                offset,
                Some(key),
                Some(message.body.as_bytes()),
                SystemWorld.now(),
            ));
        }
        let kind = SourceKind::Kafka(answers, Shards::default());
        Self { kind, parts: RefCell::new(parts), moved: Cell::new(0) }
    }

    /// How many records are done, and how many there are.
    pub fn progress(&self) -> (usize, usize) {
        let parts = self.parts.borrow();
        (parts.iter().map(|part| part.checkpoint).sum(), parts.iter().map(|part| part.records.len()).sum())
    }

    /// The next batch of some part.
    pub fn take(&self, random: &mut Random) -> Option<Batch> {
        let mut parts = self.parts.borrow_mut();
        let is_over = |part: &Part| part.checkpoint == part.records.len();
        let moves = random.below(MOVED) == 0;
        let may = |part: &Part| {
            let begins = part.parent.is_none_or(|parent| is_over(&parts[parent]));
            begins && !is_over(part) && (!part.is_taken || moves)
        };
        let free: Vec<_> = (0..parts.len()).filter(|place| may(&parts[*place])).collect();
        let place = *free.get(random.below(free.len().max(1)))?;
        let part = &mut parts[place];
        if part.is_taken {
            self.moved.set(self.moved.get() + 1);
        }
        part.is_taken = true;
        part.owner += 1;
        let end = part.records.len().min(part.checkpoint + part.size);
        let records = part.records[part.checkpoint..end].to_vec();
        Some(Batch { part: place, owner: part.owner, from: part.checkpoint, records })
    }

    /// The event of a batch.
    pub fn event(&self, batch: &Batch) -> Value {
        match self.kind {
            SourceKind::Kafka(..) => batch_of_topic(&batch.records),
            _ => json!({ "Records": batch.records }),
        }
    }

    /// Moves the checkpoint to the first record that comes again. `None` if all do: the function failed, or its answer was lost.
    pub fn answer(&self, batch: &Batch, back: Option<&[String]>) {
        let part = &mut self.parts.borrow_mut()[batch.part];
        if part.owner != batch.owner {
            return;
        }
        part.is_taken = false;
        let Some(back) = back else {
            part.size = (part.size / 2).max(1);
            return;
        };
        part.size = BATCH;
        let names: Vec<_> = batch.records.iter().map(name).collect();
        let first = names.iter().position(|name| back.contains(name));
        assert!(back.iter().all(|name| names.contains(name)), "{back:?}: not of this batch");
        part.checkpoint = batch.from + first.unwrap_or(names.len());
    }
}

/// How an answer names a record.
fn name(record: &Value) -> String {
    match record["kinesis"]["sequenceNumber"].as_str() {
        Some(number) => number.to_owned(),
        None => format!(
            "{}-{}@{}",
            record["topic"].as_str().expect("a topic"),
            record["partition"],
            record["offset"]
        ),
    }
}
