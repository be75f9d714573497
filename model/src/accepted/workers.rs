//! What workers do: claim, run the handler, report; and what becomes of a report that waits in a queue.

use protocol::record::{Deferred as InQueue, Written};

use super::{
    Handler, Violation,
    facts::{Kept, Kind},
    protocol::{Event, Id, LEASE, Next, OWN_LEASE, Todo},
    steps::{Action, Steps},
    world::{At, Deferred, Ending, MAX_WORKERS, Sent, With, World},
};
use crate::ending::{By, Command, Progress};

impl Steps<'_> {
    /// A message of the queue of work is delivered. Of each message that ever was, a copy may come at any time.
    pub fn work(&mut self) {
        for life in 1..=self.world.life {
            for clock in 0..=self.setting.skew {
                self.deliver_work(life, clock);
            }
        }
    }

    fn deliver_work(&mut self, life: u8, clock: u8) {
        let (world, now, bit) = (self.world, self.world.now + clock, 1 << life);
        let idle =
            (0..self.setting.workers).find(|worker| world.workers[usize::from(*worker)].at == At::Idle);
        // A duplicate finds what the last worker would find.
        let worker = idle.unwrap_or(self.setting.workers);
        match self.step(now, Event::Claim { worker, life }) {
            Next::Begins(_) if idle.is_none() => {}
            Next::Begins(id) => {
                let violation = self.begins(id, life, now);
                let begun = |after: &mut World, at| {
                    let state = &mut after.workers[usize::from(worker)];
                    (state.at, state.life, state.base, state.clock) = (at, world.life, id, clock);
                    state.tried = at == At::Running;
                };
                let mut after = world;
                after.write(id);
                begun(&mut after, At::Running);
                self.push(Action::Claims(worker), after, violation);
                self.land_later(Action::ClaimsLate(worker), id, With::Nothing, |after| {
                    begun(after, At::Untried);
                });
                if self.setting.store_faults {
                    self.write(Action::ClaimsUnheard(worker), id, With::Nothing, |after| {
                        begun(after, At::Untried);
                    });
                }
            }
            Next::Written(id) => self.write(Action::FindsOver(life), id, With::Nothing, |_| {}),
            Next::Settled if !self.protocol.needs_request(world.record, life) => {
                let mut after = world;
                after.queued &= !bit;
                // If the deletion fails, the sweep makes up for it.
                self.push(Action::FindsSettled(life), after, None);
                after.deleting |= world.requests & bit;
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
        if before.state == Kind::Pending && before.claim_by <= now {
            return Some(Violation::BeganLate);
        }
        if self.setting.handler != Handler::Resumes && after.attempts > self.setting.max_attempts {
            return Some(Violation::TooManyAttempts);
        }
        if self.world.held {
            return Some(Violation::BeganOverHold);
        }
        let heard = self.world.present().any(|worker| worker.heard) && !self.world.ruled;
        let once = matches!(self.setting.handler, Handler::Calls | Handler::Commits);
        (once && heard).then_some(Violation::BeganAfterEffect)
    }

    pub fn worker(&mut self, worker: u8) {
        let state = self.world.workers[usize::from(worker)];
        self.arrive(worker);
        self.hear(worker);
        match state.deferred {
            Some(Deferred::Ended(ending)) => self.deliver(worker, ending),
            Some(Deferred::Phase) => self.deliver_phase(worker),
            None => {}
        }
        match state.at {
            At::Idle | At::Over => return,
            At::Untried => self.take_back(worker),
            At::Running => self.run(worker),
            At::Made => self.keep(worker),
            At::Ended(ending) => self.report(worker, ending),
        }
        let mut after = self.world;
        after.dies(worker.into());
        self.push(Action::Crashes(worker), after, None);
    }

    /// What it has claimed, and runs not, is claimed by nobody: it takes that back, if it was applied.
    fn take_back(&mut self, worker: u8) {
        let state = self.world.workers[usize::from(worker)];
        let attempt = |id: Id| self.protocol.record(id).attempt;
        if !self.world.record.is_some_and(|current| attempt(current) == attempt(state.base)) {
            return;
        }
        let event = self.event(worker, Ending::NotStarted, Progress::START);
        if let Next::Does(Command::Writes(id)) = self.step(self.world.now + state.clock, event) {
            self.write(Action::TakesBack(worker), id, With::Nothing, |after| {
                after.workers[usize::from(worker)].at = At::Over;
            });
        }
    }

    fn at(&mut self, action: Action, worker: u8, at: At) {
        let mut after = self.world;
        after.workers[usize::from(worker)].at = at;
        self.push(action, after, None);
    }

    /// The same, after its request was sent.
    fn sends(&mut self, action: Action, worker: u8, sent: Sent, at: At) {
        let mut after = self.world;
        let state = &mut after.workers[usize::from(worker)];
        (state.at, state.sent) = (at, sent);
        state.webhook = self.setting.webhook && sent == Sent::Executed;
        self.push(action, after, None);
    }

    fn run(&mut self, worker: u8) {
        let state = self.world.workers[usize::from(worker)];
        let facts = *self.protocol.facts(state.base);
        // By its own lease, which has no grace.
        let now = self.world.now + state.clock;
        let alive = now < facts.lease_until.saturating_sub(LEASE - OWN_LEASE);
        let (number, sent) = (worker + 1, Sent::OnItsWay(self.world.now));
        let ended = |ending| At::Ended(ending);
        if self.setting.handler == Handler::Resumes {
            match self.protocol.todo(state.base, now) {
                Todo::Kept => return self.at(Action::Answers(worker), worker, ended(Ending::Effect(1))),
                Todo::Noted => return self.at(Action::Answers(worker), worker, At::Made),
                Todo::Call if alive => {
                    self.sends(Action::HasItsEffect(worker), worker, Sent::Executed, At::Made);
                    let interrupted = ended(Ending::Interrupted);
                    self.sends(Action::SendsUnheard(worker), worker, sent, interrupted);
                    self.sends(Action::SendsAndCrashes(worker), worker, sent, At::Over);
                }
                Todo::Call | Todo::Ask => {}
            }
            return self.at(Action::DoesNothing(worker), worker, ended(Ending::NotExecuted));
        }
        if self.setting.handler == Handler::Commits {
            self.at(Action::HasItsEffect(worker), worker, ended(Ending::Effect(number)));
        } else if alive {
            let effect = ended(Ending::Effect(number));
            self.sends(Action::HasItsEffect(worker), worker, Sent::Executed, effect);
            self.sends(Action::SendsUnheard(worker), worker, sent, ended(Ending::Perhaps));
            self.sends(Action::SendsAndCrashes(worker), worker, sent, At::Over);
        }
        self.at(Action::IsRefused(worker), worker, ended(Ending::Refusal(number)));
        self.at(Action::DoesNothing(worker), worker, ended(Ending::NotExecuted));
        self.at(Action::DoesNotBegin(worker), worker, ended(Ending::NotBegun));
    }

    fn keep(&mut self, worker: u8) {
        let (world, index) = (self.world, usize::from(worker));
        let state = world.workers[index];
        let (now, event) = (world.now + state.clock, Event::Keep { base: state.base });
        let next = self.step(now, event);
        let with = self.protocol.messages(world.record, now, event);
        let mut after = world;
        let own = &mut after.workers[index];
        match next {
            Next::Begins(id) => {
                (own.at, own.base) = (At::Running, id);
                after.commit(id, with);
            }
            Next::Written(id) => {
                own.at = At::Ended(Ending::NotExecuted);
                after.write(id);
            }
            Next::Stopped(differs) => {
                own.at = At::Ended(Ending::NotExecuted);
                own.deferred = differs.then_some(Deferred::Phase);
            }
            _ => (own.at, own.deferred) = (At::Ended(Ending::NotExecuted), Some(Deferred::Phase)),
        }
        self.push(Action::Keeps(worker), after, None);
        if let Next::Begins(id) | Next::Written(id) = next {
            self.land_later(Action::KeepsLate(worker), id, with, |after| {
                after.workers[index].at = At::Ended(Ending::Interrupted);
                after.workers[index].deferred = Some(Deferred::Phase);
            });
        }
    }

    fn has_rows(&self, ending: Ending) -> bool {
        let has = self.setting.handler == Handler::Commits || self.setting.messages;
        has && matches!(ending, Ending::Effect(_))
    }

    /// What commits with this record, which an event made of `before`.
    fn rows(&self, worker: u8, before: Option<Id>, now: u8, event: Event, id: Id) -> With {
        match self.protocol.messages(before, now, event) {
            With::Nothing if self.setting.handler == Handler::Commits && self.is_with_rows(event, id) => {
                With::Rows(worker)
            }
            messages => messages,
        }
    }

    fn is_with_rows(&self, event: Event, id: Id) -> bool {
        matches!(event, Event::Report { rows: true, .. }) && self.protocol.facts(id).with_writes
    }

    fn event(&self, worker: u8, ending: Ending, progress: Progress) -> Event {
        let base = self.world.workers[usize::from(worker)].base;
        Event::Report { base, ending, rows: self.has_rows(ending), progress }
    }

    fn report(&mut self, worker: u8, ending: Ending) {
        let mut after = self.world;
        after.workers[usize::from(worker)].at = At::Over;
        let mut progress = Progress::START;
        while self.carry_out(&mut after, worker, ending, &mut progress) {
            if progress.deferred == InQueue::Sent && progress.write.is_none() {
                self.push(Action::DefersAndCrashes(worker), after, None);
            }
        }
        self.push(Action::Reports(worker), after, None);
        if self.setting.store_faults {
            self.unanswered(worker, ending);
        }
    }

    /// Does what is said next about a report. Whether there is more to do.
    fn carry_out(&mut self, after: &mut World, worker: u8, ending: Ending, progress: &mut Progress) -> bool {
        let clock = if progress.by == By::Worker { self.world.workers[usize::from(worker)].clock } else { 0 };
        let (now, event) = (self.world.now + clock, self.event(worker, ending, *progress));
        let Next::Does(command) = self.protocol.step(after.record, now, event) else { return false };
        match command {
            Command::Writes(id) => {
                after.alarm |= self.protocol.record(id).alarms.is_some();
                after.commit(id, self.rows(worker, after.record, now, event, id));
                after.hears(worker, ending);
                progress.write = Some(Written::Applied);
            }
            Command::Marks(id) => {
                after.write(id);
                after.hears(worker, ending);
                progress.write = Some(Written::Marked);
            }
            Command::Defers => {
                // The result of a phase says more.
                if after.workers[usize::from(worker)].deferred.is_none() {
                    after.defers(worker, ending);
                }
                progress.deferred = InQueue::Sent;
            }
            Command::Alarms(id) => {
                after.write(id);
                after.alarm = true;
                progress.write = Some(Written::Beside);
            }
            Command::Escalates => {
                after.alarm = true;
                return false;
            }
            Command::Compares => {
                let answer = after.record.and_then(|id| self.protocol.facts(id).answer);
                progress.differs = Some(match ending {
                    Ending::Effect(number) => answer != Some(Kept::Effect(number)),
                    Ending::Refusal(number) => answer != Some(Kept::Refusal(number)),
                    _ => false,
                });
            }
            Command::Tells(_) => {
                // It has reached the record, unless its transaction can no longer commit.
                let worker = &mut after.workers[usize::from(worker)];
                worker.told |= self.setting.handler != Handler::Commits
                    && progress.write.is_none()
                    && matches!(ending, Ending::Effect(_));
                return false;
            }
            Command::ComesAgain => {
                after.workers[usize::from(worker)].deferred = Some(Deferred::Ended(ending));
                return false;
            }
            Command::IsDone => return false,
        }
        true
    }

    /// The store does not answer: the report is deferred. Its write was applied, was lost, or lands later.
    fn unanswered(&mut self, worker: u8, ending: Ending) {
        let index = usize::from(worker);
        let now = self.world.now + self.world.workers[index].clock;
        let event = self.event(worker, ending, Progress::START);
        let tried = self.step(now, event);
        let mut lost = self.world;
        lost.workers[index].at = At::Over;
        // It asks with the record that was to be written.
        let base = self.world.workers[index].base;
        lost.record = Some(if let Next::Does(Command::Writes(id)) = tried { id } else { base });
        let mut progress = Progress::UNANSWERED;
        while self.carry_out(&mut lost, worker, ending, &mut progress) {}
        lost.record = self.world.record;
        self.push(Action::ReportsInVain(worker), lost, None);
        if let Next::Does(Command::Writes(id)) = tried {
            let with = self.rows(worker, self.world.record, now, event, id);
            let ends = |after: &mut World| {
                let (state, lost) = (&mut after.workers[index], lost.workers[index]);
                (state.at, state.deferred) = (lost.at, lost.deferred);
                state.told |= lost.told;
            };
            self.land_later(Action::ReportsLate(worker), id, with, ends);
            self.write(Action::ReportsUnheard(worker), id, with, |after| {
                ends(after);
                after.hears(worker, ending);
            });
        }
    }

    fn deliver_phase(&mut self, worker: u8) {
        let (mut after, index) = (self.world, usize::from(worker));
        after.workers[index].deferred = None;
        let base = self.world.workers[index].base;
        match self.step(self.world.now, Event::Keep { base }) {
            Next::Begins(id) | Next::Written(id) => {
                let with = self.protocol.messages(self.world.record, self.world.now, Event::Keep { base });
                after.commit(id, with);
            }
            Next::Stopped(false) => {}
            _ => after.alarm = true,
        }
        self.push(Action::Delivers(worker), after, None);
    }

    /// A deferred report is delivered.
    fn deliver(&mut self, worker: u8, ending: Ending) {
        let mut after = self.world;
        after.workers[usize::from(worker)].deferred = None;
        let mut progress = Progress::DELIVERED;
        while self.carry_out(&mut after, worker, ending, &mut progress) {}
        self.push(Action::Delivers(worker), after, None);
    }
}

impl World {
    /// Its report waits in the queue.
    fn defers(&mut self, worker: u8, ending: Ending) {
        let worker = &mut self.workers[usize::from(worker)];
        worker.deferred = Some(Deferred::Ended(ending));
        worker.told |= matches!(ending, Ending::Effect(_));
    }

    /// Its report reaches the record.
    fn hears(&mut self, worker: u8, ending: Ending) {
        let worker = &mut self.workers[usize::from(worker)];
        let effect = matches!(ending, Ending::Effect(_));
        (worker.told, worker.heard) = (worker.told | effect, worker.heard | effect);
    }

    /// Every process dies.
    pub fn all_die(&mut self) {
        for worker in 0..MAX_WORKERS {
            if self.workers[worker].at != At::Idle {
                self.dies(worker);
            }
        }
    }

    /// A process dies. Nobody knows how far it came.
    const fn dies(&mut self, worker: usize) {
        let worker = &mut self.workers[worker];
        worker.tried |= matches!(worker.at, At::Untried);
        worker.at = At::Over;
    }
}
