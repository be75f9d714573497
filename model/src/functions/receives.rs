//! What a queue does whose messages consumers take: see [`InputQueue`](super::input::InputQueue).

use std::time::Duration;

use super::{
    call::Source,
    ids::{MessageId, Receipt},
    input::InputMessage,
    properties::received_too_often,
    scenario::InputKind,
    shard::place_in,
    universe::Universe,
};

/// For how long a received message is invisible: six times the consumer's time, as AWS advises.
const VISIBILITY: u64 = 360_000;

impl Universe {
    /// Whether nothing would happen if this message came again.
    pub fn is_quiet(&self, message: &InputMessage) -> bool {
        // A record of a shard is repeated until it is so old that it is parked.
        if message.source == Source::Wakes || self.scenario.shard().is_some() {
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
        let queues = [Source::Input, Source::Work, Source::Wakes, Source::Parked];
        queues.into_iter().flat_map(|source| self.batches_of(source)).collect()
    }

    fn batches_of(&self, source: Source) -> Vec<(MessageId, Option<MessageId>)> {
        if let (Source::Input, Some(shard)) = (source, self.scenario.shard()) {
            return self.batches_of_shard(shard);
        }
        let (is_fifo, batch) = match (source, self.scenario.input) {
            (Source::Input, Some(input)) => (input.kind == InputKind::Fifo, input.batch),
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
        let is_record = |message: &InputMessage| message.source == Source::Input && ids.contains(&message.id);
        let of_shard = self.scenario.shard().is_some() && self.input.messages.iter().any(is_record);
        let time = if of_shard { self.take_records() } else { VISIBILITY };
        let visible_at = self.clock + time;
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
        let (source, key) = match self.scenario.input.filter(|input| input.shard().is_some()) {
            Some(input) => (Source::Parked, input.keys[usize::from(place_in(&body))]),
            None => (source, self.key_in(&body)),
        };
        self.gives_up(key);
        let message = InputMessage { id: 0, source, key, body, receives: 0, visible_at: 0, looked_at: None };
        self.input.dead.push(message);
        self.input.progress[usize::from(key)].was_buried = true;
    }

    /// Lambda deletes these messages.
    pub fn end_batch(&mut self, done: &[Receipt]) {
        let is_fifo = self.scenario.input.is_some_and(|input| input.kind == InputKind::Fifo);
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
            self.acknowledge(message);
        }
    }

    /// A message is gone.
    pub fn acknowledge(&mut self, message: InputMessage) {
        if let Some(violation) = self.ended(&message) {
            self.violate(violation);
        }
        self.input.gone.push(message);
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
