//! All that can happen next to accepted work, besides what its workers and deliverers do.

use protocol::record::Standing;

use super::{properties::PHASE, world::Accepted};
use crate::kernel::{
    action::Action,
    facts::State,
    protocol::{Event, Next},
    report::Found,
    setting::Handler,
    steps::Steps,
    violation::Violation,
    world::With,
};

impl Steps<'_, Accepted> {
    pub fn all(&mut self) {
        for worker in 0..self.setting.workers {
            self.worker(worker);
        }
        self.work();
        self.others();
        self.land();
        self.prune();
        self.meddle();
        self.stand();
        self.tick();
    }

    /// All but workers.
    pub fn others(&mut self) {
        for clock in 0..=self.setting.skew {
            self.accept(clock);
            self.look(clock);
            match self.setting.handler {
                Handler::Resumes => self.ask_of_phases(clock),
                _ => self.question(clock),
            }
        }
        self.queue();
        if self.setting.operator {
            self.operator();
        }
        self.outbox();
    }

    /// A client sends its request: for the first time, or again.
    fn accept(&mut self, clock: u8) {
        let (life, now) = (self.world.life + 1, self.world.now + clock);
        let accepts = |standing: &Standing| Event::Accept { life, standing: *standing };
        for event in self.world.standings().iter().map(accepts).chain([Event::Now]) {
            let id = match self.step(now, event) {
                Next::Begins(id) => id,
                Next::OverBound => {
                    self.is_over_bound(now, life);
                    continue;
                }
                _ => continue,
            };
            let is_free = self.facts().is_none_or(|facts| {
                facts.state == State::Completed && facts.completed_at + self.setting.retention < now
            });
            let violation = (!is_free).then_some(Violation::ClientTookOver);
            if violation.is_some() {
                self.push(Action::Accepts(life), self.world, violation);
            } else if event != Event::Now && life <= self.setting.lives {
                self.write(Action::Accepts(life), id, With::Life, |_| {});
                self.land_later(Action::AcceptsLate(life), id, With::Life, |_| {});
            }
        }
    }

    /// The queue of work, the sweep, and those that delete requests.
    fn queue(&mut self) {
        for life in 1..=self.world.life {
            let (bit, world, own) = (1 << life, self.world, self.world.own);
            let needed = self.protocol.needs_request(world.id(), life);
            // The sweep queues it.
            let waits = world.id().is_some_and(|id| self.protocol.record(id).waits_for_a_worker());
            if self.setting.losses && own.queued & bit != 0 {
                self.with(Action::LosesTheMessage(life), |after| after.own.queued &= !bit);
            }
            if own.requests & bit != 0 && !needed {
                self.with(Action::LooksAfter(life), |after| after.own.deleting |= bit);
            }
            if own.requests & bit != 0 && needed && waits {
                self.with(Action::QueuesAgain(life), |after| after.own.queued |= bit);
            }
            if own.deleting & bit != 0 {
                self.with(Action::DeletesTheRequest(life), |after| {
                    after.own.deleting &= !bit;
                    after.own.requests &= !bit;
                });
            }
        }
    }

    /// Asked about a phase. The answer is written at once.
    pub fn ask_of_phases(&mut self, clock: u8) {
        let (Some(seen), now) = (self.world.id(), self.world.now + clock) else { return };
        if !self.protocol.is_due(seen, now) {
            return;
        }
        let found = match self.protocol.facts(seen).state {
            State::BetweenWorkers | State::Escalated => Found::NotResumed,
            _ if self.world.effects(true) > 0 => Found::Phase(PHASE, 1),
            _ => Found::NotFound,
        };
        let event = Event::Learn { seen, is_current: true, found, at: now, reported: false };
        if let Next::Written(id) = self.step(now, event) {
            self.write(Action::Asks(found), id, With::Nothing, |_| {});
        }
    }

    fn meddle(&mut self) {
        let world = self.world;
        if !self.setting.meddles || world.meddled {
            return;
        }
        match world.own.saved {
            None => self.with(Action::Saves, |after| {
                after.own.saved = Some((world.id(), world.life, world.own.requests));
            }),
            Some((record, life, requests)) if life == world.life => self.with(Action::Restores, |after| {
                after.meddle(record);
                after.own.requests |= requests;
            }),
            Some(_) => {}
        }
        if world.record.is_some() {
            self.with(Action::Deletes, |after| after.meddle(None));
        }
    }
}
