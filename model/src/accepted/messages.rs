//! What those do that deliver messages. One deliverer at a time works for a record, but one that was frozen goes on with what it had
//! begun.

use super::{
    outbox::{Deliverer, Outbox, Turn, first},
    world::Accepted,
};
use crate::kernel::{action::Action, steps::Steps};

impl Steps<'_, Accepted> {
    /// What happens to messages.
    pub fn outbox(&mut self) {
        let outbox = self.world.own.outbox;
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
        self.deliverer(0);
        self.deliverer(1);
    }

    fn change(&mut self, action: Action, change: impl FnOnce(&mut Outbox)) {
        self.with(action, |after| change(&mut after.own.outbox));
    }

    fn deliverer(&mut self, number: u8) {
        let (outbox, place) = (self.world.own.outbox, usize::from(number));
        let own = outbox.deliverers[place];
        let idle = Deliverer { turn: Turn::Idle, read: 0, late: false };
        match own.turn {
            Turn::Idle if outbox.wake => self.change(Action::Starts(number), |outbox| {
                outbox.deliverers[1 - place].late = outbox.deliverers[1 - place].turn != Turn::Idle;
                let turn = if outbox.stored == 0 { Turn::Idle } else { Turn::HandsOver };
                outbox.wake = outbox.stored != 0;
                outbox.deliverers[place] = Deliverer { turn, read: outbox.stored, late: false };
            }),
            Turn::Idle => {}
            Turn::HandsOver => {
                let delivered = outbox.delivered | first(own.read);
                self.change(Action::HandsOver(number), |outbox| {
                    outbox.delivered = delivered;
                    outbox.deliverers[place].turn = Turn::Removes;
                });
                self.change(Action::HandsOverUnheard(number), |outbox| {
                    outbox.delivered = delivered;
                    outbox.deliverers[place] = idle;
                });
            }
            Turn::Removes => self.change(Action::Removes(number), |outbox| {
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
            self.change(Action::Stops(number), |outbox| outbox.deliverers[place] = idle);
        }
    }
}
