//! Messages that commit with a phase or with the answer, and where those are that deliver them.

use crate::kernel::violation::Violation;

/// What a deliverer is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    Idle,
    /// To hand over the first message that it has read.
    HandsOver,
    /// To remove it.
    Removes,
}

/// One deliverer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deliverer {
    pub turn: Turn,
    /// The messages that it has read, a bit for each number.
    pub read: u8,
    /// Whether its time is up: another one may be at work. It begins no other message.
    pub late: bool,
}

/// The messages of the record, a bit for each number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outbox {
    /// All that were committed.
    pub published: u8,
    /// Those that are not removed.
    pub stored: u8,
    /// Those that were handed over. Their consumer acts on each once, because it remembers their ids.
    pub delivered: u8,
    /// Whether a number was given twice.
    pub overwritten: bool,
    /// Whether a delivery was asked for.
    pub wake: bool,
    pub deliverers: [Deliverer; 2],
}

/// The bit of the first message.
pub const fn first(messages: u8) -> u8 {
    messages & messages.wrapping_neg()
}

impl Outbox {
    pub const EMPTY: Self = Self {
        published: 0,
        stored: 0,
        delivered: 0,
        overwritten: false,
        wake: false,
        deliverers: [Deliverer { turn: Turn::Idle, read: 0, late: false }; 2],
    };

    /// Messages of these numbers commit.
    pub const fn publish(&mut self, numbers: u8) {
        self.overwritten |= self.published & numbers != 0 || numbers == u8::MAX;
        (self.published, self.stored) = (self.published | numbers, self.stored | numbers);
        self.wake = true;
    }

    /// The property that the step to this state violates.
    pub fn check(&self, before: &Self) -> Option<Violation> {
        let new = self.delivered & !before.delivered;
        // All that come before the new one.
        let earlier = first(new).wrapping_sub(1) & self.published;
        if self.overwritten {
            Some(Violation::Overwritten)
        } else if new != 0 && earlier & !self.delivered != 0 {
            Some(Violation::OutOfOrder)
        } else {
            (self.published & !self.stored & !self.delivered != 0).then_some(Violation::Undelivered)
        }
    }
}
