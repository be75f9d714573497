//! The queues whose messages a consumer of the library takes: a standard queue, or one group of a FIFO queue. Of a shard, see [`super::shard`].
//!
//! 1. A received message is invisible until its visibility is over, whatever became of its consumer. Then it comes again.
//! 2. Each receive has a receipt. An old one hides nothing. In a standard queue it still deletes, which is the worse case.
//! 3. In a FIFO queue, nothing is received while a message is in flight, and messages come in order.
//! 4. A message whose record is with operators is not received again until the record changes: nothing would happen.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    call::Source,
    ids::{KEYS, KeyId, MessageId, Receipt},
    scenario::Scenario,
};

/// For how long a FIFO queue drops what it has already.
const DEDUPLICATION: u64 = 300_000;

/// A message.
#[derive(Clone, Debug, Hash)]
pub struct InputMessage {
    pub id: MessageId,
    /// Its queue.
    pub source: Source,
    pub key: KeyId,
    pub body: String,
    /// How often it was received.
    pub receives: u32,
    pub visible_at: u64,
    /// The record at the last receive.
    pub looked_at: Option<u64>,
}

/// What became of the messages of one key.
#[derive(Clone, Debug, Default, Hash)]
pub struct Progress {
    /// How many messages there were, with those that came back from the dead letters, or after their end.
    pub sent: u32,
    /// How many executions have begun.
    pub begun: u32,
    /// How many leases were over although no handler had begun, which nobody knows.
    pub lost: u32,
    /// Whether a worker has learned that its effect was executed.
    pub is_done: bool,
    /// Whether its effect was refused.
    pub is_refused: bool,
    /// Whether there was a dead letter.
    pub was_buried: bool,
    /// How many of its messages left their shard before any consumer was done with them.
    pub trimmed: u32,
}

/// The queues, and their dead letters.
#[derive(Debug, Hash)]
pub struct InputQueue {
    /// In the order in which they were sent.
    pub messages: Vec<InputMessage>,
    next: MessageId,
    pub dead: Vec<InputMessage>,
    /// When each wake was sent, by its id.
    wakes: BTreeMap<String, u64>,
    /// The messages that were acknowledged.
    pub gone: Vec<InputMessage>,
    /// How often a shard was given to another consumer while one had it.
    pub rebalances: u8,
    pub progress: Vec<Progress>,
}

impl InputQueue {
    pub fn new(scenario: &Scenario) -> Self {
        let progress = vec![Progress::default(); usize::from(scenario.keys())];
        let mut queue = Self {
            messages: Vec::new(),
            next: 0,
            dead: Vec::new(),
            wakes: BTreeMap::new(),
            gone: Vec::new(),
            rebalances: 0,
            progress,
        };
        let keys = scenario.input.map_or(&[][..], |input| input.keys);
        for key in keys {
            let body = json!({ "id": KEYS[usize::from(*key)] });
            queue.send(Source::Input, *key, body.to_string(), 0);
        }
        queue
    }

    pub fn send(&mut self, source: Source, key: KeyId, body: String, visible_at: u64) {
        let id = self.next;
        self.next += 1;
        self.progress[usize::from(key)].sent += 1;
        let message = InputMessage { id, source, key, body, receives: 0, visible_at, looked_at: None };
        self.messages.push(message);
    }

    /// Whether a wake of this id is dropped: one was sent just now.
    pub fn is_repeated(&mut self, id: String, clock: u64) -> bool {
        let before = self.wakes.insert(id.clone(), clock);
        let is_repeated = before.is_some_and(|sent| clock < sent + DEDUPLICATION);
        before.filter(|_| is_repeated).and_then(|sent| self.wakes.insert(id, sent));
        is_repeated
    }

    /// Whether the messages of this key have not ended.
    pub fn holds(&self, key: KeyId) -> bool {
        self.messages.iter().chain(&self.dead).any(|message| message.key == key)
    }
}

impl InputMessage {
    pub const fn receipt(&self) -> Receipt {
        Receipt { id: self.id, receives: self.receives }
    }
}
