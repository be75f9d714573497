//! All that can happen next, besides what workers do. Each action is one atomic step; what it does to the record, production code
//! decides.

use super::{
    Handler, Setting, Violation,
    facts::{Facts, Kept, Kind},
    properties,
    protocol::{ARRIVES, Event, Id, Next, Protocol, WINDOW},
    world::{Finding, Late, Question, Sent, With, World},
};

/// What can happen. The number is the worker's, or the life's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Start,
    Tick,
    Accepts(u8),
    AcceptsLate(u8),
    LosesTheMessage(u8),
    QueuesAgain(u8),
    FindsSettled(u8),
    FindsOver(u8),
    LooksAfter(u8),
    DeletesTheRequest(u8),
    Claims(u8),
    ClaimsLate(u8),
    TakesBack(u8),
    Crashes(u8),
    HasItsEffect(u8),
    SendsUnheard(u8),
    SendsAndCrashes(u8),
    IsRefused(u8),
    DoesNothing(u8),
    DoesNotBegin(u8),
    Answers(u8),
    Keeps(u8),
    KeepsLate(u8),
    Reports(u8),
    DefersAndCrashes(u8),
    ReportsUnheard(u8),
    ReportsInVain(u8),
    ReportsLate(u8),
    Delivers(u8),
    Arrives(u8),
    Hears(u8),
    HearsHalf(u8),
    Lands,
    Looks,
    Asks(Finding),
    Learns,
    Drops,
    NotResumed,
    Settles(bool),
    Holds,
    Resumes,
    Prunes,
    Saves,
    Restores,
    DeletesTheRecord,
    /// What a deliverer of messages does.
    Starts(usize),
    HandsOver(usize),
    HandsOverUnheard(usize),
    Removes(usize),
    Stops(usize),
    LosesTheWake,
    Wakes,
}

/// What follows a state: the action, the state after it, and the property that it violates.
pub type Successor = (Action, World, Option<Violation>);

/// The steps that are possible in this state.
pub struct Steps<'a> {
    pub setting: &'a Setting,
    pub protocol: &'a mut Protocol,
    pub world: World,
    pub next: &'a mut Vec<Successor>,
}

/// Adds all that can happen next.
pub fn successors(setting: &Setting, protocol: &mut Protocol, world: &World, next: &mut Vec<Successor>) {
    let mut steps = Steps { setting, protocol, world: *world, next };
    for worker in 0..setting.workers {
        steps.worker(worker);
    }
    steps.work();
    steps.others();
    steps.land();
    steps.prune();
    steps.meddle();
    if world.now < setting.horizon {
        let mut after = *world;
        after.pass(ARRIVES);
        steps.push(Action::Tick, after, None);
    }
}

impl Steps<'_> {
    /// All but workers.
    pub fn others(&mut self) {
        for clock in 0..=self.setting.skew {
            self.accept(clock);
            self.look(clock);
            self.question(clock);
        }
        self.queue();
        self.operator();
        self.outbox();
    }

    pub fn step(&mut self, now: u8, event: Event) -> Next {
        self.protocol.step(self.world.record, now, event)
    }

    pub fn facts(&self) -> Option<Facts> {
        self.world.record.map(|id| *self.protocol.facts(id))
    }

    pub fn push(&mut self, action: Action, after: World, violation: Option<Violation>) {
        let after = after.canonical();
        let violation =
            violation.or_else(|| properties::check(self.setting, self.protocol, &self.world, &after));
        if after != self.world || violation.is_some() {
            self.next.push((action, after, violation));
        }
    }

    /// The same, for a write that may also get no answer, and be applied later.
    pub fn write(&mut self, action: Action, id: Id, with: With, change: impl FnOnce(&mut World)) {
        let mut after = self.world;
        after.commit(id, with);
        change(&mut after);
        self.push(action, after, None);
    }

    pub fn land_later(&mut self, action: Action, id: Id, with: With, change: impl FnOnce(&mut World)) {
        if !self.setting.store_faults || self.world.late.is_some() {
            return;
        }
        let mut after = self.world;
        after.late = Some(Late { id, with });
        change(&mut after);
        self.push(action, after, None);
    }

    /// A client sends its request: for the first time, or again.
    fn accept(&mut self, clock: u8) {
        let (life, now) = (self.world.life + 1, self.world.now + clock);
        for event in [Event::Accept(life), Event::Now] {
            let Next::Begins(id) = self.step(now, event) else { continue };
            let is_free = self.facts().is_none_or(|facts| {
                facts.state == Kind::Completed && facts.completed_at + self.setting.retention < now
            });
            let violation = (!is_free).then_some(Violation::ClientTookOver);
            if violation.is_some() {
                self.push(Action::Accepts(life), self.world, violation);
            } else if event != Event::Now && life <= self.setting.lives {
                self.write(Action::Accepts(life), id, With::Request, |_| {});
                self.land_later(Action::AcceptsLate(life), id, With::Request, |_| {});
            }
        }
    }

    /// The queue of work, the sweep, and those that delete requests.
    fn queue(&mut self) {
        for life in 1..=self.world.life {
            let (bit, world) = (1 << life, self.world);
            let needed = self.protocol.needs_request(world.record, life);
            if self.setting.losses && world.queued & bit != 0 {
                let mut after = world;
                after.queued &= !bit;
                self.push(Action::LosesTheMessage(life), after, None);
            }
            if world.requests & bit != 0 && !needed {
                let mut after = world;
                after.deleting |= bit;
                self.push(Action::LooksAfter(life), after, None);
            }
            if world.requests & bit != 0 && needed && self.protocol.waits_for_a_worker(world.record) {
                let mut after = world;
                after.queued |= bit;
                self.push(Action::QueuesAgain(life), after, None);
            }
            if world.deleting & bit != 0 {
                let mut after = world;
                (after.deleting, after.requests) = (world.deleting & !bit, world.requests & !bit);
                self.push(Action::DeletesTheRequest(life), after, None);
            }
        }
    }

    fn look(&mut self, clock: u8) {
        if let Next::Written(id) = self.step(self.world.now + clock, Event::Look) {
            self.write(Action::Looks, id, With::Nothing, |_| {});
        }
    }

    fn question(&mut self, clock: u8) {
        if self.setting.handler == Handler::Resumes {
            return self.ask_of_phases(clock);
        }
        if let Some(question) = self.world.question {
            let mut after = self.world;
            after.question = None;
            self.push(Action::Drops, after, None);
            return self.learn(question, clock);
        }
        let (Some(seen), at) = (self.world.record, self.world.now + clock) else { return };
        if !self.protocol.is_due(seen, at) {
            return;
        }
        let forgot = self.world.now > self.protocol.facts(seen).began.saturating_add(WINDOW);
        let (lies, may_arrive) = (self.setting.provider_lies, self.world.may_arrive());
        let executed = self.world.executed();
        let mut ask = |found, lies| {
            let mut after = self.world;
            after.question = Some(Question { seen, is_current: true, at, found });
            after.lied |= lies;
            after.denied |= lies && found == Finding::NotExecuted;
            self.push(Action::Asks(found), after, None);
        };
        match executed {
            Some(worker) => {
                ask(Finding::Executed(worker + 1), false);
                if forgot {
                    ask(Finding::NotFound, false);
                }
                if lies {
                    ask(Finding::NotFound, true);
                    ask(Finding::NotExecuted, true);
                }
            }
            None => {
                ask(Finding::NotFound, false);
                if !may_arrive {
                    ask(Finding::NotExecuted, false);
                }
            }
        }
    }

    fn learn(&mut self, Question { seen, is_current, at, found }: Question, clock: u8) {
        let event = Event::Learn { seen, is_current, found, at, reported: false };
        let mut after = self.world;
        after.question = None;
        match self.step(self.world.now + clock, event) {
            Next::Written(id) => after.write(id),
            Next::Stopped(contradicts) => after.alarm |= contradicts,
            _ => {}
        }
        self.push(Action::Learns, after, None);
    }

    /// Asked about a phase. The answer is written at once.
    pub fn ask_of_phases(&mut self, clock: u8) {
        let (Some(seen), now) = (self.world.record, self.world.now + clock) else { return };
        if !self.protocol.is_due(seen, now) {
            return;
        }
        if matches!(self.protocol.facts(seen).state, Kind::BetweenWorkers | Kind::Escalated) {
            if let Next::Written(id) = self.step(now, Event::NotResumed) {
                self.write(Action::NotResumed, id, With::Nothing, |_| {});
            }
            return;
        }
        let found = if self.world.effects(true) > 0 { Finding::Phase } else { Finding::NotFound };
        let event = Event::Learn { seen, is_current: true, found, at: now, reported: false };
        if let Next::Written(id) = self.step(now, event) {
            self.write(Action::Asks(found), id, With::Nothing, |_| {});
        }
    }

    fn operator(&mut self) {
        // Not what an operator has settled.
        if self.setting.operator
            && !self.world.ruled
            && let Next::Written(id) = self.step(self.world.now, Event::Hold)
        {
            self.write(Action::Holds, id, With::Nothing, |after| after.held = true);
        }
        let open = [Kind::Unknown, Kind::Escalated, Kind::BetweenWorkers];
        if !self.setting.operator || !self.facts().is_some_and(|facts| open.contains(&facts.state)) {
            return;
        }
        let answer = self.world.executed().map(|worker| worker + 1);
        if (answer.is_some() || !self.world.may_arrive())
            && let Next::Written(id) = self.step(self.world.now, Event::Settle(answer))
        {
            self.write(Action::Settles(answer.is_some()), id, With::Nothing, World::rules);
        }
        // One who is wrong.
        if self.facts().is_some_and(|facts| facts.phases > 0)
            && let Next::Written(id) = self.step(self.world.now, Event::Settle(None))
        {
            self.write(Action::Settles(false), id, With::Nothing, World::rules);
        }
        if let Next::Written(id) = self.step(self.world.now, Event::Resume) {
            self.write(Action::Resumes, id, With::Nothing, |_| {});
        }
    }

    fn land(&mut self) {
        if let Some(Late { id, with }) = self.world.late {
            self.write(Action::Lands, id, with, |_| {});
        }
    }

    fn prune(&mut self) {
        let expires_at = self.facts().and_then(|facts| facts.expires_at);
        if expires_at.is_some_and(|expires_at| expires_at < self.world.now) {
            let mut after = self.world;
            (after.record, after.late, after.question) = (None, None, None);
            self.push(Action::Prunes, after, None);
        }
    }

    fn meddle(&mut self) {
        let world = self.world;
        if !self.setting.meddles || world.meddled {
            return;
        }
        let mut after = world;
        match world.saved {
            None => {
                after.saved = Some((world.record, world.life, world.requests));
                self.push(Action::Saves, after, None);
            }
            Some((record, life, requests)) if life == world.life => {
                after.meddle(record);
                after.requests |= requests;
                self.push(Action::Restores, after, None);
            }
            Some(_) => {}
        }
        if world.record.is_some() {
            let mut after = world;
            after.meddle(None);
            self.push(Action::DeletesTheRecord, after, None);
        }
    }

    /// The provider reports an effect unprompted.
    pub fn hear(&mut self, worker: u8) {
        let index = usize::from(worker);
        if !self.world.workers[index].webhook {
            return;
        }
        let (mut after, now) = (self.world, self.world.now);
        after.workers[index].webhook = false;
        let is_its = self.world.workers[index].life == self.world.life;
        let Some((id, facts)) = self.world.record.zip(self.facts()).filter(|_| is_its) else {
            after.alarm = true;
            return self.push(Action::Hears(worker), after, None);
        };
        if facts.state == Kind::Completed {
            after.alarm |= !matches!(facts.answer, Some(Kept::Effect(_)));
            return self.push(Action::Hears(worker), after, None);
        }
        (after.workers[index].heard, after.workers[index].told) = (true, true);
        let claimed = match self.step(now, Event::Hear) {
            Next::Written(claimed) => {
                after.write(claimed);
                let mut half = after;
                half.workers[index].webhook = true;
                self.push(Action::HearsHalf(worker), half, None);
                claimed
            }
            _ if facts.state == Kind::Pending => {
                // Nothing was done, as far as the record knows: the report contradicts it, and operators decide. Its own knowledge is
                // wrong only after a restore.
                after.alarm = true;
                after.workers[index].heard &= !self.world.meddled;
                return self.push(Action::Hears(worker), after, None);
            }
            _ => id,
        };
        if facts.state == Kind::InProgress && now < facts.lease_until {
            // It is queued until the lease is over.
            after.workers[index].webhook = true;
        } else {
            let found = Finding::Executed(worker + 1);
            let event = Event::Learn { seen: claimed, is_current: true, found, at: now, reported: true };
            match self.protocol.step(Some(claimed), now, event) {
                Next::Written(id) => after.write(id),
                Next::Stopped(contradicts) => after.alarm |= contradicts,
                _ => {}
            }
        }
        self.push(Action::Hears(worker), after, None);
    }

    /// A worker's request is executed.
    pub fn arrive(&mut self, worker: u8) {
        if let Sent::OnItsWay(_) = self.world.workers[usize::from(worker)].sent {
            let mut after = self.world;
            after.workers[usize::from(worker)].sent = Sent::Executed;
            after.workers[usize::from(worker)].webhook = self.setting.webhook;
            self.push(Action::Arrives(worker), after, None);
        }
    }
}
