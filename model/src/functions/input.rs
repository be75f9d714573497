//! The queue whose messages are consumed: a standard queue, or one group of a FIFO queue.
//!
//! 1. A received message is invisible until its visibility is over, whatever became of its consumer. Then it comes again.
//! 2. Each receive has a receipt. An old one hides nothing. In a standard queue it still deletes, which is the worse case.
//! 3. In a FIFO queue, nothing is received while a message is in flight, and messages come in order.
//! 4. A message whose record is with operators is not received again until the record changes: nothing would happen.

use std::{fmt, time::Duration};

use super::{
    properties::Violation,
    scenario::{KeyId, Scenario},
    universe::{CONSUMER, MessageId, Universe},
};

/// For how long a received message is invisible: six times the consumer's time, as AWS advises.
const VISIBILITY: u64 = 360_000;

/// A message.
#[derive(Clone, Debug, Hash)]
pub struct InputMessage {
    pub id: MessageId,
    pub key: KeyId,
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
    /// Whether a worker has learned that its effect was executed.
    pub is_done: bool,
    /// Whether there was a dead letter.
    pub was_buried: bool,
}

/// The queue, and its dead letters.
#[derive(Debug, Hash)]
pub struct InputQueue {
    /// In the order in which they were sent.
    pub messages: Vec<InputMessage>,
    next: MessageId,
    /// The keys of the dead letters.
    pub dead: Vec<KeyId>,
    /// The messages that were acknowledged.
    gone: Vec<InputMessage>,
    pub progress: Vec<Progress>,
}

impl InputQueue {
    pub fn new(scenario: &Scenario) -> Self {
        let progress = vec![Progress::default(); usize::from(scenario.keys())];
        let mut queue = Self { messages: Vec::new(), next: 0, dead: Vec::new(), gone: Vec::new(), progress };
        let keys = scenario.input.map_or(&[][..], |input| input.keys);
        keys.iter().for_each(|key| queue.send(*key, 0));
        queue
    }

    fn send(&mut self, key: KeyId, visible_at: u64) {
        let id = self.next;
        self.next += 1;
        self.progress[usize::from(key)].sent += 1;
        self.messages.push(InputMessage { id, key, receives: 0, visible_at, looked_at: None });
    }

    /// Whether the messages of this key have not ended.
    pub fn holds(&self, key: KeyId) -> bool {
        self.messages.iter().any(|message| message.key == key) || self.dead.contains(&key)
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
        let shelf = self.shelf(message.key);
        shelf.is_escalated() && message.looked_at == Some(shelf.stamp())
    }

    /// The batches that can be received: one message, or two.
    pub fn batches(&self) -> Vec<(MessageId, Option<MessageId>)> {
        let Some(input) = self.scenario.input else { return Vec::new() };
        let consumers = self.processes.iter().filter(|process| process.name == CONSUMER && !process.over);
        if consumers.count() >= input.consumers {
            return Vec::new();
        }
        let messages = &self.input.messages;
        let is_in_flight = |message: &InputMessage| message.visible_at > self.clock;
        if input.is_fifo
            && (messages.iter().any(is_in_flight) || messages.first().is_some_and(|head| self.is_quiet(head)))
        {
            return Vec::new();
        }
        let ready = messages
            .iter()
            .filter(|message| input.is_fifo || !is_in_flight(message) && !self.is_quiet(message));
        let ready: Vec<_> = ready.map(|message| message.id).collect();
        let heads = if input.is_fifo { 1 } else { ready.len() };
        let pairs = ready.windows(2).filter(|_| input.batch > 1).map(|pair| (pair[0], Some(pair[1])));
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
        batch.iter().filter_map(Violation::of_receive).for_each(|violation| self.violate(violation));
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

    /// A message of this key becomes a dead letter.
    pub fn bury(&mut self, key: KeyId) {
        self.input.dead.push(key);
        self.input.progress[usize::from(key)].was_buried = true;
    }

    /// Lambda deletes these messages.
    pub fn end_batch(&mut self, done: &[Receipt]) {
        let is_fifo = self.scenario.input.is_some_and(|input| input.is_fifo);
        for receipt in done {
            let clock = self.clock;
            let is_valid =
                |message: &InputMessage| message.receipt() == *receipt && message.visible_at > clock;
            let is_meant =
                |message: &InputMessage| message.id == receipt.id && (!is_fifo || is_valid(message));
            let Some(place) = self.input.messages.iter().position(is_meant) else { continue };
            let message = self.input.messages.remove(place);
            if let Some(violation) = self.ended(message.key) {
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
        for key in std::mem::take(&mut self.input.dead) {
            self.input.send(key, clock);
        }
        self.tell(|all| format!("{} messages come, or come again", all.input.messages.len()));
    }
}
