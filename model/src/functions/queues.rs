//! The queues: messages are delivered at least once, and finally become dead letters.

use std::time::Duration;

use super::{
    call::Source,
    universe::{Message, MessageId, Universe},
};

/// When a message whose work failed is delivered again.
const VISIBILITY: u64 = 360_000;
/// After how many deliveries a message becomes a dead letter.
const MAX_RECEIVES: u8 = 5;
/// For how long the reconcile function may be down.
const DAYS: u64 = 60 * 3600 * 1000;

impl Universe {
    pub fn send(&mut self, source: Source, body: String, delay: Duration, digest: u64) {
        if source == Source::DeadLetters {
            self.dead_letters = self.dead_letters.saturating_add(1);
            return;
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
        is_up && !message.taken && message.visible_at <= self.clock
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
        let visible_at = self.clock + VISIBILITY;
        let Some(place) = self.messages.iter().position(|message| message.id == id) else { return };
        let message = &mut self.messages[place];
        (message.taken, message.visible_at) = (false, visible_at);
        // A provider repeats its events for days.
        if message.receives >= MAX_RECEIVES && message.source != Source::Events {
            self.messages.remove(place);
            self.dead_letters += 1;
            self.tell(|_| "the message becomes a dead letter".to_owned());
        }
    }
}
