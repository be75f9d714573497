//! All that can happen next to an operation that resumes.

use protocol::record::{Standing, State};

use super::{
    handler::Does,
    world::{CALLS, Phases, World},
};
use crate::kernel::{
    action::Action,
    ending::By,
    protocol::{Event, Next},
    records::{Id, OWN_LEASE},
    report::Report,
    setting::Change,
    steps::Steps,
    violation::Violation,
    world::{At, Letter, Sent, With},
};

impl Steps<'_, Phases> {
    pub fn all(&mut self) {
        for worker in 0..self.setting.workers {
            self.worker(worker);
        }
        if self.setting.meddles && !self.world.meddled {
            self.restore();
        }
        self.tick();
        self.stand();
        self.land();
        for clock in 0..=self.setting.skew {
            self.look(clock);
        }
        for call in 0..CALLS {
            self.report_of_provider(call);
        }
        if let Some((found, id)) = self.reconcile() {
            self.write(Action::Asks(found), id, With::Nothing, |_| {});
        }
        if self.setting.operator
            && self
                .world
                .id()
                .is_some_and(|id| self.protocol.record(id).is_escalated() && !self.may_follow(id))
            && !self.may_be_sent()
            && let Some(id) = self.operate()
        {
            self.write(Action::Operates, id, With::Nothing, |_| {});
        }
    }

    fn worker(&mut self, worker: u8) {
        let (setting, state) = (self.setting, *self.world.worker(worker));
        if let Sent::OnItsWay { call, .. } = state.sent {
            self.with(Action::Arrives(worker), |after| {
                after.worker_mut(worker).sent = Sent::Nothing;
                after.calls(setting, call, state.own.is_new);
            });
        }
        if let Some(letter) = state.deferred {
            self.deliver_letter(worker, letter);
        }
        match state.at {
            At::Idle => return self.begin(worker),
            At::Reserved(resumes) => self.look_again(worker, resumes, At::Ended(Report::NotStarted)),
            At::Running(place) => self.phase(worker, place),
            At::Made(place, result) => self.keep(worker, place, result),
            At::Ended(report) => self.report(worker, report),
            _ => return,
        }
        self.with(Action::Crashes(worker), |after| after.over(worker));
    }

    fn begin(&mut self, worker: u8) {
        // Workers are alike: they begin in their order.
        if worker > 0 && self.world.worker(worker - 1).at == At::Idle {
            return;
        }
        let versions: &[bool] = if self.setting.change == Change::None { &[false] } else { &[false, true] };
        for clock in 0..=self.setting.skew {
            for is_new in versions.iter().copied() {
                for standing in self.world.standings() {
                    self.begin_so(worker, clock, is_new, *standing);
                }
            }
        }
    }

    /// A worker of this version begins, which knows that the tenant stands so.
    fn begin_so(&mut self, worker: u8, clock: u8, is_new: bool, standing: Standing) {
        let now = self.world.now + clock;
        let reserves = |standing| Event::Reserve { worker, is_new, standing };
        let id = match self.step(now, reserves(standing)) {
            Next::Begins(id) => id,
            Next::OverBound => return self.is_over_bound(now, worker),
            _ => return,
        };
        let mut after = self.world;
        after.commit(id, With::Nothing);
        let until = after.now + OWN_LEASE;
        let state = after.worker_mut(worker);
        (state.at, state.base, state.clock) = (At::Running(0), id, clock);
        (state.own.is_new, state.own.until) = (is_new, until);
        let action = if is_new { Action::BeginsAnew(worker) } else { Action::Begins(worker) };
        self.push(action, after, self.begins_stopped(standing));
        if self.setting.bounds {
            let resumes = matches!(self.step(now, reserves(Standing::WorkStopped)), Next::Begins(_));
            after.worker_mut(worker).at = At::Reserved(resumes);
            self.push(Action::Reserves(worker), after, None);
        }
    }

    fn phase(&mut self, worker: u8, place: u8) {
        let state = *self.world.worker(worker);
        let does = self.does(state.base, place, self.now_of(worker), state.own.is_new);
        // What another version does first is not modelled.
        let inserted = self.setting.change == Change::Inserted && state.own.is_new;
        let ended = At::Ended(Report::NotExecuted);
        match does {
            Does::GoesOn => self.moves(Action::GoesOn(worker), worker, At::Running(place + 1)),
            Does::Takes(result) => self.moves(Action::GoesOn(worker), worker, At::Made(place, result)),
            Does::Ends(report) => self.moves(Action::GoesOn(worker), worker, At::Ended(report)),
            // T39: a frozen worker.
            _ if self.world.now > state.own.until => self.moves(Action::GoesOn(worker), worker, ended),
            Does::Calls(_) | Does::Asks(_) if inserted => self.moves(Action::GoesOn(worker), worker, ended),
            Does::Commits => self.commit(worker, place),
            Does::Calls(call) => self.make(worker, place, call),
            Does::Asks(_) if !self.setting.asks => {
                self.moves(Action::EndsUnknown(worker), worker, At::Ended(Report::PerhapsExecuted));
            }
            Does::Asks(call) => {
                self.moves(Action::AsksInVain(worker), worker, At::Ended(Report::Interrupted));
                let effects = self.world.own.effects(call);
                if effects > 0 {
                    self.moves(Action::AsksItself(worker), worker, At::Made(place, effects));
                } else if !self.is_on_its_way(call) {
                    // Otherwise, the provider cannot say yet that it was not made, and will not be.
                    self.make(worker, place, call);
                }
            }
        }
    }

    /// Whether the call that follows can still arrive. A record that is held may have forgotten any of them.
    fn may_follow(&self, id: Id) -> bool {
        let may_follow = |call| self.protocol.record(id).is_held() || self.open_call(id) == Some(call);
        (0..CALLS).any(|call| may_follow(call) && self.is_on_its_way(call))
    }

    /// Whether a worker may still make a call: by its own clock, its lease is not over.
    fn may_be_sent(&self) -> bool {
        let now = self.world.now;
        self.world
            .workers
            .iter()
            .any(|worker| matches!(worker.at, At::Reserved(_) | At::Running(_)) && now <= worker.own.until)
    }

    fn is_on_its_way(&self, call: u8) -> bool {
        let is_its = |sent| matches!(sent, Sent::OnItsWay { call: sent, .. } if sent == call);
        self.world.workers.iter().any(|worker| is_its(worker.sent))
    }

    fn make(&mut self, worker: u8, place: u8, call: u8) {
        let (setting, since) = (self.setting, self.world.now);
        let is_new = self.world.worker(worker).own.is_new;
        self.with(Action::HasItsEffect(worker), |after| {
            let effects = after.calls(setting, call, is_new);
            after.worker_mut(worker).at = At::Made(place, effects);
        });
        self.moves(Action::IsRefused(worker), worker, At::Ended(Report::NotExecuted));
        self.with(Action::SendsUnheard(worker), |after| {
            let state = after.worker_mut(worker);
            (state.sent, state.at) = (Sent::OnItsWay { call, since }, At::Ended(Report::Interrupted));
        });
        self.with(Action::SendsAndCrashes(worker), |after| {
            after.worker_mut(worker).sent = Sent::OnItsWay { call, since };
            after.over(worker);
        });
    }

    fn keep(&mut self, worker: u8, place: u8, result: u8) {
        let (state, record) = (*self.world.worker(worker), self.world.id());
        let now = (self.now_of(worker), By::Worker);
        let kept = self.kept((state.base, state.own.is_new), (place, result), now);
        let letter = Some(Letter::Phase(place, result));
        let mut after = self.world;
        let own = after.worker_mut(worker);
        own.at = At::Ended(Report::NotExecuted);
        match kept {
            Next::Begins(id) => (own.at, own.base) = (At::Running(place + 1), id),
            Next::Known(true) => {
                (own.at, own.base) = (At::Running(place + 1), record.unwrap_or(state.base));
            }
            Next::Written(_) | Next::Alarmed(_) | Next::Known(false) => {}
            _ => own.deferred = letter,
        }
        if let Next::Begins(id) | Next::Written(id) | Next::Alarmed(id) = kept {
            self.alarms(&mut after, id);
            after.write(id);
        }
        self.push(Action::Keeps(worker), after, None);
        if !self.setting.store_faults {
            return;
        }
        let in_vain = |after: &mut World| {
            let own = after.worker_mut(worker);
            (own.at, own.deferred) = (At::Ended(Report::Interrupted), letter);
        };
        self.with(Action::KeepsInVain(worker), in_vain);
        if let Next::Begins(id) | Next::Written(id) | Next::Alarmed(id) = kept {
            self.with(Action::KeepsLate(worker), |after| {
                in_vain(after);
                after.lands_later(id, With::Nothing);
            });
        }
    }

    /// A commit counts only if its worker still runs the record.
    fn commit(&mut self, worker: u8, place: u8) {
        let state = *self.world.worker(worker);
        let ended = At::Ended(Report::NotExecuted);
        // The result is 1 if the stock is taken, and 0 if it is refused.
        for (result, action, with) in [
            (1, Action::Commits(worker), With::Rows(worker)),
            (0, Action::CommitsRefused(worker), With::Nothing),
        ] {
            let now = (self.now_of(worker), By::Worker);
            let kept = self.kept((state.base, state.own.is_new), (place, result), now);
            let Next::Begins(id) = kept else {
                self.moves(action, worker, ended);
                continue;
            };
            self.write(action, id, with, |after| {
                let own = after.worker_mut(worker);
                (own.at, own.base) = (At::Running(place + 1), id);
            });
            if self.setting.store_faults {
                self.moves(Action::CommitsInVain(worker), worker, ended);
                self.with(Action::CommitsLate(worker), |after| {
                    after.worker_mut(worker).at = ended;
                    after.lands_later(id, with);
                });
            }
        }
    }

    fn report(&mut self, worker: u8, report: Report) {
        let state = *self.world.worker(worker);
        let written = self.reported(state.base, report, self.now_of(worker));
        let mut after = self.world;
        written.into_iter().for_each(|id| after.write(id));
        after.over(worker);
        self.push(Action::Reports(worker), after, self.over_result(state.base, report, written));
        // Not while the result of a phase waits in the queue: it says more.
        if self.setting.store_faults && state.deferred.is_none() {
            self.with(Action::ReportsInVain(worker), |after| {
                after.worker_mut(worker).deferred = Some(Letter::Report(report));
                after.over(worker);
            });
        }
    }

    /// Whether the record had the result of the call that made it unknown, or that was left open.
    fn over_result(&self, base: Id, report: Report, written: Option<Id>) -> Option<Violation> {
        let kept = |id: Id| self.protocol.facts(id).kept;
        let is_unknown = |id: Id| matches!(self.protocol.record(id).state, State::Unknown { .. });
        let (before, after) = (self.world.id()?, written?);
        let begun = |id: Id| self.protocol.record(id).phases().is_some_and(|phases| phases.begun.is_some());
        // It ended in the call that is kept since.
        if report == Report::Interrupted && kept(before) > kept(base) && !begun(before) && begun(after) {
            return Some(Violation::OpenedByNobody);
        }
        let is_over = report == Report::PerhapsExecuted && kept(before) > kept(base);
        (is_over && !is_unknown(before) && is_unknown(after)).then_some(Violation::UnknownOverResult)
    }

    /// What the record makes of a deferred report, and whether it contradicts it.
    pub fn delivered(&mut self, worker: u8, letter: Letter) -> (Option<Id>, bool) {
        let (state, now) = (*self.world.worker(worker), self.world.now);
        match letter {
            Letter::Phase(place, result) => {
                match self.kept((state.base, state.own.is_new), (place, result), (now, By::Message)) {
                    Next::Begins(id) | Next::Written(id) | Next::Alarmed(id) => (Some(id), false),
                    Next::Known(_) => (None, false),
                    _ => (None, true),
                }
            }
            Letter::Report(report) | Letter::Again(report) => (self.reported(state.base, report, now), false),
        }
    }

    fn deliver_letter(&mut self, worker: u8, letter: Letter) {
        let (written, contradicts) = self.delivered(worker, letter);
        let violation = match letter {
            Letter::Report(report) => self.over_result(self.world.worker(worker).base, report, written),
            _ => None,
        };
        let mut after = self.world;
        if let Some(id) = written {
            self.alarms(&mut after, id);
            after.write(id);
        }
        if contradicts {
            after.escalate(worker);
        }
        after.worker_mut(worker).deferred = None;
        if after.worker(worker).at == At::Over {
            after.over(worker);
        }
        self.push(Action::Delivers(worker), after, violation);
    }

    /// The provider reports a call unprompted.
    fn report_of_provider(&mut self, call: u8) {
        if self.world.own.calls[usize::from(call)].webhook {
            let noted = self.noted(call);
            self.with(Action::Hears(call), |after| after.hears_of(call, noted));
        }
    }

    /// To the point in time of the backup, and then hold what is open, before anything starts again. No worker lives on; what is in a
    /// queue, or on its way to the provider, stays.
    fn restore(&mut self) {
        let now = self.world.now;
        let Some((id, rows)) = self.world.own.backup else {
            if let Some(id) = self.world.id() {
                self.with(Action::Saves, |after| after.own.backup = Some((id, after.own.rows)));
            }
            return;
        };
        let completed = matches!(self.protocol.record(id).state, State::Completed { .. });
        // A lease that is not over is waited for.
        let held = match self.protocol.step(Some(id), now, Event::Hold) {
            Next::Written(held) => held,
            _ if completed => id,
            _ => return,
        };
        self.with(Action::Restores, |after| {
            for worker in after.numbers() {
                if after.worker(worker).at != At::Idle {
                    after.over(worker);
                }
            }
            after.write(held);
            (after.own.rows, after.own.backup, after.meddled) = (rows, None, true);
        });
    }
}
