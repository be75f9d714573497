//! The steps that are possible in a state, and what they are made of; what the store and handlers do.

use protocol::record::{Alarm, Standing};

use super::{
    action::Action,
    facts::{Facts, State},
    protocol::{Event, Next, Protocol},
    records::{Id, LEASE, OWN_LEASE, STANDINGS},
    report::Report,
    setting::{Handler, Setting},
    violation::Violation,
    world::{At, Kind, Late, Sent, With, World},
};

/// What follows a state: the action, the state after it, and the property that it violates.
pub type Successor<K> = (Action, World<K>, Option<Violation>);

/// The steps that are possible in this state.
pub struct Steps<'a, K: Kind> {
    pub setting: &'a Setting,
    pub protocol: &'a mut Protocol,
    pub world: World<K>,
    pub next: &'a mut Vec<Successor<K>>,
}

impl<K: Kind> Steps<'_, K> {
    pub fn facts(&self) -> Option<Facts> {
        self.world.id().map(|id| *self.protocol.facts(id))
    }

    pub fn step(&mut self, now: u8, event: Event) -> Next {
        self.protocol.step(self.world.id(), now, event)
    }

    /// The time of a worker, by its clock.
    pub fn now_of(&self, worker: u8) -> u8 {
        self.world.now + self.world.worker(worker).clock
    }

    pub fn push(&mut self, action: Action, after: World<K>, violation: Option<Violation>) {
        let after = after.canonical();
        let worlds = (&self.world, &after);
        let violation = K::judge(self.setting, self.protocol, action, worlds, violation);
        let violation = violation.or_else(|| self.lost_alarm(action, &after));
        if after != self.world || violation.is_some() {
            self.next.push((action, after, violation));
        }
    }

    /// An alarm stands until an operator clears it, unless the table is restored.
    fn lost_alarm(&self, action: Action, after: &World<K>) -> Option<Violation> {
        let alarms = |world: &World<K>| world.id().map_or(&[][..], |id| &self.protocol.record(id).alarms);
        let stands = |alarm: &Alarm| alarms(after).iter().any(|one| one.is_same(alarm));
        let is_lost = !alarms(&self.world).iter().all(stands);
        let meddles = matches!(action, Action::Deletes | Action::Restores);
        (is_lost && !meddles).then_some(Violation::LostAlarm)
    }

    pub fn with(&mut self, action: Action, change: impl FnOnce(&mut World<K>)) {
        let mut after = self.world;
        change(&mut after);
        self.push(action, after, None);
    }

    /// The record becomes this one.
    pub fn write(&mut self, action: Action, id: Id, with: With, change: impl FnOnce(&mut World<K>)) {
        self.with(action, |after| {
            after.commit(id, with);
            change(after);
        });
    }

    /// A write gets no answer, and is applied later. Only one at a time.
    pub fn land_later(&mut self, action: Action, id: Id, with: With, change: impl FnOnce(&mut World<K>)) {
        let mut after = self.world;
        change(&mut after);
        self.late(action, after, (id, with), None);
    }

    pub fn late(
        &mut self,
        action: Action,
        mut after: World<K>,
        (id, with): (Id, With),
        violation: Option<Violation>,
    ) {
        if self.setting.store_faults && self.world.late.is_none() {
            after.lands_later(id, with);
            self.push(action, after, violation);
        }
    }

    pub fn tick(&mut self) {
        if self.world.now < self.setting.horizon {
            self.with(Action::Tick, World::pass);
        }
    }

    /// What was written late is applied, if its revision is current.
    pub fn land(&mut self) {
        let revision = self.world.record.map(|version| version.revision);
        if let Some(Late { id, with, .. }) = self.world.late.filter(|late| late.over == revision) {
            let mut alarmed = self.world;
            self.alarms(&mut alarmed, id);
            self.with(Action::Lands, |after| {
                (after.late, after.alarms) = (None, alarmed.alarms);
                after.commit(id, with);
            });
        }
    }

    /// The stale function looks.
    pub fn look(&mut self, clock: u8) {
        if let Next::Written(id) = self.step(self.world.now + clock, Event::Look) {
            self.write(Action::Looks, id, With::Nothing, |_| {});
        }
    }

    /// Time to live deletes the record.
    pub fn prune(&mut self) {
        let now = self.world.now;
        let is_over = |facts: &Facts| facts.expires_at.is_some_and(|expires_at| expires_at < now);
        if let Some(facts) = self.facts().filter(is_over) {
            self.with(Action::Prunes, |after| {
                after.record = None;
                K::pruned(after, &facts);
            });
        }
    }

    /// The tenant comes over its bound, is stopped, or is within its bounds for good.
    pub fn stand(&mut self) {
        if self.setting.bounds && usize::from(self.world.standing) + 1 < STANDINGS.len() {
            self.with(Action::StandsOtherwise, |after| after.standing += 1);
        }
    }

    /// The property that a beginning violates, if its worker knows that the tenant stands so. What is interrupted between two phases resumes.
    pub fn begins_stopped(&self, standing: Standing) -> Option<Violation> {
        let is_interrupted = self.setting.handler == Handler::Resumes
            && self.is(&[State::BetweenWorkers, State::InProgress, State::Escalated]);
        (standing == Standing::WorkStopped && !is_interrupted).then_some(Violation::BeganStopped)
    }

    /// A client hears that its tenant is over a bound. No retry of an operation that has a record may hear that.
    pub fn is_over_bound(&mut self, now: u8, worker: u8) {
        let is_over = |facts: &Facts| facts.expires_at.is_some_and(|at| at < now);
        if self.facts().is_some_and(|facts| !facts.not_begun && !is_over(&facts)) {
            self.push(Action::IsOverBound(worker), self.world, Some(Violation::RetryOverBound));
        }
    }

    /// Its record is reserved. It looks once more how its tenant stands: then it begins, or takes that back.
    pub fn look_again(&mut self, worker: u8, resumes: bool, instead: At) {
        let standing = self.world.standing();
        if standing == Standing::WorkStopped && !resumes {
            return self.moves(Action::LooksAgain(worker), worker, instead);
        }
        let mut after = self.world;
        after.worker_mut(worker).at = At::Running(0);
        K::begins(&mut after, worker);
        self.push(Action::LooksAgain(worker), after, self.begins_stopped(standing));
    }

    /// Whether a worker may still act, by its own lease, which has no grace.
    pub fn is_alive(&self, worker: u8) -> bool {
        let lease_until = self.protocol.facts(self.world.worker(worker).base).lease_until;
        self.now_of(worker) < lease_until.saturating_sub(LEASE - OWN_LEASE)
    }

    pub fn moves(&mut self, action: Action, worker: u8, at: At) {
        self.with(action, |after| after.worker_mut(worker).at = at);
    }

    /// A handler without phases runs.
    pub fn run(&mut self, worker: u8) {
        let number = worker + 1;
        let (effect, perhaps) = (At::Ended(Report::Effect(number)), At::Ended(Report::PerhapsExecuted));
        if self.setting.handler == Handler::Commits {
            self.moves(Action::HasItsEffect(worker), worker, effect);
        } else if self.is_alive(worker) {
            self.call(worker, effect, perhaps);
        }
        self.moves(Action::IsRefused(worker), worker, At::Ended(Report::Refusal(number)));
        self.moves(Action::DoesNothing(worker), worker, At::Ended(Report::NotExecuted));
        self.moves(Action::DoesNotBegin(worker), worker, At::Ended(Report::NotBegun));
    }

    /// It sends its request to the provider: with an answer, without one, or as the last that it does.
    pub fn call(&mut self, worker: u8, effect: At, perhaps: At) {
        let (setting, since) = (self.setting, self.world.now);
        self.with(Action::HasItsEffect(worker), |after| {
            after.worker_mut(worker).at = effect;
            after.executes(setting, worker);
        });
        let mut sends = |action, at| {
            self.with(action, |after| {
                let state = after.worker_mut(worker);
                (state.at, state.sent) = (at, Sent::OnItsWay { call: 0, since });
            });
        };
        sends(Action::SendsUnheard(worker), perhaps);
        sends(Action::SendsAndCrashes(worker), At::Over);
    }

    /// A request that was on its way is executed.
    pub fn arrive(&mut self, worker: u8) {
        if let Sent::OnItsWay { .. } = self.world.worker(worker).sent {
            let setting = self.setting;
            self.with(Action::Arrives(worker), |after| after.executes(setting, worker));
        }
    }

    /// Whether the record is in this state.
    pub fn is(&self, states: &[State]) -> bool {
        self.facts().is_some_and(|facts| states.contains(&facts.state))
    }
}
