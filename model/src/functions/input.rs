//! The queues whose messages a consumer of the library takes: a standard queue, or one group of a FIFO queue.
//!
//! 1. A received message is invisible until its visibility is over, whatever became of its consumer. Then it comes again.
//! 2. Each receive has a receipt. An old one hides nothing. In a standard queue it still deletes, which is the worse case.
//! 3. In a FIFO queue, nothing is received while a message is in flight, and messages come in order.
//! 4. A message whose record is with operators is not received again until the record changes: nothing would happen.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde_json::json;

use super::{
    call::Source,
    properties::received_too_often,
    scenario::{KeyId, Scenario},
    shelf::KEYS,
    universe::{MessageId, Universe},
};

/// For how long a received message is invisible: six times the consumer's time, as AWS advises.
const VISIBILITY: u64 = 360_000;

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
    looked_at: Option<u64>,
}

/// One receive of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub id: MessageId,
    pub receives: u32,
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
    gone: Vec<InputMessage>,
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

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.receives)
    }
}

impl Receipt {
    pub fn parse(text: &str) -> Option<Self> {
        let (id, receives) = text.split_once('.')?;
        Some(Self { id: id.parse().ok()?, receives: receives.parse().ok()? })
    }
}

impl Universe {
    /// Whether nothing would happen if this message came again.
    pub fn is_quiet(&self, message: &InputMessage) -> bool {
        if message.source == Source::Wakes {
            return false;
        }
        let shelf = self.shelf(message.key);
        shelf.is_escalated() && message.looked_at == Some(shelf.stamp())
    }

    /// The batches that can be received: one message, or two.
    pub fn batches(&self) -> Vec<(MessageId, Option<MessageId>)> {
        let consumers = self.processes.iter().filter(|process| process.is_consumer() && !process.over);
        if self.input.messages.is_empty() || consumers.count() >= self.scenario.consumers() {
            return Vec::new();
        }
        let queues = [Source::Input, Source::Work, Source::Wakes];
        queues.into_iter().flat_map(|source| self.batches_of(source)).collect()
    }

    fn batches_of(&self, source: Source) -> Vec<(MessageId, Option<MessageId>)> {
        let (is_fifo, batch) = match (source, self.scenario.input) {
            (Source::Input, Some(input)) => (input.is_fifo, input.batch),
            _ => (source == Source::Wakes, 1),
        };
        let messages = || self.input.messages.iter().filter(|message| message.source == source);
        let is_in_flight = |message: &InputMessage| message.visible_at > self.clock;
        if is_fifo
            && (messages().any(is_in_flight) || messages().next().is_some_and(|head| self.is_quiet(head)))
        {
            return Vec::new();
        }
        let ready = messages().filter(|message| is_fifo || !is_in_flight(message) && !self.is_quiet(message));
        let ready: Vec<_> = ready.map(|message| message.id).collect();
        let heads = if is_fifo { 1 } else { ready.len() };
        let pairs = ready.windows(2).filter(|_| batch > 1).map(|pair| (pair[0], Some(pair[1])));
        let singles = ready.iter().map(|id| (*id, None));
        pairs.take(heads).chain(singles.take(heads)).collect()
    }

    /// A consumer receives these messages.
    pub fn receive(&mut self, ids: &[MessageId]) -> Vec<InputMessage> {
        let visible_at = self.clock + VISIBILITY;
        let stamps: Vec<_> = self.shelves.iter().map(|shelf| shelf.stamp()).collect();
        let received = self.input.messages.iter_mut().filter(|message| ids.contains(&message.id));
        let received = received.map(|message| {
            message.receives += 1;
            (message.visible_at, message.looked_at) = (visible_at, Some(stamps[usize::from(message.key)]));
            message.clone()
        });
        let batch: Vec<_> = received.collect();
        batch.iter().filter_map(received_too_often).for_each(|violation| self.violate(violation));
        batch
    }

    /// Hides messages for these times. Returns whether each receipt is valid.
    pub fn hide(&mut self, hidden: &[(Receipt, Duration)]) -> bool {
        let clock = self.clock;
        let mut hide = |(receipt, time): &(Receipt, Duration)| {
            let is_meant =
                |message: &&mut InputMessage| message.receipt() == *receipt && message.visible_at > clock;
            let message = self.input.messages.iter_mut().find(is_meant)?;
            message.visible_at = clock + u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            Some(())
        };
        hidden.iter().filter(|each| hide(each).is_none()).count() == 0
    }

    /// A message becomes a dead letter.
    pub fn bury(&mut self, source: Source, body: String) {
        let key = self.key_in(&body);
        self.gives_up(key);
        let message = InputMessage { id: 0, source, key, body, receives: 0, visible_at: 0, looked_at: None };
        self.input.dead.push(message);
        self.input.progress[usize::from(key)].was_buried = true;
    }

    /// Lambda deletes these messages.
    pub fn end_batch(&mut self, done: &[Receipt]) {
        let is_fifo = self.scenario.input.is_some_and(|input| input.is_fifo);
        for receipt in done {
            let clock = self.clock;
            let is_valid =
                |message: &InputMessage| message.receipt() == *receipt && message.visible_at > clock;
            let is_meant = |message: &InputMessage| {
                let is_fifo = is_fifo || message.source == Source::Wakes;
                message.id == receipt.id && (!is_fifo || is_valid(message))
            };
            let Some(place) = self.input.messages.iter().position(is_meant) else { continue };
            let message = self.input.messages.remove(place);
            if let Some(violation) = self.ended(&message) {
                self.violate(violation);
            }
            self.input.gone.push(message);
        }
    }

    /// What was acknowledged is delivered once more, and each dead letter is sent back, as a new message.
    pub fn come_again(&mut self) {
        let clock = self.clock;
        for message in std::mem::take(&mut self.input.gone) {
            self.input.progress[usize::from(message.key)].sent += 1;
            self.input.messages.push(InputMessage { visible_at: clock, looked_at: None, ..message });
        }
        self.input.messages.sort_by_key(|message| message.id);
        for InputMessage { source, key, body, .. } in std::mem::take(&mut self.input.dead) {
            self.input.send(source, key, body, clock);
        }
        if !self.input.messages.is_empty() {
            self.tell(|all| format!("{} messages come, or come again", all.input.messages.len()));
        }
    }
}
