//! All that can happen next. Each action is one atomic step; what it does to the record, production code decides.

use protocol::record::{Record, State};

use super::{
    Change, Setting, Violation,
    properties::check,
    protocol::{ARRIVES, Id, Kept, OWN_LEASE, Protocol, Todo},
    world::{At, Backup, CALLS, Deferred, Ending, Late, MAX_WORKERS, World},
};

/// What can happen. The number is the worker's, or the call's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,
    Begins(usize, bool),
    Crashes(usize),
    GoesOn(usize),
    Calls(usize),
    IsRefused(usize),
    SendsAndCrashes(usize),
    SendsUnheard(usize),
    AsksInVain(usize),
    Asks(usize),
    EndsUnknown(usize),
    Arrives(usize),
    Keeps(usize),
    KeepsInVain(usize),
    KeepsLate(usize),
    Commits(usize),
    CommitsRefused(usize),
    CommitsInVain(usize),
    CommitsLate(usize),
    Reports(usize),
    ReportsInVain(usize),
    Delivers(usize),
    Lands,
    Expires,
    Hears(usize),
    Reconciles,
    Operates,
    BacksUp,
    Restores,
}

/// What follows a state: the action, the state after it, and the property that it violates.
pub type Successor = (Action, World, Option<Violation>);

struct Steps<'a> {
    setting: &'a Setting,
    protocol: &'a mut Protocol,
    before: World,
    next: &'a mut Vec<Successor>,
}

/// Adds all that can happen next.
pub fn successors(setting: &Setting, protocol: &mut Protocol, world: &World, next: &mut Vec<Successor>) {
    let mut steps = Steps { setting, protocol, before: *world, next };
    for worker in 0..usize::from(setting.workers) {
        steps.worker(worker);
    }
    steps.others();
}

impl Steps<'_> {
    fn with(&mut self, action: Action, change: impl FnOnce(&mut World)) {
        self.judge(action, None, change);
    }

    /// The same, if it violates this property by itself.
    fn judge(&mut self, action: Action, violation: Option<Violation>, change: impl FnOnce(&mut World)) {
        let mut after = self.before;
        change(&mut after);
        let violation = violation.or_else(|| check(self.protocol, &self.before, &after));
        self.next.push((action, after, violation));
    }

    fn worker(&mut self, worker: usize) {
        let state = self.before.workers[worker];
        let now = self.before.now + state.clock;
        if let Some((call, sent)) = state.sent
            && self.before.now <= sent + ARRIVES
        {
            let (keys_live, reports) = (self.setting.keys_live, self.setting.webhook);
            let renamed = self.setting.change.renames(state.is_new, call);
            self.with(Action::Arrives(worker), |after| {
                after.workers[worker].sent = None;
                after.execute(call, renamed, keys_live, reports);
            });
        }
        if let Some(deferred) = state.deferred {
            self.deliver(worker, deferred);
        }
        match state.at {
            At::Idle => return self.begin(worker),
            At::Phase(place) => self.phase(worker, place, now),
            At::Result(place, result) => self.keep(worker, place, result, now),
            At::Ended(ending) => self.report(worker, ending, now),
            At::Over => return,
        }
        self.with(Action::Crashes(worker), |after| after.over(worker));
    }

    fn begin(&mut self, worker: usize) {
        // Workers are alike: they begin in their order.
        if worker > 0 && self.before.workers[worker - 1].at == At::Idle {
            return;
        }
        for clock in 0..=self.setting.skew {
            let before = self.before;
            let number = u8::try_from(worker).unwrap_or(u8::MAX);
            let versions: &[bool] =
                if self.setting.change == Change::None { &[false] } else { &[false, true] };
            for is_new in versions {
                let by = (number, *is_new);
                let Some(id) = self.protocol.begins(&before, by, before.now + clock) else { continue };
                self.with(Action::Begins(worker, *is_new), |after| {
                    after.write(id);
                    let state = &mut after.workers[worker];
                    (state.at, state.base, state.clock) = (At::Phase(0), id, clock);
                    (state.is_new, state.until) = (*is_new, after.now + OWN_LEASE);
                });
            }
        }
    }

    fn phase(&mut self, worker: usize, place: u8, now: u8) {
        let state = self.before.workers[worker];
        let inserted = self.setting.change == Change::Inserted && state.is_new;
        let ends = |ending| move |after: &mut World| after.workers[worker].at = At::Ended(ending);
        match self.protocol.todo(state.base, place, now, state.is_new) {
            Todo::GoOn => {
                self.with(Action::GoesOn(worker), |after| after.workers[worker].at = At::Phase(place + 1));
            }
            Todo::Noted(result) => {
                self.with(Action::GoesOn(worker), |after| {
                    after.workers[worker].at = At::Result(place, result);
                });
            }
            Todo::Mismatch => self.with(Action::GoesOn(worker), ends(Ending::Outside)),
            Todo::Answer(number) => self.with(Action::GoesOn(worker), ends(Ending::Completed(number))),
            // T39: a frozen worker.
            _ if self.before.now > state.until => self.with(Action::GoesOn(worker), ends(Ending::Outside)),
            // What another version does first is not modelled.
            Todo::Call(_) | Todo::Ask(_) if inserted => {
                self.with(Action::GoesOn(worker), ends(Ending::Outside));
            }
            Todo::Commit => self.commit(worker, place, now),
            Todo::Call(call) => self.call(worker, place, call),
            Todo::Ask(_) if !self.setting.asks => {
                self.with(Action::EndsUnknown(worker), ends(Ending::Unknown));
            }
            Todo::Ask(call) => {
                self.with(Action::AsksInVain(worker), ends(Ending::InCall));
                let effects = self.before.calls[usize::from(call)].effects;
                if effects > 0 {
                    self.with(Action::Asks(worker), |after| {
                        after.workers[worker].at = At::Result(place, effects);
                    });
                } else if self.is_on_its_way(call) {
                    // "Not made, and will not be": the provider cannot say that yet.
                } else {
                    self.call(worker, place, call);
                }
            }
        }
    }

    /// Whether the call that follows can still arrive. A record that is held may have forgotten any of them.
    fn may_arrive(&self, record: &Record) -> bool {
        let may_follow = |call: u8| record.is_held() || self.protocol.open_call(record) == Some(call);
        (0..=1).any(|call| may_follow(call) && self.is_on_its_way(call))
    }

    /// Whether a worker may still make a call: by its own clock, its lease is not over.
    fn may_be_sent(&self) -> bool {
        let sends = |at| matches!(at, At::Phase(_));
        self.before.workers.iter().any(|worker| sends(worker.at) && self.before.now <= worker.until)
    }

    fn is_on_its_way(&self, call: u8) -> bool {
        self.before.workers.iter().any(|worker| {
            worker.sent.is_some_and(|(sent, at)| sent == call && self.before.now <= at + ARRIVES)
        })
    }

    fn call(&mut self, worker: usize, place: u8, call: u8) {
        let (keys_live, reports) = (self.setting.keys_live, self.setting.webhook);
        let renamed = self.setting.change.renames(self.before.workers[worker].is_new, call);
        self.with(Action::Calls(worker), |after| {
            after.execute(call, renamed, keys_live, reports);
            after.workers[worker].at = At::Result(place, after.calls[usize::from(call)].effects);
        });
        self.with(Action::IsRefused(worker), |after| after.workers[worker].at = At::Ended(Ending::Outside));
        let sent = Some((call, self.before.now));
        self.with(Action::SendsUnheard(worker), |after| {
            after.workers[worker].sent = sent;
            after.workers[worker].at = At::Ended(Ending::InCall);
        });
        self.with(Action::SendsAndCrashes(worker), |after| {
            after.workers[worker].sent = sent;
            after.over(worker);
        });
    }

    fn keep(&mut self, worker: usize, place: u8, result: u8, now: u8) {
        let (before, base) = (self.before, self.before.workers[worker].base);
        let by = (base, before.workers[worker].is_new);
        let kept = self.protocol.keep(&before, by, (place, result), now);
        self.with(Action::Keeps(worker), |after| {
            let state = &mut after.workers[worker];
            state.at = At::Ended(Ending::Outside);
            match kept {
                Kept::Taken(id, own) => {
                    if own {
                        (state.at, state.base) = (At::Phase(place + 1), id);
                    }
                    after.write(id);
                }
                Kept::Known(true) => {
                    (state.at, state.base) = (At::Phase(place + 1), before.record.unwrap_or(base));
                }
                Kept::Known(false) => {}
                Kept::Left => state.deferred = Some(Deferred::Phase(place, result)),
            }
        });
        if !self.setting.store_faults {
            return;
        }
        let in_vain = |after: &mut World| {
            after.workers[worker].at = At::Ended(Ending::InCall);
            after.workers[worker].deferred = Some(Deferred::Phase(place, result));
        };
        self.with(Action::KeepsInVain(worker), in_vain);
        if let Kept::Taken(id, _) = kept {
            self.with(Action::KeepsLate(worker), |after| {
                in_vain(after);
                after.late = Some(Late { id, rows: false });
            });
        }
    }

    /// A commit counts only if its worker still runs the record.
    fn commit(&mut self, worker: usize, place: u8, now: u8) {
        let before = self.before;
        let by = (before.workers[worker].base, before.workers[worker].is_new);
        let ends = |after: &mut World| after.workers[worker].at = At::Ended(Ending::Outside);
        // The result is 1 if the stock is taken, and 0 if it is refused.
        for result in [1, 0] {
            let action = if result == 1 { Action::Commits(worker) } else { Action::CommitsRefused(worker) };
            let Kept::Taken(id, true) = self.protocol.keep(&before, by, (place, result), now) else {
                self.with(action, ends);
                continue;
            };
            self.with(action, |after| {
                after.write(id);
                after.rows += result;
                (after.workers[worker].at, after.workers[worker].base) = (At::Phase(place + 1), id);
            });
            if self.setting.store_faults {
                self.with(Action::CommitsInVain(worker), ends);
                self.with(Action::CommitsLate(worker), |after| {
                    ends(after);
                    after.late = Some(Late { id, rows: result == 1 });
                });
            }
        }
    }

    fn report(&mut self, worker: usize, ending: Ending, now: u8) {
        let (before, base) = (self.before, self.before.workers[worker].base);
        let written = self.protocol.report(&before, base, ending, now);
        let violation = self.over_result(base, ending, written);
        self.judge(Action::Reports(worker), violation, |after| {
            if let Some(id) = written {
                after.write(id);
            }
            after.over(worker);
        });
        // Not while the result of a phase waits in the queue: it says more.
        if self.setting.store_faults && before.workers[worker].deferred.is_none() {
            self.with(Action::ReportsInVain(worker), |after| {
                after.workers[worker].deferred = Some(Deferred::Ended(ending));
                after.over(worker);
            });
        }
    }

    /// Whether the record had the result of the call that made it unknown.
    fn over_result(&self, base: Id, ending: Ending, written: Option<Id>) -> Option<Violation> {
        let kept = |id: Id| self.protocol.record(id).phases().map_or(0, |phases| phases.kept.len());
        let is_unknown = |id: Id| matches!(self.protocol.record(id).state, State::Unknown { .. });
        let (before, after) = (self.before.record?, written?);
        let is_over = ending == Ending::Unknown && kept(before) > kept(base);
        (is_over && !is_unknown(before) && is_unknown(after)).then_some(Violation::UnknownOverResult)
    }

    fn deliver(&mut self, worker: usize, deferred: Deferred) {
        let before = self.before;
        let base = before.workers[worker].base;
        let by = (base, before.workers[worker].is_new);
        let (mut alarm, mut violation) = (false, None);
        let written = match deferred {
            Deferred::Phase(place, result) => {
                match self.protocol.keep(&before, by, (place, result), before.now) {
                    Kept::Taken(id, _) => Some(id),
                    Kept::Known(_) => None,
                    Kept::Left => {
                        alarm = true;
                        None
                    }
                }
            }
            Deferred::Ended(ending) => {
                let written = self.protocol.report(&before, base, ending, before.now);
                violation = self.over_result(base, ending, written);
                written
            }
        };
        self.judge(Action::Delivers(worker), violation, |after| {
            if let Some(id) = written {
                after.write(id);
            }
            after.alarm |= alarm;
            after.workers[worker].deferred = None;
            if after.workers[worker].at == At::Over {
                after.over(worker);
            }
        });
    }

    /// To the point in time of the backup, and then hold what is open, before anything starts again. No worker lives on; what is in a
    /// queue, or on its way to the provider, stays.
    fn restore(&mut self) {
        let before = self.before;
        let Some(Backup { id, rows }) = before.backup else {
            if let Some(id) = before.record {
                let backup = Some(Backup { id, rows: before.rows });
                self.with(Action::BacksUp, |after| after.backup = backup);
            }
            return;
        };
        let completed = matches!(self.protocol.record(id).state, State::Completed { .. });
        // A lease that is not over is waited for.
        let Some(id) = self.protocol.hold(id, before.now).or(completed.then_some(id)) else { return };
        self.with(Action::Restores, |after| {
            for worker in 0..MAX_WORKERS {
                if after.workers[worker].at != At::Idle {
                    after.over(worker);
                }
            }
            after.write(id);
            (after.rows, after.backup, after.restored) = (rows, None, true);
        });
    }

    fn others(&mut self) {
        let before = self.before;
        if self.setting.restores && !before.restored {
            self.restore();
        }
        if before.now < self.setting.horizon {
            self.with(Action::Tick, |after| {
                after.now += 1;
                for worker in &mut after.workers {
                    worker.sent = worker.sent.filter(|(_, sent)| before.now < sent + ARRIVES);
                }
            });
        }
        if let Some(late) = before.late {
            self.with(Action::Lands, |after| {
                after.write(late.id);
                after.rows += u8::from(late.rows);
            });
        }
        for clock in 0..=self.setting.skew {
            if let Some(id) = self.protocol.expire(&before, before.now + clock) {
                self.with(Action::Expires, |after| after.write(id));
            }
        }
        for call in 0..CALLS {
            if before.calls[call].webhook {
                let number = u8::try_from(call).unwrap_or_default();
                let noted = self.protocol.note(&before, number, before.calls[call].effects, before.now);
                self.with(Action::Hears(call), |after| {
                    after.calls[call].webhook = false;
                    match noted {
                        Ok(id) => after.write(id),
                        Err(contradicts) => after.alarm |= contradicts,
                    }
                });
            }
        }
        if let Some(id) = self.protocol.reconcile(&before, before.now) {
            self.with(Action::Reconciles, |after| after.write(id));
        }
        if self.setting.operator
            && before.record.is_some_and(|id| self.protocol.record(id).is_escalated())
            && !before.record.is_some_and(|id| self.may_arrive(self.protocol.record(id)))
            && !self.may_be_sent()
            && let Some(id) = self.protocol.operate(&before, before.now)
        {
            self.with(Action::Operates, |after| after.write(id));
        }
    }
}
