//! The queues: messages are delivered at least once, and finally become dead letters.

use std::time::Duration;

use super::{
    call::Source,
    ids::MessageId,
    universe::{Message, Universe},
};

/// When a message whose work failed is delivered again.
const VISIBILITY: u64 = 360_000;
/// When a batch of the stream is delivered again.
const RETRY: u64 = 1_000;
/// After how many deliveries a message becomes a dead letter.
const MAX_RECEIVES: u8 = 5;
/// How often a provider sends an event, each time twice as late: for two days.
const MAX_EVENTS: u8 = 10;
/// For how long the reconcile function may be down.
const DAYS: u64 = 60 * 3600 * 1000;

impl Universe {
    pub fn send(&mut self, source: Source, body: String, delay: Duration, digest: u64) {
        if source == Source::DeadLetters {
            self.dead_letters = self.dead_letters.saturating_add(1);
            return;
        }
        if source == Source::Work || source == Source::Wakes {
            let (key, clock) = (self.key_in(&body), self.clock);
            return self.input.send(source, key, body, clock);
        }
        let id = self.next_message;
        self.next_message += 1;
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let visible_at = self.clock + delay;
        self.messages.push(Message { id, source, body, visible_at, receives: 0, taken: false, digest });
    }

    /// The reconcile function is down for days.
    pub fn go_down(&mut self) {
        self.faults += 1;
        self.down_until = self.clock + DAYS;
        self.tell(|_| "the reconcile function is down for days".to_owned());
    }

    /// Whether this message can be delivered now.
    pub fn is_ready(&self, message: &Message) -> bool {
        let is_up = message.source != Source::Reconcile || self.down_until <= self.clock;
        let first = || self.messages.iter().find(|other| other.source == message.source);
        let is_next = message.source != Source::Stream || first().is_some_and(|first| first.id == message.id);
        is_up && is_next && !message.taken && message.visible_at <= self.clock
    }

    /// A batch of the table's stream is lost.
    pub fn lose(&mut self, id: MessageId) {
        (self.faults, self.losses) = (self.faults + 1, self.losses + 1);
        self.messages.retain(|message| message.id != id);
        self.tell(|_| "a batch of the stream is lost".to_owned());
    }

    /// A process takes a message.
    pub fn take(&mut self, id: MessageId) -> Option<Message> {
        let message = self.messages.iter_mut().find(|message| message.id == id)?;
        message.taken = true;
        message.receives += 1;
        Some(message.clone())
    }

    /// The process that took the message is over.
    pub fn give_back(&mut self, id: MessageId) {
        let Some(place) = self.messages.iter().position(|message| message.id == id) else { return };
        let message = &mut self.messages[place];
        let wait = match message.source {
            Source::Stream => RETRY,
            Source::Events => VISIBILITY << message.receives.saturating_sub(1),
            _ => VISIBILITY,
        };
        (message.taken, message.visible_at) = (false, self.clock + wait);
        if message.source == Source::Events && message.receives >= MAX_EVENTS {
            self.messages.remove(place);
            return self.tell(|_| "the provider does not repeat its event any more".to_owned());
        }
        // A stream repeats its batches for a day.
        let is_bounded = ![Source::Events, Source::Stream].contains(&message.source);
        if message.receives >= MAX_RECEIVES && is_bounded {
            self.messages.remove(place);
            self.dead_letters += 1;
            self.tell(|_| "the message becomes a dead letter".to_owned());
        }
    }
}
