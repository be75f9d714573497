//! Messages that commit with a phase or with the answer, and those that deliver them. One deliverer at a time works for a record, but
//! one that was frozen goes on with what it had begun.

use super::{
    Violation,
    steps::{Action, Steps},
};

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
const fn first(messages: u8) -> u8 {
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

impl Steps<'_> {
    /// What happens to messages.
    pub fn outbox(&mut self) {
        let outbox = self.world.outbox;
        if outbox.published == 0 {
            return;
        }
        if outbox.stored != 0 {
            // The sweep finds it.
            self.change(Action::Wakes, |outbox| outbox.wake = true);
        }
        if self.setting.store_faults {
            self.change(Action::LosesTheWake, |outbox| outbox.wake = false);
        }
        for place in 0..outbox.deliverers.len() {
            self.deliverer(place);
        }
    }

    fn change(&mut self, action: Action, change: impl FnOnce(&mut Outbox)) {
        let mut after = self.world;
        change(&mut after.outbox);
        self.push(action, after, None);
    }

    fn deliverer(&mut self, place: usize) {
        let (outbox, own) = (self.world.outbox, self.world.outbox.deliverers[place]);
        let idle = Deliverer { turn: Turn::Idle, read: 0, late: false };
        match own.turn {
            Turn::Idle if outbox.wake => self.change(Action::Starts(place), |outbox| {
                outbox.deliverers[1 - place].late = outbox.deliverers[1 - place].turn != Turn::Idle;
                let turn = if outbox.stored == 0 { Turn::Idle } else { Turn::HandsOver };
                outbox.wake = outbox.stored != 0;
                outbox.deliverers[place] = Deliverer { turn, read: outbox.stored, late: false };
            }),
            Turn::Idle => {}
            Turn::HandsOver => {
                let delivered = outbox.delivered | first(own.read);
                self.change(Action::HandsOver(place), |outbox| {
                    outbox.delivered = delivered;
                    outbox.deliverers[place].turn = Turn::Removes;
                });
                self.change(Action::HandsOverUnheard(place), |outbox| {
                    outbox.delivered = delivered;
                    outbox.deliverers[place] = idle;
                });
            }
            Turn::Removes => self.change(Action::Removes(place), |outbox| {
                outbox.stored &= !first(own.read);
                let left = own.read & !first(own.read);
                // Behind the last one it reads again.
                let read = if left == 0 { outbox.stored } else { left };
                let goes_on = read != 0 && !own.late;
                outbox.wake &= outbox.stored != 0 || own.late;
                outbox.deliverers[place] =
                    if goes_on { Deliverer { turn: Turn::HandsOver, read, ..own } } else { idle };
            }),
        }
        if own.turn != Turn::Idle {
            self.change(Action::Stops(place), |outbox| outbox.deliverers[place] = idle);
        }
    }
}
