//! What those do who stand outside: the provider, who is asked or reports by itself, and operators.

use super::{
    action::Action,
    facts::{Kept, State},
    protocol::{Event, Next},
    report::Found,
    steps::Steps,
    world::{Kind, Question, With, World},
};

/// What a reconciler adds to the number of an answer that it gives in its own words.
const OWN_WORDS: u8 = 8;

impl<K: Kind> Steps<'_, K> {
    /// What a reconciler finds of this worker's effect.
    fn executed_by(&self, worker: u8) -> Found {
        Found::Executed(worker + 1 + if self.setting.own_words { OWN_WORDS } else { 0 })
    }

    /// The provider is asked, and answers; or its answer is written, or lost.
    pub fn question(&mut self, clock: u8) {
        if let Some(question) = self.world.question {
            self.with(Action::Drops, |after| after.question = None);
            return self.learn(question, clock);
        }
        let (Some(seen), at) = (self.world.record, self.world.now + clock) else { return };
        if !self.protocol.is_due(seen.id, at) {
            return;
        }
        let began = self.protocol.facts(seen.id).began;
        let forgot = self.world.now > began.saturating_add(self.setting.window);
        let (lies, may_arrive) = (self.setting.provider_lies, self.world.may_arrive());
        let executed = self.world.executed().map(|worker| self.executed_by(worker));
        let mut ask = |found, lies: bool| {
            self.with(Action::Asks(found), |after| {
                after.question = Some(Question { seen, at, found });
                after.lied |= lies;
                if lies && found == Found::NotExecuted {
                    K::denies(after);
                }
            });
        };
        match executed {
            Some(found) => {
                ask(found, false);
                if forgot {
                    ask(Found::NotFound, false);
                }
                if lies {
                    K::DENIALS.iter().for_each(|found| ask(*found, true));
                }
            }
            None if may_arrive => ask(Found::NotFound, false),
            None => K::DENIALS.iter().for_each(|found| ask(*found, false)),
        }
    }

    fn learn(&mut self, Question { seen, at, found }: Question, clock: u8) {
        let Some(current) = self.world.record else { return };
        let is_current = current.revision == seen.revision;
        let event = Event::Learn { seen: seen.id, is_current, found, at, reported: false };
        let mut after = self.world;
        after.question = None;
        match self.step(self.world.now + clock, event) {
            Next::Written(id) => {
                after.write(id);
                if self.protocol.facts(id).is_undone() {
                    K::nothing_was_done(&mut after);
                }
            }
            Next::Stopped(true) => after.escalate_effects(),
            _ => {}
        }
        self.push(Action::Learns, after, None);
    }

    /// The provider reports an effect unprompted.
    pub fn hear(&mut self, worker: u8) {
        let state = *self.world.worker(worker);
        if !state.webhook {
            return;
        }
        let (mut after, now) = (self.world, self.world.now);
        after.worker_mut(worker).webhook = false;
        let is_its = state.life == self.world.life;
        let Some((id, facts)) = self.world.id().zip(self.facts()).filter(|_| is_its) else {
            after.escalate(worker);
            return self.push(Action::Hears(worker), after, None);
        };
        if facts.state == State::Completed {
            if !matches!(facts.answer, Some(Kept::Effect(_))) {
                after.escalate(worker);
            }
            return self.push(Action::Hears(worker), after, None);
        }
        let heard = after.worker_mut(worker);
        (heard.heard, heard.told) = (true, true);
        // It is queued until the lease is over, and its claim counts from now on.
        let waits = facts.state == State::InProgress && now < facts.lease_until;
        heard.webhook = waits;
        let claimed = match self.step(now, Event::Hear) {
            Next::Written(claimed) => {
                after.write(claimed);
                if !waits {
                    let mut half = after;
                    half.worker_mut(worker).webhook = true;
                    self.push(Action::HearsHalf(worker), half, None);
                }
                claimed
            }
            _ if matches!(facts.state, State::Released | State::Pending) => {
                // Nothing was done, as far as the record knows: the report contradicts it, and operators decide. What a pending record
                // knows is wrong only after a restore.
                after.escalate(worker);
                after.worker_mut(worker).heard &= facts.state == State::Released || !self.world.meddled;
                return self.push(Action::Hears(worker), after, None);
            }
            _ => id,
        };
        if !waits {
            let found = self.executed_by(worker);
            let event = Event::Learn { seen: claimed, is_current: true, found, at: now, reported: true };
            match self.protocol.step(Some(claimed), now, event) {
                Next::Written(id) => after.write(id),
                Next::Stopped(true) => after.escalate(worker),
                _ => {}
            }
        }
        self.push(Action::Hears(worker), after, None);
    }

    /// An operator holds the record, and settles or resumes it.
    pub fn operator(&mut self) {
        // Not what an operator has settled.
        if !self.world.ruled
            && let Next::Written(id) = self.step(self.world.now, Event::Hold)
        {
            self.write(Action::Holds, id, With::Nothing, |after| after.held = true);
        }
        if !self.is(&[State::Unknown, State::Escalated, State::BetweenWorkers]) {
            return;
        }
        let answer = self.world.executed().map(|worker| worker + 1);
        if answer.is_some() || !self.world.may_arrive() {
            self.settle(answer);
        }
        // One who is wrong.
        if self.facts().is_some_and(|facts| facts.phases > 0) {
            self.settle(None);
        }
        if let Next::Written(id) = self.step(self.world.now, Event::Resume) {
            self.write(Action::Resumes, id, With::Nothing, |_| {});
        }
    }

    fn settle(&mut self, answer: Option<u8>) {
        if let Next::Written(id) = self.step(self.world.now, Event::Settle(answer)) {
            self.write(Action::Settles(answer.is_some()), id, With::Nothing, |after: &mut World<K>| {
                after.rules();
                K::nothing_was_done(after);
            });
        }
    }
}
