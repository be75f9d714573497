//! What workers do: claim, run the handler, report; and what becomes of a report that waits in a queue.

use protocol::record::{Deferred, Standing};

use super::{
    properties::PHASE,
    world::{Accepted, World},
};
use crate::kernel::{
    action::Action,
    ending::{By, Command, Progress},
    facts::State,
    protocol::{Event, Next, Todo},
    records::{Id, TICK},
    report::Report,
    setting::Handler,
    steps::Steps,
    violation::Violation,
    world::{At, Letter, With},
};

impl Steps<'_, Accepted> {
    /// A message of the queue of work is delivered. Of each message that ever was, a copy may come at any time.
    pub fn work(&mut self) {
        for life in 1..=self.world.life {
            for clock in 0..=self.setting.skew {
                for standing in self.world.standings() {
                    self.deliver_work(life, clock, *standing);
                }
            }
        }
    }

    fn deliver_work(&mut self, life: u8, clock: u8, standing: Standing) {
        let (world, now, bit) = (self.world, self.world.now + clock, 1 << life);
        let idle = (0..self.setting.workers).find(|worker| world.worker(*worker).at == At::Idle);
        // A duplicate finds what the last worker would find.
        let worker = idle.unwrap_or(self.setting.workers);
        let claims = |standing| Event::Claim { worker, life, standing };
        match self.step(now, claims(standing)) {
            Next::Begins(_) if idle.is_none() => {}
            Next::Begins(id) => {
                let violation = self.begins(id, life, now);
                let begun = |after: &mut World, at| {
                    let state = after.worker_mut(worker);
                    (state.at, state.life, state.base, state.clock) = (at, world.life, id, clock);
                    state.own.tried = at == At::Running(0);
                };
                let mut after = world;
                after.write(id);
                begun(&mut after, At::Running(0));
                self.push(Action::Begins(worker), after, violation.or(self.begins_stopped(standing)));
                if self.setting.bounds {
                    let resumes = matches!(self.step(now, claims(Standing::WorkStopped)), Next::Begins(_));
                    begun(&mut after, At::Reserved(resumes));
                    self.push(Action::Reserves(worker), after, violation);
                }
                self.land_later(Action::BeginsLate(worker), id, With::Nothing, |after| {
                    begun(after, At::Untried);
                });
                if self.setting.store_faults {
                    self.write(Action::BeginsUnheard(worker), id, With::Nothing, |after| {
                        begun(after, At::Untried);
                    });
                }
            }
            Next::Written(id) => self.write(Action::FindsOver(life), id, With::Nothing, |_| {}),
            Next::Settled if !self.protocol.needs_request(world.id(), life) => {
                let mut after = world;
                after.own.queued &= !bit;
                // If the deletion fails, the sweep makes up for it.
                self.push(Action::FindsSettled(life), after, None);
                after.own.deleting |= world.own.requests & bit;
                self.push(Action::FindsSettled(life), after, None);
            }
            _ => {}
        }
    }

    /// The property that this claim violates.
    pub fn begins(&self, id: Id, life: u8, now: u8) -> Option<Violation> {
        let (Some(before), after) = (self.facts(), *self.protocol.facts(id)) else {
            return Some(Violation::AnotherRequest);
        };
        if after.life != life || self.world.life != life {
            return Some(Violation::AnotherRequest);
        }
        if before.state == State::Pending && before.claim_by <= now {
            return Some(Violation::BeganLate);
        }
        if self.setting.handler != Handler::Resumes && after.attempts > self.setting.max_attempts {
            return Some(Violation::TooManyAttempts);
        }
        if self.world.held {
            return Some(Violation::BeganOverHold);
        }
        let heard = self.world.effect_was_heard() && !self.world.ruled;
        let once = matches!(self.setting.handler, Handler::Calls | Handler::Commits);
        (once && heard).then_some(Violation::BeganAfterEffect)
    }

    pub fn worker(&mut self, worker: u8) {
        let state = *self.world.worker(worker);
        self.arrive(worker);
        self.hear(worker);
        match state.deferred {
            Some(Letter::Report(report) | Letter::Again(report)) => {
                let mut after = self.world;
                after.worker_mut(worker).deferred = None;
                self.deliver(Action::Delivers(worker), after, (worker, report), Progress::DELIVERED);
            }
            Some(Letter::Phase(..)) => self.deliver_phase(worker),
            None => {}
        }
        match state.at {
            At::Idle | At::Over | At::Marks(..) => return,
            At::Reserved(resumes) => self.look_again(worker, resumes, At::Untried),
            At::Untried => self.take_back(worker),
            At::Running(_) if self.setting.handler == Handler::Resumes => self.run_phase(worker),
            At::Running(_) => self.run(worker),
            At::Made(..) => self.keep(worker),
            At::Ended(report) => self.report(worker, report),
        }
        self.with(Action::Crashes(worker), |after| after.dies(worker));
    }

    /// What it has claimed, and runs not, is claimed by nobody: it takes that back, if it was applied.
    fn take_back(&mut self, worker: u8) {
        let state = *self.world.worker(worker);
        let attempt = |id: Id| self.protocol.record(id).attempt;
        if !self.world.id().is_some_and(|current| attempt(current) == attempt(state.base)) {
            return;
        }
        let before = self.world;
        if let Command::Writes(id) = self.command(&before, worker, Report::NotStarted, Progress::START) {
            self.write(Action::TakesBack(worker), id, With::Nothing, |after| {
                after.worker_mut(worker).at = At::Over;
            });
        }
    }

    /// A handler runs, whose effect is a phase.
    fn run_phase(&mut self, worker: u8) {
        let (base, now) = (self.world.worker(worker).base, self.now_of(worker));
        let made = At::Made(0, 1);
        match self.todo(base, now) {
            Todo::Kept => return self.moves(Action::GoesOn(worker), worker, At::Ended(Report::Effect(1))),
            Todo::Noted(_) => return self.moves(Action::GoesOn(worker), worker, made),
            Todo::Call if self.is_alive(worker) => self.call(worker, made, At::Ended(Report::Interrupted)),
            Todo::Call | Todo::Ask | Todo::Mismatch => {}
        }
        self.moves(Action::DoesNothing(worker), worker, At::Ended(Report::NotExecuted));
    }

    /// What a handler that last saw `base` does about its phase.
    pub fn todo(&self, base: Id, now: u8) -> Todo {
        self.protocol.todo(base, (0, PHASE), TICK * 100, now)
    }

    /// What a record makes of the result of a phase, and what commits with that.
    pub fn kept(&mut self, record: Option<Id>, base: Id, now: u8, by: By) -> (Next, With) {
        let event = Event::Keep { base, phase: PHASE, place: 0, result: 1, by };
        let next = self.protocol.step(record, now, event);
        (next, self.protocol.messages(record, now, event).map_or(With::Nothing, With::Messages))
    }

    fn keep(&mut self, worker: u8) {
        let (world, now) = (self.world, self.now_of(worker));
        let (next, with) = self.kept(world.id(), world.worker(worker).base, now, By::Worker);
        let mut after = world;
        let state = after.worker_mut(worker);
        state.at = At::Ended(Report::NotExecuted);
        match next {
            Next::Begins(id) => {
                (state.at, state.base) = (At::Running(0), id);
                after.commit(id, with);
            }
            Next::Written(id) => after.write(id),
            Next::Alarmed(id) => {
                self.alarms(&mut after, id);
                after.write(id);
            }
            Next::Known(_) => {}
            _ => state.deferred = Some(Letter::Phase(0, 1)),
        }
        self.push(Action::Keeps(worker), after, None);
        if let Next::Begins(id) | Next::Written(id) | Next::Alarmed(id) = next {
            self.land_later(Action::KeepsLate(worker), id, with, |after| {
                let state = after.worker_mut(worker);
                (state.at, state.deferred) = (At::Ended(Report::Interrupted), Some(Letter::Phase(0, 1)));
            });
        }
    }

    fn deliver_phase(&mut self, worker: u8) {
        let (mut after, now) = (self.world, self.world.now);
        after.worker_mut(worker).deferred = None;
        match self.kept(self.world.id(), self.world.worker(worker).base, now, By::Message) {
            (Next::Begins(id) | Next::Written(id), with) => after.commit(id, with),
            (Next::Alarmed(id), _) => {
                self.alarms(&mut after, id);
                after.write(id);
            }
            (Next::Known(_), _) => {}
            _ => after.escalate(worker),
        }
        self.push(Action::Delivers(worker), after, None);
    }

    fn report(&mut self, worker: u8, report: Report) {
        let mut after = self.world;
        after.worker_mut(worker).at = At::Over;
        let crash = |steps: &mut Self, after: &World, progress: Progress| {
            if progress.deferred == Deferred::Sent && progress.write.is_none() {
                steps.push(Action::DefersAndCrashes(worker), *after, None);
            }
        };
        let violation = self.carry_out_all(&mut after, (worker, report), Progress::START, crash);
        self.push(Action::Reports(worker), after, violation);
        if self.setting.store_faults {
            self.unanswered(worker, report);
        }
    }
}
